"""Answers to requests that went wrong: a status, and a body with code, message and place."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.service.schemas import Problem

_LOGGER = logging.getLogger("uvicorn.error")
_LONGEST = 500  # characters of a message; it may quote the request
_STATUS = {"B337": 404, "B387": 503}  # of errors of the verbs; any other is our own: 500


class Refusal(HTTPException):
    """A coded error for the client.

    message (str): From `Errors`, with its code.
    where (str | None): Place in the request.
    """

    def __init__(self, status: int, message: str, *, where: str | None = None) -> None:
        super().__init__(status, detail=message)
        self.where = where

    def response(self) -> JSONResponse:
        return _response(self.status_code, self.detail, self.where)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Answers of a route with these statuses, for /openapi.json."""
    texts = {
        400: "The body is not JSON",
        404: "Not found",
        408: "The body came too slowly",
        413: "The body is too large",
        415: "The body is not declared as JSON",
        422: "The request has not the form that is expected",
        503: "Busy or loading: ask again after the seconds of Retry-After",
    }
    return {status: {"model": Problem, "description": texts[status]} for status in statuses}


def _on_http_error(request: Request, error: HTTPException) -> JSONResponse:
    if isinstance(error, Refusal):
        return error.response()
    allowed = (error.headers or {}).get("Allow", "")
    messages = {
        400: Errors.B385.format(found="damaged, too deep, or not UTF-8"),
        404: Errors.B380.format(path=request.url.path),
        405: Errors.B381.format(method=request.method, path=request.url.path, allowed=allowed),
    }
    message = messages.get(error.status_code, Errors.B384.format(problem=error.detail))
    return _response(error.status_code, message, headers=error.headers)


def _on_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
    """Tell the first of the errors that pydantic has found."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        found = f"{first['ctx']['error']} at character {first['loc'][1]}"
        return _response(400, Errors.B385.format(found=found), "body")
    problem = first["msg"].removeprefix("Value error, ")
    where = ".".join(_shortened(str(part)) for part in first["loc"])
    return _response(422, Errors.B384.format(problem=problem), where)


def _on_bioel_error(_: Request, error: BioelError) -> JSONResponse:
    code = str(error)[1:5]
    if code in _STATUS:
        return _response(_STATUS[code], str(error))
    _LOGGER.error("%s", error)  # it advises whoever keeps the service, and names files
    return _response(500, Errors.B392.format(error=f"Error {code}"))


def _on_bug(_: Request, error: Exception) -> JSONResponse:
    return _response(500, Errors.B392.format(error=type(error).__name__))


# All errors of the application have one form, those of the framework too.
HANDLERS: dict[Any, Any] = {
    HTTPException: _on_http_error,
    RequestValidationError: _on_invalid,
    BioelError: _on_bioel_error,
    Exception: _on_bug,
}


def _response(
    status: int,
    message: str,
    where: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    code, _, text = message[1:].partition("] ")
    body = {"code": code, "message": _shortened(text, _LONGEST), "where": where}
    # Lone surrogates, which a request may have and no answer can.
    body = {key: value and value.encode("utf8", "replace").decode() for key, value in body.items()}
    if status == 503:  # the pipeline loads, or others are served
        headers = {"Retry-After": "2"}
    return JSONResponse(body, status, dict(headers or {}))


def _shortened(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"

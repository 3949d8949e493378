"""What refuses requests: names by which a service may be asked, sizes and times; and the form of
all errors: a status, and a body with code, message and place.

Figures of a running service, in the form of Prometheus.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.rows import LinkedText
from spacy_bioel.service import Limits
from spacy_bioel.service.service import Service

_LOGGER = logging.getLogger("uvicorn.error")
_LONGEST = 500  # characters of a message; it may quote the request
_STATUS = {"B337": 404, "B387": 503}  # of errors of the service; any other is our own: 500


class Failure(BaseModel):
    """The error of a text that could not be linked."""

    code: str = Field(description='Code of the message, such as "B384"', examples=["B384"])
    message: str = Field(description="The error: what was found, what was expected, what to do")


class Problem(Failure):
    """An error. Its code is listed with the errors of spacy-bioel."""

    where: str | None = Field(description='Place in the request, such as "body.texts.3"')


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


# All errors of the application have one form, those of the framework too.
HANDLERS: dict[Any, Any] = {
    HTTPException: _on_http_error,
    RequestValidationError: _on_invalid,
    BioelError: _on_bioel_error,
    Exception: lambda _, bug: _response(500, Errors.B392.format(error=type(bug).__name__)),
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


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:\[\]@]+?)\.?(:\d*)?", re.IGNORECASE)


class CheckHost:
    """ASGI middleware that refuses requests to the names of others.

    A page of another site can have its own name lead to this machine (DNS rebinding), and read what
    it asks for there; its requests have that name. It can do so with no address.

    hosts (Collection[str]): Names beside localhost and all addresses; "*": any.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str]) -> None:
        self.app = app
        self.hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = Headers(scope=scope).get("host", "") if scope["type"] == "http" else None
        if found is not None and not self._is_ours(found):
            message = Errors.B486.format(found=found[:80] or "none")
            await Refusal(400, message, where="header").response()(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        form = _HOST.fullmatch(host)
        name = form[1].strip("[]").lower() if form else ""
        with suppress(ValueError):  # of what is no address
            ip_address(name)
            return True
        return not self.hosts.isdisjoint({name, "*"})


# Served under any load: they are cheap and say how large it is.
ALWAYS = ("/livez", "/readyz", "/metrics")


class LimitRequests:
    """ASGI middleware that refuses what is too large, too slow, or too much at once."""

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        self.app = app
        self.limits = limits
        self._in_progress = 0  # bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS:
            await self.app(scope, receive, send)
            return
        n_read, is_reading, is_answered = 0, False, False

        async def read() -> Message:
            nonlocal n_read, is_reading
            is_reading = True
            message = await receive()
            is_reading = False
            n_bytes = len(message.get("body", b""))
            self._check(n_bytes, n_read)
            n_read += n_bytes
            self._in_progress += n_bytes
            return message

        async def answer(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            async with asyncio.timeout(self.limits.seconds):
                declared = Headers(scope=scope).get("content-length", "")
                self._check(int(declared) if declared.isdecimal() else 0, 0)
                await self.app(scope, read, answer)
        except TimeoutError:
            if not is_answered:  # otherwise nothing else can be said
                seconds = self.limits.seconds
                refusal = Refusal(503, Errors.B391.format(seconds=seconds))
                if is_reading:
                    refusal = Refusal(408, Errors.B390.format(seconds=seconds), where="body")
                await refusal.response()(scope, receive, send)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
        finally:
            self._in_progress -= n_read

    def _check(self, n_bytes: int, n_read: int) -> None:
        """RAISES Refusal: [B382] too many bytes, [B389] too many at once."""
        if n_read + n_bytes > self.limits.body_bytes:
            raise Refusal(413, Errors.B382.format(most=self.limits.body_bytes), where="body")
        is_alone = self._in_progress == n_read
        if not is_alone and self._in_progress + n_bytes > self.limits.waiting_bytes:
            raise Refusal(503, Errors.B389)


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters of one service, which reports to them; each has a registry of its own."""

    def __init__(self, service: Service) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.requests = Counter(
            "bioel_requests", "Answered requests", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "bioel_request_seconds",
            "Time from a request to its answer",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.texts = Counter("bioel_texts", "Texts by outcome", ["outcome"], registry=registry)
        self.mentions = Counter(
            "bioel_mentions", "Mentions by outcome", ["outcome"], registry=registry
        )
        # The state of the service, read whenever the figures are asked for.
        waiting = Gauge("bioel_waiting_texts", "Texts that wait", registry=registry)
        waiting.set_function(lambda: service.waiting)
        ready = Gauge("bioel_ready", "1 once texts are linked", registry=registry)
        ready.set_function(lambda: service.is_ready)
        service.observe = self._observe

    def _observe(self, linked: Sequence[LinkedText]) -> None:
        for one in linked:
            self.texts.labels("failed" if one.error else "linked").inc()
            n_nil = sum(not link.ids for link in one.links)
            self.mentions.labels("nil").inc(n_nil)
            self.mentions.labels("linked").inc(len(one.links) - n_nil)

    def page(self) -> bytes:
        """The figures, in Prometheus' text format."""
        return generate_latest(self._registry)


class MeasureRequests:
    """ASGI middleware that counts requests and their time, by route."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500  # of an error that nobody has caught

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        start = time.perf_counter()
        try:
            await self.app(scope, receive, send_and_note)
        finally:
            # Only paths of routes: a path of a client's own would be a series of its own.
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - start)

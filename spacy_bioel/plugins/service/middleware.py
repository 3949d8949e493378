"""HTTP middleware: request checks, errors and metrics.

Requests are refused if their host name is unknown, or if they are too large or too slow. All errors
have a status, and a body with code, message and place. Metrics use Prometheus' text format.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
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
)
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spacy_bioel.errors import BioelError, crash_report, shortened
from spacy_bioel.plugins.service import Limits
from spacy_bioel.plugins.service.errors import ServiceErrors
from spacy_bioel.plugins.service.service import Service
from spacy_bioel.plugins.service.worker import Answer

_SERVER_LOGGER = logging.getLogger("uvicorn.error")
_MAX_MESSAGE_LENGTH = 500  # a message may quote the request.
# HTTP status for each error code; all other codes are internal errors (500).
_STATUS_OF_CODES = {
    **{"B337": 404, "B637": 404, "B386": 422, "B387": 503, "B563": 503},
    # Errors in functions from other packages.
    **{"B392": 500, "B395": 501, "B560": 503, "B561": 503, "B663": 501},
}
_TRY_AGAIN = {"B387", "B389", "B391", "B563"}  # the service is loading, busy or stopping


class Problem(BaseModel):
    """Why a request failed, with one of spacy-bioel's error codes."""

    code: str = Field(description='Error code, such as "B384"', examples=["B384"])
    message: str = Field(description="What was found, what was expected, and what to do")
    where: str | None = Field(description='Place in the request, such as "body.texts.3"')


class Refusal(HTTPException):
    """HTTP error for the client, with a spacy-bioel error code in its message.

    message (str): A message from `Errors`, with its code.
    where (str | None): Place in the request.
    """

    def __init__(self, status: int, message: str, *, where: str | None = None) -> None:
        super().__init__(status, detail=message)
        self.where = where

    def response(self) -> JSONResponse:
        return _response(self.status_code, self.detail, self.where)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe a route's error responses by status, for /openapi.json."""
    texts = {
        400: "The request body is not JSON",
        404: "Not found",
        408: "The request body arrived too slowly",
        413: "The request body is too large",
        415: "The request body is not declared as JSON",
        422: "The request is not valid",
        429: "Too many requests: try again after the number of seconds in Retry-After",
        503: "Busy or loading if there is Retry-After; otherwise, the texts took too long",
    }
    return {status: {"model": Problem, "description": texts[status]} for status in statuses}


def _on_http_error(request: Request, error: HTTPException) -> JSONResponse:
    if isinstance(error, Refusal):
        return error.response()
    allowed = (error.headers or {}).get("Allow", "")
    messages = {
        400: ServiceErrors.B385.format(found="damaged, nested too deeply, or not UTF-8"),
        404: ServiceErrors.B380.format(path=request.url.path),
        405: ServiceErrors.B381.format(
            method=request.method, path=request.url.path, allowed=allowed
        ),
    }
    message = messages.get(error.status_code, ServiceErrors.B384.format(problem=error.detail))
    return _response(error.status_code, message, headers=error.headers)


def _on_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
    """Report the first error that pydantic found."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        problem = f"{first['ctx']['error']} at character {first['loc'][1]}"
        return _response(400, ServiceErrors.B385.format(found=problem), "body")
    problem = first["msg"].removeprefix("Value error, ")
    where = ".".join(shortened(str(part)) for part in first["loc"])
    return _response(422, ServiceErrors.B384.format(problem=problem), where)


def _on_bioel_error(_: Request, error: BioelError) -> JSONResponse:
    code = str(error)[1:5]
    if code in _STATUS_OF_CODES:
        return _response(_STATUS_OF_CODES[code], str(error))
    # Only log the message, because its file names and commands are meant for the administrator.
    _SERVER_LOGGER.error("%s", error)
    return _response(500, ServiceErrors.B392.format(error=f"Error {code}"))


# All errors have the same form, including FastAPI's own.
HANDLERS: dict[Any, Any] = {
    HTTPException: _on_http_error,
    RequestValidationError: _on_invalid,
    BioelError: _on_bioel_error,
}


def _response(
    status: int,
    message: str,
    where: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    code, _, text = message[1:].partition("] ")
    body = {"code": code, "message": shortened(text, _MAX_MESSAGE_LENGTH), "where": where}
    # A message may quote lone surrogates from the request, but a response cannot contain them.
    body = {key: value and value.encode("utf8", "replace").decode() for key, value in body.items()}
    if code in _TRY_AGAIN:
        headers = {"Retry-After": "2"}
    return JSONResponse(body, status, dict(headers or {}))


_HOST_HEADER = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:\[\]@]+?)\.?(:\d*)?", re.IGNORECASE)


class CheckHost:
    """ASGI middleware that refuses requests to unknown host names.

    Another website can make its own host name resolve to this machine (DNS rebinding), and read
    the service's responses. Such requests contain that host name. The attack does not work with
    IP addresses, so they are allowed.

    hosts (Collection[str]): Allowed names in addition to localhost and all IP addresses; "*": any.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str]) -> None:
        self.app = app
        self.hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "")
            if not self._is_allowed(host):
                message = ServiceErrors.B486.format(found=host[:80] or "none")
                await Refusal(400, message, where="header").response()(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        match = _HOST_HEADER.fullmatch(host)
        name = match[1].strip("[]").lower() if match else ""
        with suppress(ValueError):  # raised if the host is a name
            ip_address(name)
            return True
        return not self.hosts.isdisjoint({name, "*"})


# Paths that are exempt from limits, because they are cheap and report the load.
UNLIMITED_PATHS = ("/livez", "/readyz", "/metrics")


class LimitRequests:
    """ASGI middleware that limits each request's size and time, and the total size in progress."""

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        self.app = app
        self.limits = limits
        self._in_progress = 0  # bytes in all requests in progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNLIMITED_PATHS:
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
            if not is_answered:  # otherwise it is too late to send an error
                seconds = self.limits.seconds
                refusal = Refusal(503, ServiceErrors.B391.format(seconds=seconds))
                if is_reading:
                    refusal = Refusal(408, ServiceErrors.B390.format(seconds=seconds), where="body")
                await refusal.response()(scope, receive, send)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
        finally:
            self._in_progress -= n_read

    def _check(self, n_bytes: int, n_read: int) -> None:
        """Check sizes. RAISES Refusal: [B382] if this body is too large, [B389] if the total is."""
        if n_read + n_bytes > self.limits.body_bytes:
            raise Refusal(413, ServiceErrors.B382.format(most=self.limits.body_bytes), where="body")
        is_alone = self._in_progress == n_read
        if not is_alone and self._in_progress + n_bytes > self.limits.waiting_bytes:
            raise Refusal(429, ServiceErrors.B389)


_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Prometheus metrics for one service, in their own registry."""

    def __init__(self, service: Service) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.requests = counter("bioel_requests", "Completed requests", ["route", "status"])
        self.seconds = Histogram(
            "bioel_request_seconds",
            "Time from a request to its response",
            ["route"],
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.texts = counter("bioel_texts", "Texts by outcome", ["outcome"])
        self.mentions = counter("bioel_mentions", "Mentions by outcome", ["outcome"])
        # Gauges read the service's state whenever metrics are requested.
        gauge("bioel_waiting_texts", "Waiting texts").set_function(lambda: service.waiting)
        ready = gauge("bioel_ready", "1 when the pipeline is loaded")
        ready.set_function(lambda: service.is_ready)
        workers = gauge("bioel_workers", "Worker processes that are loaded")
        workers.set_function(lambda: service.n_loaded)
        memory = gauge("bioel_worker_bytes", "Memory without mapped files")
        memory.set_function(lambda: sum(map(_private_bytes, service.worker_pids)))
        service.observe = self._observe

    def _observe(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self.texts.labels("failed" if answer.error else "linked").inc()
            self.mentions.labels("nil").inc(answer.n_nil)
            self.mentions.labels("linked").inc(answer.n_linked)


def _private_bytes(pid: int) -> int:
    """Return a process's memory, excluding mapped files; 0 if the system does not report it."""
    with suppress(OSError):
        match = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
        return int(match[1]) * 1024 if match else 0
    return 0


class MeasureRequests:
    """ASGI middleware that counts and times the requests to each route."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status: int | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        start = time.perf_counter()
        try:
            await self.app(scope, receive, send_and_note)
        except Exception as bug:  # uvicorn would log its message, which may quote a text
            if status is None:
                _SERVER_LOGGER.error("%s", crash_report(bug, max_length=0))
                answer = _response(500, ServiceErrors.B392.format(error=type(bug).__name__))
                await answer(scope, receive, send_and_note)
        finally:
            # Unknown paths count as "other"; otherwise each would become its own time series.
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(route, str(status or 500)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - start)

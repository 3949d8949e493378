"""What refuses requests: names by which a service may be asked, sizes and times."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from ipaddress import ip_address

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spacy_bioel.errors import Errors
from spacy_bioel.service import Limits
from spacy_bioel.service.problems import Refusal

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
        if scope["type"] == "http" and not self._is_ours(found := _host_of(scope)):
            message = Errors.B486.format(found=found[:80] or "none")
            await Refusal(400, message, where="header").response()(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        form = _HOST.fullmatch(host)
        name = form[1].strip("[]").lower() if form else ""
        return not self.hosts.isdisjoint({name, "*"}) or _is_address(name)


def _host_of(scope: Scope) -> str:
    return next((value.decode("latin1") for key, value in scope["headers"] if key == b"host"), "")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


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
        request = _Measured(receive, send)
        try:
            async with asyncio.timeout(self.limits.seconds):
                self._check(_declared_length(scope))
                await self.app(scope, self._limited(request), request.send)
        except TimeoutError:
            # Once an answer has begun, nothing else can be said.
            if not request.is_answered:
                await self._too_slow(request).response()(scope, receive, send)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
        finally:
            self._in_progress -= request.n_bytes

    def _limited(self, request: _Measured) -> Receive:
        async def receive() -> Message:
            message = await request.receive()
            n_bytes = len(message.get("body", b""))
            self._check(n_bytes, of=request)
            request.n_bytes += n_bytes
            self._in_progress += n_bytes
            return message

        return receive

    def _check(self, n_bytes: int, *, of: _Measured | None = None) -> None:
        """RAISES Refusal: [B382] too many bytes, [B389] too many at once."""
        before = of.n_bytes if of else 0
        if before + n_bytes > self.limits.body_bytes:
            raise Refusal(413, Errors.B382.format(most=self.limits.body_bytes), where="body")
        others = self._in_progress - before
        if others and self._in_progress + n_bytes > self.limits.waiting_bytes:
            raise Refusal(503, Errors.B389)

    def _too_slow(self, request: _Measured) -> Refusal:
        seconds = self.limits.seconds
        if request.is_reading:
            return Refusal(408, Errors.B390.format(seconds=seconds), where="body")
        return Refusal(503, Errors.B391.format(seconds=seconds))


class _Measured:
    """A request, and how far it is."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.n_bytes = 0
        self.is_reading = False
        self.is_answered = False
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        self.is_reading = True
        message = await self._receive()
        self.is_reading = False
        return message

    async def send(self, message: Message) -> None:
        self.is_answered = True
        await self._send(message)


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0

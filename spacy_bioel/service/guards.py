"""What refuses requests: names by which a service may be asked, sizes and times."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from ipaddress import ip_address

from starlette.datastructures import Headers
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
        if scope["type"] == "http" and not self._is_ours(
            found := Headers(scope=scope).get("host", "")
        ):
            message = Errors.B486.format(found=found[:80] or "none")
            await Refusal(400, message, where="header").response()(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        form = _HOST.fullmatch(host)
        name = form[1].strip("[]").lower() if form else ""
        return not self.hosts.isdisjoint({name, "*"}) or _is_address(name)


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
                await self._too_slow(is_reading).response()(scope, receive, send)
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

    def _too_slow(self, is_reading: bool) -> Refusal:
        seconds = self.limits.seconds
        if is_reading:
            return Refusal(408, Errors.B390.format(seconds=seconds), where="body")
        return Refusal(503, Errors.B391.format(seconds=seconds))

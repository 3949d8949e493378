"""Names by which a service may be asked."""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from spacy_bioel.errors import Errors
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

"""Connections of a service: bounded in number, and in the time that a request may take to come."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_MOST = 1000


def most_connections() -> int:
    """Number of connections that leaves enough open files for all else, as knowledge bases."""
    if sys.platform == "win32":
        return _MOST
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if limit == resource.RLIM_INFINITY else min(_MOST, limit // 4)


class Connections:
    """All connections, and those among them whose request has not come as a whole.

    most (int): Connections at once. For one more, that is closed which waits for the longest time.
    seconds (float): Time for the head of a request, from its first byte or from the connection.
    tell (Callable): Is told of the first one that is closed for another, in a sentence.
    """

    def __init__(self, *, most: int, seconds: float, tell: Callable[[str], None]) -> None:
        self.most = most
        self.seconds = seconds
        self.waiting: dict[Connection, None] = {}  # the longest first
        self._tell = tell
        self._is_told = False

    def protocol(self, *args: Any, **options: Any) -> Connection:
        """A new connection, with uvicorn's arguments."""
        return Connection(self, *args, **options)

    def make_room(self, n: int) -> None:
        """Close a connection if there are too many: n."""
        if n <= self.most:
            return
        if not self._is_told:
            self._is_told = True
            self._tell(f"More than {self.most} connections: those that wait longest are closed.")
        longest = next(iter(self.waiting))
        del self.waiting[longest]
        longest.transport.abort()


class Connection(H11Protocol):
    """A connection. uvicorn itself bounds only the time between requests."""

    def __init__(self, all: Connections, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._all = all
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.waiting[self] = None
        self._start_timer()
        self._all.make_room(len(self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()
        self._all.waiting.pop(self, None)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._stop_timer()  # of the body there is another; see `limits.LimitRequests`
            if not self.cycle.more_body:
                self._all.waiting.pop(self, None)
        elif self._timer is None:
            self._start_timer()

    def on_response_complete(self) -> None:
        self._all.waiting.pop(self, None)  # to the end of those that wait
        if not self.transport.is_closing():
            self._all.waiting[self] = None
        unread = self.cycle.more_body or self.conn.trailing_data[0]
        super().on_response_complete()
        if unread and self.cycle.response_complete and self._timer is None:
            self._start_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, also one whose client does not read its answer."""
        self.transport.abort()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._all.seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

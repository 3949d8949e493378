"""The HTTP service as a process: listening, signals, the end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from spacy_bioel.errors import BioelError, Errors

if TYPE_CHECKING:
    from spacy_bioel.service import Limits
    from spacy_bioel.service.service import Service


# oneDNN, and PyTorch's layer above it, keep a plan of some 100 KB for each number of rows that they
# have met, a thousand of them: batches of a service have any number, so that its memory would grow.
# Read by PyTorch at its first product.
_PLANS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}
# Requests that are being answered when the end is asked for have this long.
_SECONDS_TO_END = 30
# Longer than proxies keep idle connections (60 seconds, mostly), so that none sends a request into
# one that is being closed.
_SECONDS_IDLE = 75
_MOST = 1000  # connections


def listen(host: str, port: int) -> socket.socket:
    """Listen on a port, where clients wait from now on.

    RAISES BioelError: [B393] when that is impossible.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BioelError(Errors.B393.format(host=host, port=port, reason=reason)) from error


def serve(
    listener: socket.socket,
    model: str,
    limits: Limits,
    *,
    preset: str | None = None,
    hosts: Collection[str],
    tell: Callable[[str], None],
) -> None:
    """Serve a pipeline until the process is told to end by SIGTERM or SIGINT.

    On SIGHUP the folders of the knowledge base are opened anew.

    listener (socket.socket): From `listen`.
    model, preset (str): As in `loading.load_model`.
    hosts (Collection[str]): Names by which it may be asked; see `middleware.CheckHost`.
    tell (Callable): Is told what happens, in sentences.
    RAISES BioelError: Those of loading the pipeline.
    """
    for name, number in _PLANS.items():
        os.environ.setdefault(name, number)
    from spacy_bioel.loading import load_model
    from spacy_bioel.service.app import create_app
    from spacy_bioel.service.service import Service

    load = partial(load_model, model, preset=preset)
    service = Service(load, max_characters=limits.characters)
    most = most_connections()
    connections = Connections(most=most, seconds=limits.seconds, tell=tell)
    config = uvicorn.Config(
        create_app(service, limits, hosts=hosts),
        http=cast("type[asyncio.Protocol]", partial(Connection, connections)),
        ws="none",
        backlog=max(1, most // 4),  # accepted at once, before the first of them is looked at
        lifespan="off",
        log_level="error",  # each bad request would be a line
        access_log=False,  # words that are searched for are in the path
        server_header=False,
        timeout_keep_alive=_SECONDS_IDLE,
        timeout_graceful_shutdown=_SECONDS_TO_END,
    )
    server = uvicorn.Server(config)
    _handle_signals(server, service, tell)
    service.start()
    Thread(target=_watch, args=(server, service, tell), daemon=True).start()
    server.run(sockets=[listener])
    service.close()
    if service.failure is not None:
        raise service.failure
    tell("Ended.")


def _watch(server: uvicorn.Server, service: Service, tell: Callable[[str], None]) -> None:
    start = time.perf_counter()
    service.wait()
    if service.failure is not None:
        server.should_exit = True
    else:
        tell(f"Ready after {time.perf_counter() - start:.1f} seconds.")


def _handle_signals(server: uvicorn.Server, service: Service, tell: Callable[[str], None]) -> None:
    def end(*_: object) -> None:
        # uvicorn's own handlers take over when it runs, and raise the signal again at its end.
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if hasattr(signal, "SIGHUP"):
        reopen = partial(_reopen, service, tell)
        signal.signal(signal.SIGHUP, lambda *_: Thread(target=reopen, daemon=True).start())


def _reopen(service: Service, tell: Callable[[str], None]) -> None:
    try:
        tell(f"The knowledge base is open anew, fingerprint {service.reopen_kb()}.")
    except BioelError as error:
        tell(f"The knowledge base stays as it was: {error}")


def most_connections() -> int:
    """Number of connections that leaves enough open files for all else, as knowledge bases."""
    if sys.platform == "win32":
        return _MOST
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if limit == resource.RLIM_INFINITY else min(_MOST, limit // 4)


@dataclass
class Connections:
    """All connections, and those among them whose request has not come as a whole.

    most (int): Connections at once. For one more, that is closed which waits for the longest time.
    seconds (float): Time for the head of a request, from its first byte or from the connection.
    tell (Callable): Is told of the first one that is closed for another, in a sentence.
    """

    most: int
    seconds: float
    tell: Callable[[str], None]
    waiting: dict[Connection, None] = field(default_factory=dict)  # the longest first
    is_told: bool = False

    def make_room(self, n: int) -> None:
        """Close a connection if there are too many: n."""
        if n <= self.most:
            return
        if not self.is_told:
            self.is_told = True
            self.tell(f"More than {self.most} connections: those that wait longest are closed.")
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
            self._stop_timer()  # of the body there is another; see `middleware.LimitRequests`
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

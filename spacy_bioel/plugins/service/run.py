"""Run the HTTP service: listen, handle signals, limit connections and shut down."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Collection
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

import uvicorn

from spacy_bioel.cli.console import show_note
from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.service.errors import ServiceErrors

if TYPE_CHECKING:
    from spacy_bioel.plugins.service import Limits
    from spacy_bioel.plugins.service.service import Service


# oneDNN and PyTorch's layer on top of it cache up to a thousand plans of about 100 KB, one per row
# count. A service's batches vary in row count, so its memory use would keep growing. PyTorch reads
# these variables at its first matrix product.
_CACHE_LIMITS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}
# Time allowed for requests in progress to finish on shutdown.
_SHUTDOWN_SECONDS = 5
# Keep idle connections open longer than proxies do (usually 60 seconds), so that no proxy sends a
# request on a connection that is being closed.
_IDLE_SECONDS = 75
_MAX_CONNECTIONS = 1000


def listen(host: str, port: int) -> socket.socket:
    """Listen on a port. Clients that connect early wait until they are served.

    RAISES BioelError: [B393] if the port is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BioelError(ServiceErrors.B393.format(host=host, port=port, reason=reason)) from error


def run_server(
    listener: socket.socket,
    model: str,
    limits: Limits,
    *,
    preset: str | None = None,
    n_workers: int,
    hosts: Collection[str],
) -> None:
    """Serve a pipeline until SIGTERM or SIGINT; reload its knowledge base on SIGHUP.

    listener (socket.socket): From `listen`.
    model, preset (str): As in `loading.load_model`.
    n_workers (int): Worker processes.
    hosts (Collection[str]): Allowed host names; see `middleware.CheckHost`.
    RAISES BioelError: If the pipeline cannot be loaded.
    """
    for name, number in _CACHE_LIMITS.items():
        os.environ.setdefault(name, number)
    from spacy_bioel.loading import load_model
    from spacy_bioel.plugins.service.app import create_app
    from spacy_bioel.plugins.service.service import Service

    service = Service(
        partial(load_model, model, preset=preset),
        max_characters=limits.characters,
        n_workers=n_workers,
        deadline=limits.deadline,
    )
    service.notify = show_note
    max_connections = choose_max_connections()
    config = uvicorn.Config(
        create_app(service, limits, hosts=hosts),
        limit_concurrency=max_connections,
        ws="none",
        backlog=max(1, max_connections // 4),  # connections accepted at once, before any is handled
        lifespan="off",
        log_level="error",  # lower levels log each invalid request
        access_log=False,  # paths contain search terms
        server_header=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS + 2,
    )
    server = Server(config, service)
    _handle_signals(server, service)
    service.start()
    Thread(target=_watch_loading, args=(server, service), daemon=True).start()
    try:
        server.run(sockets=[listener])
    finally:
        service.close()
    if service.failure is not None:
        raise service.failure
    show_note("Ended.")


class Server(uvicorn.Server):
    """Server that ends slow requests with error B563 when it shuts down."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        closing = Thread(target=self._service.close, daemon=True)
        asyncio.get_running_loop().call_later(_SHUTDOWN_SECONDS, closing.start)
        await super().shutdown(sockets)


def _watch_loading(server: uvicorn.Server, service: Service) -> None:
    start = time.perf_counter()
    service.wait()
    if service.failure is not None:
        server.should_exit = True
    else:
        show_note(f"Ready after {time.perf_counter() - start:.1f} seconds.")


def _handle_signals(server: uvicorn.Server, service: Service) -> None:
    def end(*_: object) -> None:
        # uvicorn replaces these handlers while it runs, and then raises the signal again.
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if hasattr(signal, "SIGHUP"):
        reload = partial(Thread, target=_reload_kb, args=(service,), daemon=True)
        signal.signal(signal.SIGHUP, lambda *_: reload().start())


def _reload_kb(service: Service) -> None:
    try:
        show_note(f"Reloaded the knowledge base, fingerprint {service.reopen_kb()}.")
    except BioelError as error:
        show_note(f"The knowledge base was not reloaded: {error}")


def choose_max_connections() -> int:
    """Choose a connection limit that leaves enough file descriptors for knowledge bases."""
    if sys.platform == "win32":
        return _MAX_CONNECTIONS
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return min(_MAX_CONNECTIONS, limit // 4)

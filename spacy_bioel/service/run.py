"""The HTTP service as a process: listening, signals, the end."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Collection
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, cast

import uvicorn

from spacy_bioel.errors import BioelError, Errors

if TYPE_CHECKING:
    import asyncio

    from spacy_bioel.service.settings import Limits
    from spacy_bioel.service.verbs import Service

# oneDNN, and PyTorch's layer above it, keep a plan of some 100 KB for each number of rows that they
# have met, a thousand of them: batches of a service have any number, so that its memory would grow.
# Read by PyTorch at its first product.
_PLANS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}
# Requests that are being answered when the end is asked for have this long.
_SECONDS_TO_END = 30
# Longer than proxies keep idle connections (60 seconds, mostly), so that none sends a request into
# one that is being closed.
_SECONDS_IDLE = 75


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
    hosts: Collection[str],
    tell: Callable[[str], None],
) -> None:
    """Serve a pipeline until the process is told to end by SIGTERM or SIGINT.

    On SIGHUP the folders of the knowledge base are opened anew.

    listener (socket.socket): From `listen`.
    model (str): As in `pipeline.loading.load_model`.
    hosts (Collection[str]): Names by which it may be asked; see `hosts.CheckHost`.
    tell (Callable): Is told what happens, in sentences.
    RAISES BioelError: Those of loading the pipeline.
    """
    for name, number in _PLANS.items():
        os.environ.setdefault(name, number)
    from spacy_bioel.pipeline.loading import load_model
    from spacy_bioel.service.app import create_app
    from spacy_bioel.service.connections import Connections, most_connections
    from spacy_bioel.service.metrics import Metrics
    from spacy_bioel.service.verbs import Service

    metrics = Metrics()
    service = Service(
        partial(load_model, model), max_characters=limits.characters, observe=metrics.observe
    )
    most = most_connections()
    connections = Connections(most=most, seconds=limits.seconds, tell=tell)
    config = uvicorn.Config(
        create_app(service, metrics, limits, hosts=hosts),
        http=cast("type[asyncio.Protocol]", connections.protocol),
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

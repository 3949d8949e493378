"""Figures of a running service, in the form of Prometheus."""

from __future__ import annotations

import time
from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spacy_bioel.distributed.rows import LinkedText
from spacy_bioel.service.verbs import Service

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

"""Measure throughput, latency and memory of `bioel serve` with the starter.

python -m benchmarks.run service starts the service as a process and sends it the abstracts of
BC5CDR's development documents: from many clients at once before it is ready (cold start); from
clients that send the next request after each answer (saturation); and at random times independent
of answers (50 a second on average, exponential gaps), so that queueing behind slow answers counts.
The clients share the processor with the service.
"""

import json
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import count

from benchmarks.record import NoteOption, Row, question, rows_of
from benchmarks.starter import development_texts

_CORPUS = "bc5cdr"
_N_CLIENTS = 16
_RATE = 50  # requests a second under steady load
# Seconds of saturation, of steady load to warm up, and of steady load with memory measured.
_SATURATION_SECONDS, _WARM_UP_SECONDS, _STEADY_SECONDS = 20, 5, 60
_local = threading.local()  # a connection for each thread


@question("service")
def service(note: NoteOption = "") -> Iterator[Row]:
    bodies = [json.dumps({"texts": [text.text]}).encode() for text in development_texts(_CORPUS)]
    about = {"corpus": _CORPUS, "split": "dev", "seed": 0, "note": note}
    with _service() as (port, pid):
        yield from rows_of("cold start", _cold_start(port, bodies), n=_N_CLIENTS, **about)
        answered, per_second = _saturate(port, bodies)
        values: dict[str, float] = {"clients": _N_CLIENTS, "per_second": per_second}
        yield from rows_of("saturation", values, n=answered, **about)
        _offer(port, bodies, _WARM_UP_SECONDS)
        before = _megabytes(pid)
        times, failed = _offer(port, bodies, _STEADY_SECONDS)
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        values = {
            "offered_per_second": _RATE,
            "seconds": _STEADY_SECONDS,
            "failed": failed,
            "p50_ms": 1000 * cuts[49],
            "p99_ms": 1000 * cuts[98],
            "max_ms": 1000 * max(times),
            "megabytes_at_start": before,
            "megabytes_at_end": _megabytes(pid),
        }
        yield from rows_of("steady load", values, n=len(times), **about)


@contextmanager
def _service() -> Iterator[tuple[int, int]]:
    """Start the service, and yield its port and process id before it is ready."""
    command = [sys.executable, "-m", "spacy_bioel", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            (port,) = re.findall(r":(\d+) serves", process.stderr.readline())
            yield int(port), process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def _cold_start(port: int, bodies: list[bytes]) -> dict[str, float]:
    """Send a request from all clients at once, as soon as the service listens."""
    start = time.perf_counter()
    with ThreadPoolExecutor(_N_CLIENTS) as pool:
        answers = list(pool.map(lambda body: _ask(port, body), bodies[:_N_CLIENTS]))
    return {"answered": sum(answers), "seconds": time.perf_counter() - start}


def _saturate(port: int, bodies: list[bytes]) -> tuple[int, float]:
    """Send requests without a pause. RETURNS (tuple): Answered requests, in all and a second."""
    numbers = count()
    start = time.perf_counter()

    def work(_: int) -> int:
        answered = 0
        while time.perf_counter() - start < _SATURATION_SECONDS:
            answered += _ask(port, bodies[next(numbers) % len(bodies)])
        return answered

    with ThreadPoolExecutor(_N_CLIENTS) as pool:
        answered = sum(pool.map(work, range(_N_CLIENTS)))
    return answered, answered / (time.perf_counter() - start)


def _offer(port: int, bodies: list[bytes], seconds: float) -> tuple[list[float], int]:
    """Send requests at random times, whether or not earlier ones are answered.

    RETURNS (tuple): Seconds from the planned time of each request to its answer, and the number of
        unanswered requests.
    """
    gaps = random.Random(0)
    arrival, arrivals = 0.0, []
    while (arrival := arrival + gaps.expovariate(_RATE)) < seconds:
        arrivals.append(arrival)
    start = time.perf_counter()

    def ask(due: float, body: bytes) -> tuple[float, bool]:
        is_answered = _ask(port, body)
        return time.perf_counter() - start - due, is_answered

    with ThreadPoolExecutor(256) as pool:
        asked = []
        for number, due in enumerate(arrivals):
            time.sleep(max(0.0, start + due - time.perf_counter()))
            asked.append(pool.submit(ask, due, bodies[number % len(bodies)]))
        answers = [future.result() for future in asked]
    return [took for took, _ in answers], sum(not ok for _, ok in answers)


def _ask(port: int, body: bytes) -> bool:
    """Send a request, and tell whether its text was linked."""
    connection = getattr(_local, "connection", None)
    if connection is None:
        connection = _local.connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/link", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        # Parsing the JSON would take processor time from the service.
        return answer.read().endswith(b'"error":null}]}') and answer.status == 200
    except OSError:  # it counts as not answered
        _local.connection = None
        return False


def _megabytes(pid: int) -> float:
    """Return the memory of a process without mapped files."""
    with open(f"/proc/{pid}/status", encoding="utf8") as status:
        (kilobytes,) = re.findall(r"^RssAnon:\s+(\d+) kB", status.read(), re.M)
    return int(kilobytes) / 1024

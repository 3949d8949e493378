"""Speed, waiting time and memory of `bioel serve` with the pipeline of the package.

python -m benchmarks.run service starts the service as a process and asks it for links of the
abstracts of BC5CDR's development documents: by many clients at once before it is ready (cold
start); by clients that ask again as soon as they have an answer (saturation); and at times that do
not depend on the answers (50 a second on average, exponential gaps), so that a wait for a slow
answer counts. The clients share the processor with the service.
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
_CLIENTS = 16
_RATE = 50  # abstracts a second that are asked for
_SATURATED, _SETTLING, _SECONDS = 20, 5, 60  # memory is read before and after the last
_local = threading.local()  # a connection for each thread


@question("service")
def service(note: NoteOption = "") -> Iterator[Row]:
    bodies = [json.dumps({"texts": [text.text]}).encode() for text in development_texts(_CORPUS)]
    about = {"corpus": _CORPUS, "split": "dev", "seed": 0, "note": note}
    with _service() as (port, pid):
        yield from rows_of("cold start", _cold_start(port, bodies), n=_CLIENTS, **about)
        answered, per_second = _saturate(port, bodies)
        values: dict[str, float] = {"clients": _CLIENTS, "per_second": per_second}
        yield from rows_of("saturation", values, n=answered, **about)
        _offer(port, bodies, _SETTLING)
        before = _megabytes(pid)
        times, failed = _offer(port, bodies, _SECONDS)
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        values = {
            "offered_per_second": _RATE,
            "seconds": _SECONDS,
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
    """Start the service. YIELDS (tuple): Its port and process, before it is ready."""
    command = [sys.executable, "-m", "spacy_bioel", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            (port,) = re.findall(r":(\d+) serves", process.stderr.readline())
            yield int(port), process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def _cold_start(port: int, bodies: list[bytes]) -> dict[str, float]:
    """All clients ask at once, as soon as the service listens."""
    start = time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        answers = list(pool.map(lambda body: _ask(port, body), bodies[:_CLIENTS]))
    return {"answered": sum(answers), "seconds": time.perf_counter() - start}


def _saturate(port: int, bodies: list[bytes]) -> tuple[int, float]:
    """RETURNS (tuple): Abstracts that were answered, in all and a second."""
    numbers = count()
    start = time.perf_counter()

    def work(_: int) -> int:
        answered = 0
        while time.perf_counter() - start < _SATURATED:
            answered += _ask(port, bodies[next(numbers) % len(bodies)])
        return answered

    with ThreadPoolExecutor(_CLIENTS) as pool:
        answered = sum(pool.map(work, range(_CLIENTS)))
    return answered, answered / (time.perf_counter() - start)


def _offer(port: int, bodies: list[bytes], seconds: float) -> tuple[list[float], int]:
    """Ask at random times, whether or not earlier requests are answered.

    RETURNS (tuple): Seconds from the time of each request to its answer, and the number of
        requests that got none.
    """
    gaps = random.Random(0)
    at, arrivals = 0.0, []
    while (at := at + gaps.expovariate(_RATE)) < seconds:
        arrivals.append(at)
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
    """RETURNS (bool): Whether the text was linked."""
    connection = getattr(_local, "connection", None)
    if connection is None:
        connection = _local.connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/link", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        # Not parsed: the clients' work would count as the service's.
        return answer.read().endswith(b'"error":null}]}') and answer.status == 200
    except OSError:  # it counts as not answered
        _local.connection = None
        return False


def _megabytes(pid: int) -> float:
    """Memory of a process, without what it shares as files."""
    with open(f"/proc/{pid}/status", encoding="utf8") as status:
        (kilobytes,) = re.findall(r"^RssAnon:\s+(\d+) kB", status.read(), re.M)
    return int(kilobytes) / 1024

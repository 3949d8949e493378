"""Measure throughput, latency and memory of `bioel serve` with the starter.

python -m benchmarks.run service starts the service as a process and sends it the abstracts of
BC5CDR's development documents: from many clients at once before it is ready (cold start); from
clients that send the next request after each answer (saturation); and at random times independent
of answers (50 a second on average, exponential gaps), so that queueing behind slow answers counts.
The clients share the processor with the service. Memory is that of all its processes.

python -m benchmarks.run bad_texts sends texts that are slow to link, or were, beside good clients.
"""

import json
import os
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
from pathlib import Path

from benchmarks.record import NoteOption, Row, question, rows_of
from benchmarks.starter import development_texts

_CORPUS = "bc5cdr"
_N_CLIENTS = 16
_RATE = 50  # requests a second under steady load
# Seconds of saturation, of steady load to warm up, and of steady load with memory measured.
_SATURATION_SECONDS, _WARM_UP_SECONDS, _STEADY_SECONDS = 20, 5, 60
_N_GOOD_CLIENTS = 32  # beside a bad text
_BAD_TEXTS = {
    "full stops": "." * 99_000,
    "1, 6,000 times": "1," * 6_000,
    "4,000 genes": ", ".join(f"ABC{number}" for number in range(4_000)),
}
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


@question("bad_texts")
def bad_texts(note: NoteOption = "") -> Iterator[Row]:
    """Measure how texts that are slow to link affect good clients, /livez and SIGTERM."""
    bodies = [json.dumps({"texts": [text.text]}).encode() for text in development_texts(_CORPUS)]
    about = {"corpus": _CORPUS, "split": "dev", "clients": _N_GOOD_CLIENTS, "note": note}
    with _service() as (port, pid):
        while _get(port, "/readyz")[0] != 200:
            time.sleep(0.1)
        time.sleep(_WARM_UP_SECONDS)  # the other workers load
        yield from rows_of("no bad text", _beside(port, bodies, None), **about)
        yield from rows_of("worker", {"megabytes": _worker_megabytes(port)}, **about)
        for name, text in _BAD_TEXTS.items():
            yield from rows_of(name, _beside(port, bodies, text), **about)
        bad = threading.Thread(target=_ask, args=(port, _body(_BAD_TEXTS["full stops"])))
        bad.start()
        time.sleep(1)
        start = time.perf_counter()
        os.kill(pid, signal.SIGTERM)
        while Path(f"/proc/{pid}/status").read_text().split("State:")[1].split()[0] != "Z":
            time.sleep(0.01)
        yield from rows_of("SIGTERM", {"seconds": time.perf_counter() - start}, **about)


def _beside(port: int, bodies: list[bytes], text: str | None) -> dict[str, float]:
    """Send a bad text while good clients send requests without a pause, and ask /livez."""
    is_over = threading.Event()
    numbers = count()
    times: list[float] = []

    def work(_: int) -> int:
        failed = 0
        while not is_over.is_set():
            start = time.perf_counter()
            failed += not _ask(port, bodies[next(numbers) % len(bodies)])
            times.append(time.perf_counter() - start)
        return failed

    def probe() -> float:
        longest = 0.0
        while not is_over.is_set():
            start = time.perf_counter()
            assert _get(port, "/livez")[0] == 200
            longest = max(longest, time.perf_counter() - start)
            time.sleep(0.1)
        return longest

    with ThreadPoolExecutor(_N_GOOD_CLIENTS + 1) as pool:
        failures = [pool.submit(work, number) for number in range(_N_GOOD_CLIENTS)]
        probing = pool.submit(probe)
        time.sleep(2)
        start = time.perf_counter()
        status = _get(port, "/link", _body(text))[0] if text else 0
        seconds = time.perf_counter() - start
        time.sleep(8 if text is None else 2)
        is_over.set()
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return ({"status": status, "seconds": seconds} if text else {}) | {
        "good": len(times),
        "good_failed": sum(future.result() for future in failures),
        "good_p50_ms": 1000 * cuts[49],
        "good_p99_ms": 1000 * cuts[98],
        "good_max_ms": 1000 * max(times),
        "livez_max_ms": 1000 * probing.result(),
    }


def _body(text: str) -> bytes:
    return json.dumps({"texts": [text]}).encode()


def _get(port: int, path: str, body: bytes | None = None) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    method = "GET" if body is None else "POST"
    connection.request(method, path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def _worker_megabytes(port: int) -> float:
    """Return the memory of a worker process without mapped files."""
    metrics = _get(port, "/metrics")[1]
    values = [
        float(re.findall(rf"^{name} (.*)$", metrics, re.M)[0])
        for name in ("bioel_worker_bytes", "bioel_workers")
    ]
    return values[0] / values[1] / 2**20


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
    """Return the memory of a process and its descendants, without mapped files."""
    process = Path(f"/proc/{pid}")
    (kilobytes,) = re.findall(r"^RssAnon:\s+(\d+) kB", (process / "status").read_text(), re.M)
    threads = (process / "task").glob("*/children")
    children = [int(child) for thread in threads for child in thread.read_text().split()]
    return int(kilobytes) / 1024 + sum(map(_megabytes, children))

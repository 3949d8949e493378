"""The service with worker processes: texts that spin, get stuck or kill their worker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tiny import linking_nlp

from spacy_bioel.kb.build import build_kb
from spacy_bioel.loading import import_code
from spacy_bioel.types import Concept

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")

CODE = """
import os, re, signal
from spacy.language import Language

@Language.component("planted")
def planted(doc):
    if "spins" in doc.text:
        while True:
            pass
    if "stuck" in doc.text:
        re.match(r"(a|a)*$", "a" * 100 + "b")  # holds the interpreter's lock
    if "dies" in doc.text:
        os.kill(os.getpid(), signal.SIGKILL)
    if "exits" in doc.text:
        raise SystemExit(3)
    return doc
"""
WAIT = 120  # seconds after which a test has failed
Answer = tuple[int, Any, str | None]


class Running:
    """A running service."""

    def __init__(self, folder: Path, log: Path, *options: object) -> None:
        self.log = log
        command = [sys.executable, "-m", "spacy_bioel", "serve", folder / "nlp", "--port", "0"]
        command += ["--code", folder / "planted.py", *options]
        with log.open("w") as stderr:
            self.process = subprocess.Popen([str(word) for word in command], stderr=stderr)
        self.port = int(self.wait_for("http:").split()[0].rpartition(":")[2])
        self.wait_for("Ready")

    def wait_for(self, start: str, n: int = 1) -> str:
        """Wait until the log has n lines that begin so; return the last of them."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            lines = [line for line in self.log.read_text().split("\n")[:-1]]
            if len(found := [line for line in lines if line.startswith(start)]) >= n:
                return found[n - 1]
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def ask(self, path: str, body: Any = None) -> Answer:
        """RETURNS (tuple): Status, answer, and the Retry-After header."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        content = None if body is None else json.dumps(body)
        method = "GET" if body is None else "POST"
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read().decode()
        is_json = answer.headers["Content-Type"].startswith("application/json")
        found = json.loads(content) if is_json else content
        return answer.status, found, answer.headers["Retry-After"]

    def link(self, *texts: str) -> Answer:
        return self.ask("/link", {"texts": texts})

    def workers(self) -> list[int]:
        """Process ids of the workers; Python's resource tracker is not a worker."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = [int(pid) for task in tasks for pid in task.read_text().split()]
        return [n for n in children if b"spawn_main" in Path(f"/proc/{n}/cmdline").read_bytes()]

    def n_loaded(self) -> int:
        (line,) = [
            one for one in self.ask("/metrics")[1].split("\n") if one[:14] == "bioel_workers "
        ]
        return round(float(line.split()[1]))

    def wait_for_workers(self, n: int) -> None:
        end = time.monotonic() + WAIT
        while self.n_loaded() != n:
            assert time.monotonic() < end
            time.sleep(0.05)


def make_pipeline(folder: Path, id: str) -> None:
    """Save a pipeline with the planted pipe, its code, and its knowledge base."""
    (folder / "planted.py").write_text(CODE)
    build_kb([Concept(id, ("Naloxone",))], folder / "kb")
    import_code(str(folder / "planted.py"))
    nlp = linking_nlp(folder / "kb", mentions="dictionary", model={"dim": 16}, include_kb=False)
    nlp.add_pipe("planted", first=True)
    nlp.to_disk(folder / "nlp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("workers")
    make_pipeline(folder, "X:1")
    return folder


@pytest.fixture(scope="module")
def running(folder) -> Iterator[Running]:
    running = Running(folder, folder / "log", "--workers", 2, "--deadline", 2)
    yield running
    running.process.kill()
    running.process.wait()


def ids(answer: Any) -> list[list[str | None]]:
    return [[link["id"] for link in document["links"]] for document in answer["documents"]]


def codes(answer: Any) -> list[str | None]:
    return [document["error"] and document["error"]["code"] for document in answer["documents"]]


BAD = {"spins": "B560", "stuck": "B560", "dies": "B561", "exits": "B561"}


SLOW = ("stuck", "exits")


@pytest.mark.parametrize(
    "word", [pytest.param(word, marks=[pytest.mark.slow] * (word in SLOW)) for word in BAD]
)
def test_a_bad_text_fails_and_the_others_are_answered(running, word):
    running.wait_for_workers(2)
    n_lines = running.log.read_text().count("A worker process is replaced")
    with ThreadPoolExecutor(9) as pool:
        bad = pool.submit(running.link, f"Naloxone {word}.")
        good = list(pool.map(running.link, ["Naloxone."] * 8))
        status, problem, retry_after = bad.result()
    assert [(status, ids(answer)) for status, answer, _ in good] == [(200, [["X:1"]])] * 8
    assert (status, problem["code"], retry_after) == (503, BAD[word], None)
    assert "Do not send it again" in problem["message"]
    line = running.wait_for("A worker process is replaced", n_lines + 1)
    assert f"[{BAD[word]}]" in line or "[B56" in line
    assert word not in running.log.read_text() and "Naloxone" not in running.log.read_text()


def test_a_bad_text_between_others_of_a_request(running):
    status, answer, _ = running.link("Naloxone.", "It dies.", "Naloxone, Naloxone.", "It exits.")
    assert (status, codes(answer)) == (200, [None, "B561", None, "B561"])
    assert ids(answer) == [["X:1"], [], ["X:1", "X:1"], []]
    assert [document["text"] for document in answer["documents"]][1] is None


@pytest.mark.slow
def test_what_needs_no_worker_is_answered_while_all_spin(running):
    running.wait_for_workers(2)
    with ThreadPoolExecutor(4) as pool:
        texts = [f"{n} spins.{' ' * 10_001}" for n in range(2)]  # too long for a common batch
        spinning = [pool.submit(running.link, text) for text in texts]
        time.sleep(0.5)
        for _ in range(3):
            for path in ("/livez", "/readyz", "/concepts/X:1", "/search?q=naloxone", "/info"):
                assert running.ask(path)[0] == 200
        assert [future.result()[1]["code"] for future in spinning] == ["B560"] * 2
    assert running.link("Naloxone.")[0] == 200
    assert running.ask("/info")[1]["limits"]["deadline"] == 2


@pytest.mark.slow
def test_a_worker_that_is_killed_from_outside_is_replaced(running):
    running.wait_for_workers(2)
    before = running.workers()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    answers = [running.link("Naloxone.") for _ in range(3)]  # of which none is to blame
    assert [status for status, _, _ in answers] == [200] * 3
    running.wait_for_workers(2)
    assert set(running.workers()).isdisjoint(before)


@pytest.mark.slow
def test_metrics_count_the_texts_of_all_workers(running):
    def counted(name: str) -> float:
        lines = running.ask("/metrics")[1].split("\n")
        return sum(float(line.split()[1]) for line in lines if line.startswith(name))

    names = ('bioel_texts_total{outcome="linked"}', 'bioel_texts_total{outcome="failed"}')
    before = [counted(name) for name in names]
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(running.link, ["Naloxone."] * 4 + ["It dies."]))
    assert [counted(name) - n for name, n in zip(names, before, strict=True)] == [4, 1]
    running.wait_for_workers(2)
    assert counted("bioel_worker_bytes") > 50_000_000


@pytest.mark.slow
def test_a_changed_knowledge_base_reaches_all_workers(folder, tmp_path):
    kb = tmp_path / "kb"
    make_pipeline(tmp_path, "X:1")
    running = Running(tmp_path, tmp_path / "log", "--workers", 2)

    def all_ids() -> set[str | None]:
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: running.link(*["Naloxone."] * 20), range(16)))
        assert [status for status, _, _ in answers] == [200] * 16
        return {id for _, answer, _ in answers for (id,) in ids(answer)}

    running.wait_for_workers(2)
    build_kb([Concept("X:2", ("Naloxone",))], kb)
    assert all_ids() == {"X:1"}
    running.process.send_signal(signal.SIGHUP)
    running.wait_for("Reloaded the knowledge base")
    assert all_ids() == {"X:2"}
    assert running.ask("/concepts/X:2")[0] == 200
    # A worker that is replaced after another change opens the new state, and brings it to all.
    build_kb([Concept("X:3", ("Naloxone",))], kb)
    running.link("It dies.")
    running.wait_for_workers(2)
    all_ids()
    assert all_ids() == {"X:3"}
    assert running.ask("/concepts/X:3")[0] == 200
    running.process.terminate()
    assert running.process.wait(30) == 0


@pytest.mark.slow
def test_the_end_while_texts_spin(folder):
    running = Running(folder, folder / "log of end", "--workers", 1, "--deadline", 1_000)
    workers = running.workers()
    with ThreadPoolExecutor(2) as pool:
        spinning = [pool.submit(running.link, f"{n} stuck.") for n in (1, 2)]
        time.sleep(1)
        running.process.terminate()
        answers = [future.result() for future in spinning]
    assert running.process.wait(30) == 0
    assert [(status, found["code"]) for status, found, _ in answers] == [(503, "B563")] * 2
    assert len(workers) == 1 and not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert running.log.read_text().endswith("Ended.\n")


@pytest.mark.slow
def test_workers_end_if_the_service_is_killed(folder):
    running = Running(folder, folder / "log of kill", "--workers", 1, "--deadline", 1)
    workers = running.workers()
    with ThreadPoolExecutor(1) as pool:
        spinning = pool.submit(running.link, "It is stuck.")
        time.sleep(0.3)
        running.process.kill()
        assert isinstance(spinning.exception(), OSError)
    running.process.wait()
    end = time.monotonic() + WAIT
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
def test_workers_that_cannot_load(folder, tmp_path):
    code = "import os, multiprocessing\nif multiprocessing.current_process().name != 'MainProcess':"
    (tmp_path / "dies.py").write_text(f"{code}\n    os._exit(7)\n")
    command = [sys.executable, "-m", "spacy_bioel", "serve", str(folder / "kb"), "--port", "0"]
    command += ["--code", str(tmp_path / "dies.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 2
    assert "error: [B562] A worker process died (exit status 7) before the" in done.stderr

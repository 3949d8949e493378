"""Requests share batches in turns, and each gets its own answers or errors."""

from collections.abc import Iterator
from concurrent.futures import Future
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
import spacy

from spacy_bioel.plugins.service.service import Service
from spacy_bioel.plugins.service.worker import Job, LoadedPipeline, WorkerLost

WAIT = 60  # seconds after which a test has failed


class Letters(LoadedPipeline):
    """A pipeline of letters, whose knowledge base is the number of the version."""

    setting = ""
    kb: Any = SimpleNamespace(fingerprint="1")

    def __init__(self, paused: "Paused") -> None:
        super().__init__(spacy.blank)
        self.paused = paused
        self.meta = {}

    def load(self) -> None:
        self.paused.n_loads += 1

    def set_kb(self, setting: Any) -> None:
        self.kb = self.paused._kb

    def link(self, jobs: list[Job]) -> list[Any]:
        items = [str(job.document[0]) for job in jobs]
        self.paused.batches.append("".join(item[:9] for item in items))
        self.paused.inside.set()
        assert self.paused.go_on.wait(WAIT)
        if "!" in items:
            raise ValueError("a bang")
        if "k" in items:  # the knowledge base is reloaded while this batch is linked
            self.paused._kb = SimpleNamespace(fingerprint="2")
        if "#" in items:
            self.is_lost = True
            raise WorkerLost("signal 9", "[B560] too slow", is_suspect=True)
        return [
            SimpleNamespace(row=item.upper() + self.kb.fingerprint.replace("1", ""))
            for item in items
        ]


class Paused(Service):
    """A service of letters that waits for `go_on` in the middle of its first batch."""

    texts_per_batch = 4

    def __init__(self, *, room: int = 100) -> None:
        super().__init__(spacy.blank, max_characters=100)
        self._make = lambda: Letters(self)
        self.characters_per_batch = room
        self.batches: list[str] = []
        self.n_loads = 0
        self.inside, self.go_on = Event(), Event()

    def ask(self, items: list[str]) -> Future[list[Any]]:
        return self.submit([Job((item, None)) for item in items])

    def begin(self) -> Future[list[Any]]:
        """Start a batch, so that what comes now has to wait."""
        self.start()
        first = self.ask(["."])
        assert self.inside.wait(WAIT)
        return first


@pytest.fixture()
def paused(request) -> Iterator[Paused]:
    paused = Paused(room=getattr(request, "param", 100))
    yield paused
    paused.go_on.set()
    paused.close()


def results(*futures: Future[Any]) -> list[Any]:
    return [[answer.row for answer in future.result(WAIT)] for future in futures]


def test_requests_take_turns_and_get_their_results_in_order(paused):
    first = paused.begin()
    others = [paused.ask(list(letters)) for letters in ("abcde", "xy", "")]
    assert paused.waiting == 7
    paused.go_on.set()
    assert results(first, *others) == [["."], ["A", "B", "C", "D", "E"], ["X", "Y"], []]
    assert paused.batches == [".", "axby", "cde"]


@pytest.mark.parametrize("paused", [3], indirect=True)
def test_a_batch_is_full_at_a_size(paused):
    paused.begin()
    others = [paused.ask([letters]) for letters in ("aa", "bb", "cccc", "d")]
    paused.go_on.set()
    assert results(*others) == [["AA"], ["BB"], ["CCCC"], ["D"]]
    assert paused.batches == [".", "aabb", "cccc", "d"]


def test_what_is_cancelled_is_dropped(paused):
    paused.begin()
    one, other = paused.ask(["a", "b"]), paused.ask(["c"])
    assert one.cancel()
    paused.go_on.set()
    assert results(other) == [["C"]]
    assert paused.batches == [".", "c"]


def test_an_error_is_that_of_the_batch_and_the_thread_goes_on(paused):
    paused.begin()
    failing = paused.ask(list("!abcde"))
    paused.go_on.set()
    assert str(failing.exception(WAIT)) == "a bang"
    assert results(paused.ask(["f"])) == [["F"]]
    assert paused.batches == [".", "!abc", "f"]


def test_requests_wait_for_the_pipeline_and_get_its_error():
    go_on = Event()

    def load() -> Any:
        assert go_on.wait(WAIT)
        raise OSError("no such model")

    service = Service(load, max_characters=4)
    service.start()
    early = service.submit([Job(("a", None))])
    assert not early.done() and not service.is_ready
    go_on.set()
    service.wait()
    late = service.submit([Job(("b", None))])
    assert [str(future.exception(WAIT)) for future in (early, late)] == ["no such model"] * 2
    assert (service.is_ready, str(service.failure)) == (False, "no such model")


def test_closing_ends_all_requests(paused):
    first = paused.begin()
    left = paused.ask(["a"])
    closing = Thread(target=paused.close)
    closing.start()
    assert str(left.exception(WAIT)).startswith("[B563]")
    assert str(first.exception(WAIT)).startswith("[B563]")
    paused.go_on.set()
    closing.join(WAIT)
    assert paused.batches == ["."]
    assert str(paused.ask(["b"]).exception(WAIT)).startswith("[B563]")


def test_texts_of_a_lost_batch_are_linked_alone(paused):
    """Only the text that is lost again fails, and it is not linked a third time."""
    notes: list[str] = []
    paused.notify = notes.append
    paused.begin()
    one, other = paused.ask(["a", "#", "b"]), paused.ask(["c"])
    paused.go_on.set()
    other.result(WAIT)
    rows = [answer.row for answer in one.result(WAIT)]
    assert (rows[0], rows[2]) == ("A", "B") and b'"code":"B560","message":"too slow"' in rows[1]
    assert results(paused.ask(["d"])) == [["D"]]
    assert paused.batches[:2] == [".", "ac#b"] and sorted(paused.batches[2:]) == list("#abcd")
    assert (paused.n_loads, len(notes)) == (3, 2)
    assert (
        notes[0] == "A worker process is replaced [B560]; its batch had 4 texts with 4 characters."
    )


def test_long_texts_are_alone(paused):
    paused.characters_per_batch = 100_000
    paused.begin()
    futures = [paused.ask(["a", "l" * 10_001, "b"]), paused.ask(["m" * 10_001]), paused.ask(["c"])]
    paused.go_on.set()
    for future in futures:
        future.result(WAIT)
    assert paused.batches == [".", "a", "m" * 9, "c", "l" * 9, "b"]


def test_all_answers_to_a_request_are_from_one_knowledge_base(paused):
    """Those from the old one are made again; requests that are complete with it are answered."""
    paused.begin()
    complete, split, late = paused.ask(["z"]), paused.ask(list("akcde")), paused.ask(["f"])
    paused.go_on.set()
    assert results(complete, late) == [["Z"], ["F"]]
    assert results(split) == [["A2", "K2", "C2", "D2", "E2"]]
    assert paused.batches == [".", "zafk", "cde", "ak"]

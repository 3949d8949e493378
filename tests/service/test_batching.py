from collections.abc import Iterator
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any

import pytest
import spacy

from spacy_bioel.service.service import Job, Service

WAIT = 60  # seconds after which a test has failed


class Paused(Service):
    """A service of letters that waits for `go_on` in the middle of its first batch."""

    texts_per_batch = 4

    def __init__(self, *, room: int = 100) -> None:
        super().__init__(spacy.blank, max_characters=100)
        self.characters_per_batch = room
        self.batches: list[str] = []
        self.inside, self.go_on = Event(), Event()

    def _load_and_try(self) -> None: ...

    def _link_batch(self, jobs: list[Job]) -> list[Any]:
        items = [str(job.document[0]) for job in jobs]
        self.batches.append("".join(items))
        self.inside.set()
        assert self.go_on.wait(WAIT)
        if "!" in items:
            raise ValueError("a bang")
        return [item.upper() for item in items]

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
    return [future.result(WAIT) for future in futures]


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


def test_closing_ends_after_the_batch(paused):
    first = paused.begin()
    left = paused.ask(["a"])
    closing = Thread(target=paused.close)
    closing.start()
    while not paused.ask(["b"]).cancelled():  # until it is being closed
        pass
    paused.go_on.set()
    closing.join(WAIT)
    assert results(first) == [["."]] and left.cancelled()
    assert paused.batches == ["."]

from collections.abc import Iterator
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any

import pytest

from spacy_bioel.service.service import Batcher

WAIT = 60  # seconds after which a test has failed


class Paused:
    """A batcher of letters that waits for `go_on` in the middle of its first batch."""

    def __init__(self, *, most: int = 4, room: int = 100) -> None:
        self.batches: list[str] = []
        self.inside, self.go_on = Event(), Event()
        self.batcher: Batcher[str, str] = Batcher(lambda: self.work, size=len, most=most, room=room)

    def work(self, items: list[str]) -> list[str]:
        self.batches.append("".join(items))
        self.inside.set()
        assert self.go_on.wait(WAIT)
        if "!" in items:
            raise ValueError("a bang")
        return [item.upper() for item in items]

    def begin(self) -> Future[list[str]]:
        """Start a batch, so that what comes now has to wait."""
        self.batcher.start()
        first = self.batcher.submit(["."])
        assert self.inside.wait(WAIT)
        return first


@pytest.fixture()
def paused(request) -> Iterator[Paused]:
    paused = Paused(room=getattr(request, "param", 100))
    yield paused
    paused.go_on.set()
    paused.batcher.close()


def results(*futures: Future[Any]) -> list[Any]:
    return [future.result(WAIT) for future in futures]


def test_requests_take_turns_and_get_their_results_in_order(paused):
    first = paused.begin()
    others = [paused.batcher.submit(list(letters)) for letters in ("abcde", "xy", "")]
    assert paused.batcher.waiting == 7
    paused.go_on.set()
    assert results(first, *others) == [["."], ["A", "B", "C", "D", "E"], ["X", "Y"], []]
    assert paused.batches == [".", "axby", "cde"]


@pytest.mark.parametrize("paused", [3], indirect=True)
def test_a_batch_is_full_at_a_size(paused):
    paused.begin()
    others = [paused.batcher.submit([letters]) for letters in ("aa", "bb", "cccc", "d")]
    paused.go_on.set()
    assert results(*others) == [["AA"], ["BB"], ["CCCC"], ["D"]]
    assert paused.batches == [".", "aabb", "cccc", "d"]


def test_what_is_cancelled_is_dropped(paused):
    paused.begin()
    one, other = paused.batcher.submit(["a", "b"]), paused.batcher.submit(["c"])
    assert one.cancel()
    paused.go_on.set()
    assert results(other) == [["C"]]
    assert paused.batches == [".", "c"]


def test_an_error_is_that_of_the_batch_and_the_thread_goes_on(paused):
    paused.begin()
    failing = paused.batcher.submit(list("!abcde"))
    paused.go_on.set()
    assert str(failing.exception(WAIT)) == "a bang"
    assert results(paused.batcher.submit(["f"])) == [["F"]]
    assert paused.batches == [".", "!abc", "f"]


def test_requests_wait_for_what_is_prepared_and_get_its_error():
    go_on = Event()

    def prepare() -> Any:
        assert go_on.wait(WAIT)
        raise OSError("no such model")

    batcher: Batcher[str, str] = Batcher(prepare, size=len, most=4, room=4)
    batcher.start()
    early = batcher.submit(["a"])
    assert not early.done() and not batcher.is_ready
    go_on.set()
    batcher.wait()
    late = batcher.submit(["b"])
    assert [str(future.exception(WAIT)) for future in (early, late)] == ["no such model"] * 2
    assert (batcher.is_ready, str(batcher.failure)) == (False, "no such model")


def test_closing_ends_after_the_batch(paused):
    first = paused.begin()
    left = paused.batcher.submit(["a"])
    closing = Thread(target=paused.batcher.close)
    closing.start()
    while not paused.batcher.submit(["b"]).cancelled():  # until it is being closed
        pass
    paused.go_on.set()
    closing.join(WAIT)
    assert results(first) == [["."]] and left.cancelled()
    assert paused.batches == ["."]

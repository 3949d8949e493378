"""Dynamic batching: many callers, one thread that works for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[list[Item]], list[Result]]


@dataclass(eq=False, slots=True)
class _Request(Generic[Item, Result]):
    """Items that one caller waits for, of which the first `taken` are in a batch or done."""

    items: list[Item]
    taken: int = 0
    results: dict[int, Result] = field(default_factory=dict)
    future: Future[list[Result]] = field(default_factory=Future)

    @property
    def waiting(self) -> int:
        return len(self.items) - self.taken

    def end(self, error: Exception | None = None) -> None:
        """Give the caller the results, or an error."""
        if self.future.done() or not self.future.set_running_or_notify_cancel():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result([self.results[i] for i in range(len(self.items))])


class Batcher(Generic[Item, Result]):
    """A thread that takes all that waits, up to a bound, and works on it at once.

    An item that comes alone is not kept waiting for others. Requests take turns, item by item, so
    that a small one does not wait for the end of a large one.

    prepare (Callable): Returns the function that works, from items to as many results; called once,
        in the thread, while requests may already wait.
    size (Callable): Size of an item.
    most (int): Items a batch.
    room (int): Size at which a batch is full.
    """

    def __init__(
        self,
        prepare: Callable[[], Work[Item, Result]],
        *,
        size: Callable[[Item], int],
        most: int,
        room: int,
    ) -> None:
        self.failure: Exception | None = None  # of `prepare`
        self._prepared = Event()
        self._prepare = prepare
        self._size = size
        self._most = most
        self._room = room
        self._requests: deque[_Request[Item, Result]] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="batches", daemon=True)

    def start(self) -> None:
        """Begin to prepare; returns at once."""
        self._thread.start()

    def wait(self) -> None:
        """Wait until the thread works, or has failed to prepare."""
        self._prepared.wait()

    @property
    def is_ready(self) -> bool:
        """Whether the thread works."""
        return self._prepared.is_set() and self.failure is None

    def close(self) -> None:
        """End the thread after its batch; requests that still wait are cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Number of items that no batch has taken yet."""
        with self._changed:
            return sum(request.waiting for request in self._requests)

    def submit(self, items: list[Item]) -> Future[list[Result]]:
        """Ask for the results of items, in their order.

        RETURNS (Future): Who cancels it, no longer waits, and its items are dropped. Its exception
            is that of `prepare` or of the work.
        """
        request: _Request[Item, Result] = _Request(items)
        with self._changed:
            if self.failure is not None or not items:
                request.end(self.failure)
            elif self._closed:
                request.future.cancel()
            else:
                self._requests.append(request)
                self._changed.notify()
        return request.future

    def _run(self) -> None:
        try:
            work = self._prepare()
        except Exception as error:  # told to all who wait, and to whoever asks for `failure`
            with self._changed:
                self.failure = error
                while self._requests:
                    self._requests.popleft().end(error)
            return
        finally:
            self._prepared.set()
        while batch := self._take():
            _work_on(batch, work)
        for request in self._requests:
            request.future.cancel()

    def _take(self) -> list[tuple[_Request[Item, Result], int]]:
        """Wait for items, and take some.

        RETURNS (list): Requests and positions in them; empty when closed.
        """
        batch: list[tuple[_Request[Item, Result], int]] = []
        size = 0
        with self._changed:
            while not batch and not self._closed:
                self._changed.wait_for(lambda: self._requests or self._closed)
                while self._requests and len(batch) < self._most and size < self._room:
                    request = self._requests.popleft()
                    if request.future.done():  # cancelled, or an earlier batch of it failed
                        continue
                    batch.append((request, request.taken))
                    size += self._size(request.items[request.taken])
                    request.taken += 1
                    if request.waiting:
                        self._requests.append(request)
        return batch


def _work_on(batch: list[tuple[_Request[Item, Result], int]], work: Work[Item, Result]) -> None:
    try:
        results = work([request.items[position] for request, position in batch])
    except Exception as error:  # the callers' answer; the thread goes on
        for request, _ in batch:
            request.end(error)
        return
    for (request, position), result in zip(batch, results, strict=True):
        request.results[position] = result
        if len(request.results) == len(request.items):
            request.end()

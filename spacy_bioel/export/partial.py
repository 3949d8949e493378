"""Keep the links of a run that may be interrupted, so that another run can continue it.

The partial file lies next to the output until the output is complete. It has one JSON line about
the run, then one per linked document, and does not depend on the format of the output.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.rows import Item, LinkedText

SUFFIX = ".partial"
_LINKED_TEXT = TypeAdapter(LinkedText)  # its JSON restores all values
LinkedTexts = Generator[LinkedText, None, None]


class PartialLinks:
    """The links of the documents that are done.

    path (Path): The partial file, which is created when linking starts.
    resume (bool): Continue the run that left the file, if there is one.
    RAISES BioelError: [B551] if there is a file and `resume` is false.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self._n_done = 0
        self._about: dict[str, str] = {}
        lines = self._read_lines()
        self._earlier = json.loads(next(lines, b"null"))
        self.n_earlier = sum(1 for _ in lines)  # documents of the run that left the file
        if self.n_earlier and not resume:
            raise BioelError(Errors.B551.format(path=path, n=self.n_earlier))

    @property
    def n_kept(self) -> int:
        """Number of documents in the file."""
        return max(self.n_earlier, self._n_done)

    def check(self, about: Mapping[str, str]) -> None:
        """Note what the links depend on besides the documents.

        RAISES BioelError: [B552] if the earlier run differs in it.
        """
        self._about = dict(about)
        for what, found in about.items():
            if self.n_earlier and self._earlier.get(what) != found:
                raise BioelError(Errors.B552.format(path=self.path, what=what))

    def link(
        self, items: Iterable[Item], link_all: Callable[[Iterable[Item]], LinkedTexts]
    ) -> LinkedTexts:
        """Yield the links of the earlier run, then link the other documents.

        RAISES BioelError: [B553] if the documents are not those of the earlier run.
        """
        remaining = iter(items)
        waiting: deque[bytes] = deque()

        def watched() -> Iterator[Item]:
            for item in remaining:
                waiting.append(_digest(item))
                yield item

        for line in islice(self._read_lines(), 1, None):
            digest, _, values = line.partition(b" ")
            item = next(remaining, None)
            if item is None or _digest(item) != digest:
                raise BioelError(Errors.B553.format(path=self.path, n=self._n_done + 1))
            self._n_done += 1
            yield _LINKED_TEXT.validate_json(values)
        linked: LinkedText
        results = link_all(watched())
        with closing(results), self._append() as file:
            for linked in results:
                yield linked  # documents that cannot be written are not kept
                file.write(b"%b %b\n" % (waiting.popleft(), _LINKED_TEXT.dump_json(linked)))
                file.flush()
                self._n_done += 1

    def _read_lines(self) -> Iterator[bytes]:
        """Yield the complete lines; the end may be torn if the run was killed."""
        self._size = 0
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"}\n"):
                    return
                yield line
                self._size += len(line)

    def _append(self) -> BinaryIO:
        """Open the file at the end of its last complete line."""
        file = self.path.open("r+b" if self.path.exists() else "w+b")
        file.seek(self._size if self._n_done else 0)
        file.truncate()
        if not self._n_done:
            file.write(json.dumps(self._about).encode() + b"\n")
        return file


def _digest(item: object) -> bytes:
    return blake2b(repr(item).encode("utf8", "surrogatepass"), digest_size=12).hexdigest().encode()

"""Save links during a run, so that if the run is interrupted, another can continue it.

The partial file stays next to the output until the output is complete. It has one JSON line about
the run, then one per linked document, whatever the output format.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter
from spacy.language import Language
from typer import Exit

from spacy_bioel import __version__
from spacy_bioel.cli.console import count_of, show_note
from spacy_bioel.cli.inputs import STDIN
from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.export.rows import Item, LinkedText, Totals
from spacy_bioel.files import fingerprint_folder, is_stream
from spacy_bioel.linking.pipe import Linker

_LINKED_TEXT = TypeAdapter(LinkedText)  # serialises to and from JSON
_START = b'{"partial output of": "bioel link"'  # marks our files; any other file is left alone
LinkedTexts = Generator[LinkedText, None, None]


class PartialLinks:
    """A partial file with the links of all documents that a run has finished.

    path (Path): The partial file, which is created when linking starts.
    resume (bool): Continue the earlier run if there is one.
    RAISES BioelError: [B551] if the file has links but `resume` is False, [B556] if it is not ours.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self._n_done = 0
        self._about: dict[str, str] = {}
        with suppress(FileNotFoundError), path.open("rb") as file:
            if not _START.startswith(file.read(len(_START))):  # it may be incomplete
                raise BioelError(Errors.B556.format(path=path))
        lines = self._read_lines()
        self._earlier = json.loads(next(lines, b"null"))
        self.n_earlier = sum(1 for _ in lines)  # documents from the earlier run
        if self.n_earlier and not resume:
            raise BioelError(Errors.B551.format(path=path, n=self.n_earlier))

    @property
    def n_kept(self) -> int:
        """Number of documents in the partial file."""
        return max(self.n_earlier, self._n_done)

    def check(self, about: Mapping[str, str]) -> None:
        """Record this run's options and files, and check that any earlier run had the same ones."""
        self._about = dict(about)
        for what, found in about.items():
            if self.n_earlier and self._earlier.get(what) != found:
                raise BioelError(Errors.B552.format(path=self.path, what=what))

    def link(
        self, items: Iterable[Item], link_all: Callable[[Iterable[Item]], LinkedTexts]
    ) -> LinkedTexts:
        """Yield the earlier run's links, then link the remaining documents."""
        remaining = iter(items)
        waiting: deque[str] = deque()

        def watched() -> Iterator[Item]:
            for item in remaining:
                waiting.append(_digest(item))
                yield item

        for line in islice(self._read_lines(), 1, None):
            digest, _, values = line.partition(b" ")
            item = next(remaining, None)
            if item is None or _digest(item) != digest.decode():
                raise BioelError(Errors.B553.format(path=self.path, n=self._n_done + 1))
            self._n_done += 1
            yield _LINKED_TEXT.validate_json(values)
        with closing(link_all(watched())) as results, self.path.open("ab") as file:
            file.truncate(self._size if self._n_done else 0)  # cut off an incomplete last line
            if not self._n_done:
                file.write(json.dumps(json.loads(_START + b"}") | self._about).encode() + b"\n")
            for linked in results:
                yield linked  # documents that cannot be written are not kept
                values = _LINKED_TEXT.dump_json(linked)
                file.write(b"%s %s\n" % (waiting.popleft().encode(), values))
                file.flush()
                self._n_done += 1

    def _read_lines(self) -> Iterator[bytes]:
        """Yield only complete lines: a killed run may have left a partial one at the end."""
        self._size = 0
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"}\n"):
                    return
                yield line
                self._size += len(line)


def _digest(*values: object) -> str:
    return blake2b(repr(values).encode("utf8", "surrogatepass"), digest_size=12).hexdigest()


def partial_links(outputs: Iterable[str], *, resume: bool) -> PartialLinks | None:
    """Open the partial file for a run; return None if an output is stdout or a pipe."""
    for name in outputs:
        if name == STDIN or is_stream(Path(name)):
            if resume:
                raise BioelError(Errors.B550.format(path=name))
            return None
    first = Path(next(iter(outputs)))
    kept = PartialLinks(first.with_name(f"{first.name}.partial"), resume=resume)
    if resume and not kept.n_earlier:
        show_note(Warnings.W350.format(path=kept.path))
    return kept


def check_run(kept: PartialLinks, nlp: Language, code: str | None, **options: object) -> None:
    """Check that the earlier run had the same options and files."""
    fingerprints = [nlp.config.to_str()]
    fingerprints += [p.kb.fingerprint for _, p in nlp.pipeline if isinstance(p, Linker)]
    if nlp.path is not None:
        fingerprints.append(fingerprint_folder(nlp.path))
    about = {f"--{name}": str(value) for name, value in options.items()}
    about |= {"--code": _digest(code and Path(code).read_bytes()), "MODEL": _digest(fingerprints)}
    kept.check(about | {"the version of spacy-bioel": __version__})
    if kept.n_earlier:
        n_documents = count_of(kept.n_earlier, "linked document")
        show_note(f"Continuing after the {n_documents} in {kept.path}.")


@contextmanager
def counting(kept: PartialLinks | None) -> Iterator[Totals]:
    """Count documents; after an error or Ctrl+C, report how many were kept."""
    totals = Totals()
    try:
        yield totals
    except BaseException as error:
        if kept is not None and kept.n_kept:
            n_kept = count_of(kept.n_kept, "linked document")
            show_note(f"{kept.path} has {n_kept}. To continue, add --resume to the command.")
        elif kept is not None:
            kept.path.unlink(missing_ok=True)
        if not isinstance(error, KeyboardInterrupt) or not totals.documents:
            raise
        if kept is None:
            show_note(f"Interrupted after {count_of(totals.documents, 'document')}.")
        raise Exit(130) from None  # `main` then prints nothing
    if kept is not None:
        kept.path.unlink(missing_ok=True)

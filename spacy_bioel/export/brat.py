"""Linked documents as BRAT standoff: a folder with NAME.txt and NAME.ann for each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from spacy_bioel.distributed.rows import LinkedText
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.links import Write, check_ids, linked_candidates, numbered
from spacy_bioel.storage.atomic import replacing_folder
from spacy_bioel.types import Link, preferred_name

_NO_LABEL = "Mention"
_NOT_IN_LABELS = re.compile(r"[^\w-]")
_NOT_IN_FILE_NAMES = re.compile(r'[\x00-\x1f/\\:*?"<>|%]')
_LINE_END = re.compile(r"\s*[\r\n]\s*")
# BRAT wants VOCABULARY:ID; these two are written without.
_BARE = ((re.compile(r"C\d{7,8}"), "UMLS:"), (re.compile(r"CVCL_\w+"), "Cellosaurus:"))


@contextmanager
def writing_brat(folder: Path) -> Iterator[Write]:
    """Write a folder of documents, which gets its name only on success.

    The name of a document is its id, with "%2F" for a character such as "/" that file names cannot
    have; one that is there already gets "-2". The ids of a mention are normalisations, lines
    "N1<tab>Reference T1 MESH:D003920<tab>preferred name".

    YIELDS (Callable[[LinkedText], None]): Writes one document; none that failed.
    RAISES BioelError: [B341] when the folder is there and not empty, [B343] on a concept id that
        would be divided.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BioelError(Errors.B341.format(path=folder))
    numbers = count(1)
    with replacing_folder(folder) as fresh:

        def write(one: LinkedText) -> None:
            number = next(numbers)
            if one.error is None:
                one = numbered(one, number)
                text, name = one.text or "", _free_name(fresh, str(one.id))
                _write(fresh / f"{name}.txt", text)
                _write(fresh / f"{name}.ann", "".join(_lines(text, one.links)))

        yield write


def _write(path: Path, content: str) -> None:
    with path.open("x", encoding="utf8", newline="\n") as file:
        file.write(content)


def _free_name(folder: Path, id: str) -> str:
    name = _NOT_IN_FILE_NAMES.sub(lambda found: f"%{ord(found.group()):02X}", id)
    others = (f"{name}-{number}" for number in count(2))
    free = name
    while (folder / f"{free}.ann").exists():
        free = next(others)
    return free


def _lines(text: str, links: tuple[Link, ...]) -> Iterator[str]:
    normalizations = count(1)
    for number, link in enumerate(links, start=1):
        check_ids(link.ids, format="BRAT")
        label = _NOT_IN_LABELS.sub("_", link.label) or _NO_LABEL
        fragments = [*_fragments(text, link.start, link.end)] or [(link.start, link.end)]
        offsets = ";".join(f"{start} {end}" for start, end in fragments)
        words = " ".join(_on_one_line(text[start:end]) for start, end in fragments)
        yield f"T{number}\t{label} {offsets}\t{words}\n"
        names = {c.id: preferred_name(c.kb, c.id) or c.name for c in linked_candidates(link)}
        for id in link.ids:
            name = _on_one_line(names.get(id, ""))
            yield f"N{next(normalizations)}\tReference T{number} {_reference(id)}\t{name}\n"


def _fragments(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Parts of a mention on each of its lines: BRAT does not show one across lines."""
    for found in _LINE_END.finditer(text, start, end):
        if found.start() > start:
            yield start, found.start()
        start = max(start, found.end())
    if start < end:
        yield start, end


def _on_one_line(text: str) -> str:
    return re.sub(r"[\t\n\r]", " ", text)


def _reference(id: str) -> str:
    return next((prefix + id for pattern, prefix in _BARE if pattern.fullmatch(id)), id)

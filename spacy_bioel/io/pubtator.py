"""PubTator: title and abstract rows, then one tab-separated row a mention."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.ids import split_ids
from spacy_bioel.io.offsets import check_offsets, check_surface
from spacy_bioel.io.open import numbered_lines
from spacy_bioel.types import AnnotatedText, Mention

_TEXT_ROW = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.DOTALL)
_Row = tuple[int, str]


def read_pubtator(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[AnnotatedText]:
    """Stream the documents of a PubTator file; blank lines separate them.

    The text is the title, a space, and the abstract. Composite ids ("A|B", "A+B") become
    several ids, "-1" none; nested and overlapping mentions stay; relation rows are skipped.

    path (str | PathLike): The file.
    prefix (str): Vocabulary of ids that name none, e.g. "MESH".
    YIELDS (AnnotatedText): One document; ids may repeat, as they do in the NCBI corpus.
    RAISES BioelError: [B105]-[B109], with file and line; those of `numbered_lines`.
    """
    block: list[_Row] = []
    for number, line in numbered_lines(path):
        if line.strip():
            block.append((number, line))
        elif block:
            yield _read_document(path, block, prefix)
            block = []
    if block:
        yield _read_document(path, block, prefix)


def _read_document(path: str | os.PathLike[str], block: list[_Row], prefix: str) -> AnnotatedText:
    """One document from its title row, its abstract row and the mentions below them."""
    doc_id, title = _text_row(path, block, "t")
    abstract_id, abstract = _text_row(path, block[1:] or block, "a")
    _check_id(path, block[1][0], doc_id, abstract_id)
    text = f"{title} {abstract}"
    mentions = []
    for number, line in block[2:]:
        _check_id(path, number, doc_id, re.split(r"[|\t]", line, maxsplit=1)[0])
        mention = _read_mention(path, (number, line), text, prefix)
        if mention is not None:
            mentions.append(mention)
    return AnnotatedText(doc_id, text, tuple(mentions))


def _text_row(path: str | os.PathLike[str], block: list[_Row], kind: str) -> tuple[str, str]:
    """Document id and text of the title ("t") or abstract ("a") row that leads the block."""
    number, line = block[0]
    match = _TEXT_ROW.fullmatch(line)
    if match is None or match[2] != kind:
        raise BioelError(Errors.B108.format(path=path, line=number, kind=kind, row=line[:60]))
    return match[1].strip(), match[3]


def _check_id(path: str | os.PathLike[str], number: int, expected: str, found: str) -> None:
    if found.strip() != expected:
        raise BioelError(
            Errors.B109.format(path=path, line=number, expected=expected, found=found[:60])
        )


def _read_mention(
    path: str | os.PathLike[str], row: _Row, text: str, prefix: str
) -> Mention | None:
    """A mention from id, start, end, words, type, ids; None for a relation row."""
    number, line = row
    columns = line.split("\t")
    # A relation has its name where a mention has its start: "6794356  CID  D008094  D014262".
    if len(columns) in (4, 5) and not any(c.isdigit() for c in columns[1]):
        return None
    # The seventh column of BC5CDR spells out the parts of a composite mention.
    if len(columns) not in (6, 7):
        raise BioelError(Errors.B107.format(path=path, line=number, n=len(columns), row=line[:60]))
    try:
        start, end = int(columns[1]), int(columns[2])
    except ValueError:
        raise BioelError(Errors.B110.format(path=path, line=number, found=columns[1:3])) from None
    where = f"{path}, line {number}"
    check_offsets(text, start, end, where=where)
    check_surface(text[start:end], columns[3], start=start, end=end, where=where)
    return Mention(start, end, columns[4].strip(), split_ids(columns[5], prefix))

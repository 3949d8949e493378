"""PubTator: rows of title and abstract, then one tab-separated row per mention."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.io.open import open_text
from spacy_bioel.io.records import check_offsets, check_surface, split_ids
from spacy_bioel.types import AnnotatedText, Mention

_TEXT_ROW = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.DOTALL)
_Row = tuple[int, str]
_LOGGER = logging.getLogger(__name__)


def read_pubtator(
    path: str | os.PathLike[str],
    *,
    prefix: str = "",
    annotations: bool = True,
    skip: Callable[[BioelError], None] | None = None,
) -> Iterator[AnnotatedText]:
    """Stream the documents of a PubTator file; blank lines separate them.

    The text is the title, a space, and the abstract. Composite ids ("A|B", "A+B") become several
    ids, "-1" none, and neither has a row of five columns. Nested and overlapping mentions are kept,
    relation rows are skipped. A last row without a line end warns [W140], since it may be
    truncated.

    path (str | PathLike): PubTator file.
    prefix (str): Vocabulary of ids without a prefix, e.g. "MESH".
    annotations (bool): Whether to read the mentions; False also skips their checks.
    skip (Callable | None): Called with the error of a document, which is then left out. None:
        errors are raised.
    YIELDS (AnnotatedText): One document; ids may repeat, as they do in the NCBI corpus.
    RAISES BioelError: [B105]-[B110], [B140], with file and line; errors of `open_text`.
    """
    for block in _blocks(path, warn=annotations):
        try:
            text, rows = _read_text(path, block)
            found = [_read_mention(path, row, text.text, prefix) for row in rows if annotations]
        except BioelError as error:
            if skip is None:
                raise
            skip(error)
            continue
        yield replace(text, mentions=tuple(mention for mention in found if mention is not None))


def _blocks(path: str | os.PathLike[str], *, warn: bool) -> Iterator[list[_Row]]:
    """Numbered rows of each document, without line ends."""
    block: list[_Row] = []
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                block.append((number, line.rstrip("\r\n")))
            elif block:
                yield block
                block = []
    if block:
        if warn and "\t" in line and not line.endswith("\n"):
            _LOGGER.warning(Warnings.W140.format(path=path))
        yield block


def _read_text(path: str | os.PathLike[str], block: list[_Row]) -> tuple[AnnotatedText, list[_Row]]:
    """Read the title and abstract rows of a document. RETURNS (tuple): Document, other rows."""
    doc_id, title = _text_row(path, block, "t")
    abstract_id, abstract = _text_row(path, block[1:] or block, "a")
    _check_id(path, block[1][0], doc_id, abstract_id)
    for number, line in block[2:]:
        _check_id(path, number, doc_id, re.split(r"[|\t]", line, maxsplit=1)[0])
    return AnnotatedText(doc_id, f"{title} {abstract}"), block[2:]


def _text_row(path: str | os.PathLike[str], block: list[_Row], kind: str) -> tuple[str, str]:
    """Document id and text of the first row, which has to be the title ("t") or abstract ("a")."""
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
    """Read a mention from the columns id, start, end, words, type, ids; None for a relation row."""
    number, line = row
    columns = line.split("\t")
    # A relation has its name in the column of the start: "6794356  CID  D008094  D014262".
    if len(columns) in (4, 5) and not any(c.isdigit() for c in columns[1]):
        return None
    # The seventh column of BC5CDR has the parts of a composite mention; GNormPlus leaves the sixth
    # out where a mention has no id.
    if len(columns) not in (5, 6, 7):
        raise BioelError(Errors.B107.format(path=path, line=number, n=len(columns), row=line[:60]))
    try:
        start, end = int(columns[1]), int(columns[2])
    except ValueError:
        raise BioelError(Errors.B110.format(path=path, line=number, found=columns[1:3])) from None
    if len(columns) > 5 and not columns[5].strip():
        raise BioelError(Errors.B140.format(path=path, line=number, row=line[:60]))
    where = f"{path}, line {number}"
    check_offsets(text, start, end, where=where)
    check_surface(text[start:end], columns[3], start=start, end=end, where=where)
    return Mention(start, end, columns[4].strip(), split_ids("".join(columns[5:6]), prefix))

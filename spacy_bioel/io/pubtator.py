"""Reader for PubTator: a title row, an abstract row, then one tab-separated row per mention."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.io.open import Place, StrPath, check_words, open_text, parse_ids, skip_if_bad
from spacy_bioel.types import AnnotatedText, Mention

_TEXT_ROW = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.S)
_PlacedRow = tuple[Place, str]


def read_pubtator(
    path: StrPath, *, prefix: str = "", annotations: bool = True
) -> Iterator[AnnotatedText]:
    """Stream the documents in a PubTator file. Blank lines separate documents.

    The text is the title, a space, and the abstract. Composite ids ("A|B", "A+B") become several
    ids; the id "-1" or a row with five columns means a mention without an id. Nested and
    overlapping mentions are kept; relation rows are skipped. If the last row has no line end, a
    warning is logged [W140], because the file may be truncated.

    annotations (bool): Whether to read and check the mentions.
    YIELDS (AnnotatedText): Document ids may repeat, as in the NCBI corpus.
    """
    for block in _blocks(path, warn=annotations):
        with skip_if_bad(block[0][0]):
            yield _parse_block(block, prefix, annotations=annotations)


def _blocks(path: StrPath, *, warn: bool) -> Iterator[list[_PlacedRow]]:
    """Yield each document's rows, without line endings."""
    with open_text(path) as file:
        rows = ((Place(path, number), line) for number, line in enumerate(file, start=1))
        for has_text, group in groupby(rows, key=lambda row: bool(row[1].strip())):
            if has_text:
                block = list(group)
                last = block[-1][1]
                if warn and "\t" in last and not last.endswith("\n"):
                    LOGGER.warning(Warnings.W140.format(path=path))
                yield [(where, line.rstrip("\r\n")) for where, line in block]


def _parse_block(block: list[_PlacedRow], prefix: str, *, annotations: bool) -> AnnotatedText:
    doc_id, title = _text_row(*block[0], kind="t")
    abstract_id, abstract = _text_row(*block[min(1, len(block) - 1)], kind="a")
    rows = block[2:]
    ids = [abstract_id, *(re.split(r"[|\t]", line, maxsplit=1)[0] for _, line in rows)]
    for (where, _), row_id in zip(block[1:], ids, strict=True):
        if row_id.strip() != doc_id:
            raise BioelError(Errors.B109.format(where=where, expected=doc_id, found=row_id[:60]))
    text = f"{title} {abstract}"
    mentions = (_pubtator_mention(*row, text, prefix) for row in rows if annotations)
    return AnnotatedText(doc_id, text, tuple(filter(None, mentions)))


def _text_row(where: Place, line: str, *, kind: str) -> tuple[str, str]:
    """Parse a title row ("t") or abstract row ("a") into a document id and text."""
    match = _TEXT_ROW.fullmatch(line)
    if match is None or match[2] != kind:
        raise BioelError(Errors.B108.format(where=where, kind=kind, row=line[:60]))
    return match[1].strip(), match[3]


def _pubtator_mention(where: Place, line: str, text: str, prefix: str) -> Mention | None:
    """Parse a tab-separated row "id start end words type ids"; return None for a relation row."""
    columns = line.split("\t")
    # In a relation row, the second column is the relation's name: "6794356 CID D008094 D014262".
    if len(columns) in (4, 5) and not any(c.isdigit() for c in columns[1]):
        return None
    # BC5CDR has a seventh column with the parts of composite mentions. GNormPlus omits the sixth
    # column for mentions without an id.
    if len(columns) not in (5, 6, 7):
        raise BioelError(Errors.B107.format(where=where, n=len(columns), row=line[:60]))
    try:
        start, end = int(columns[1]), int(columns[2])
    except ValueError:
        raise BioelError(Errors.B110.format(where=where, found=columns[1:3])) from None
    if len(columns) > 5 and not columns[5].strip():
        raise BioelError(Errors.B140.format(where=where, row=line[:60]))
    check_words(text, [(start, end)], columns[3], where=where)
    return Mention(start, end, columns[4].strip(), parse_ids("".join(columns[5:6]), prefix))

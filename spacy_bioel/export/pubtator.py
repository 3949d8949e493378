"""Linked documents as PubTator: title and abstract, then a row a mention."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spacy_bioel.distributed.rows import LinkedText
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.links import TextFormat, check_ids
from spacy_bioel.types import Link

_NIL = "-"
# Tabs and all that some program takes for the end of a line.
_BREAKS = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_LINE_END = re.compile("\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s(?=[^\sa-z])")


def pubtator() -> TextFormat:
    """PubTator. The title is the first line, or if there is one line its first sentence. Offsets
    stay: each line end or tab becomes a space.
    """
    return TextFormat(_document)


def _document(one: LinkedText) -> str:
    """RAISES BioelError: [B342] on an id that would break the rows, [B343] on such a concept id."""
    id, text = str(one.id).strip(), one.text or ""
    if "|" in id or _BREAKS.search(id):
        raise BioelError(Errors.B342.format(id=one.id))
    border = _border(text, one.links)
    title, abstract = text[:border], text[border + 1 :]
    rows = [f"{id}|t|{_on_one_line(title)}", f"{id}|a|{_on_one_line(abstract)}"]
    rows += ["\t".join((id, *_columns(text, link))) for link in one.links]
    return "\n".join(rows) + "\n\n"


def _border(text: str, links: Sequence[Link]) -> int:
    """Offset of the character between title and abstract, which is in no mention."""
    for pattern in (_LINE_END, _SENTENCE_END):
        for found in pattern.finditer(text):
            if not any(link.start <= found.start() < link.end for link in links):
                return found.start()
    return len(text)


def _columns(text: str, link: Link) -> tuple[str, ...]:
    check_ids(link.ids, format="PubTator")
    words = _on_one_line(text[link.start : link.end])
    label = _on_one_line(link.label)
    return str(link.start), str(link.end), words, label, "|".join(link.ids) or _NIL


def _on_one_line(text: str) -> str:
    return _BREAKS.sub(" ", text)

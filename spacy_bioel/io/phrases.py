"""Corpora and dictionaries of bare names: BioSyn, MEDIC, AskAPatient, TwADR-L, COMETA."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import first_line, numbered_lines, read_json_object
from spacy_bioel.io.records import curie, one_record, split_ids, unique_names
from spacy_bioel.io.table import read_rows
from spacy_bioel.types import AnnotatedText, Concept, Mention

_CONCEPT_ROW = "pmid||start|end||type||mention||id"
_SPAN = re.compile(r"(\d+)\|(\d+)")
# Columns of COMETA; `_COMETA_IDS` is the gold column of its "general" splits.
_COMETA_PHRASE, _COMETA_IDS = "Term", "General SNOMED ID"


def read_concept_file(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[AnnotatedText]:
    """Stream a BioSyn .concept file: one text per mention, which covers the whole text.

    The words of a mention are kept unchanged, also if "|" joins the parts of a composite.

    prefix (str): Vocabulary of ids without a prefix; with "MESH", six digits are an OMIM number.
    YIELDS (AnnotatedText): Its id is "pmid:start-end", with the offsets in the source document.
    RAISES BioelError: [B116] malformed row; errors of `numbered_lines`.
    """
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        fields = line.split("||")
        span = _SPAN.fullmatch(fields[1]) if len(fields) == 5 else None
        if span is None or not fields[3].strip():
            raise BioelError(
                Errors.B116.format(path=path, line=number, expected=_CONCEPT_ROW, row=line[:80])
            )
        pmid, _, label, phrase, ids = (field.strip() for field in fields)
        mention = Mention(0, len(phrase), label, split_ids(ids, prefix))
        yield AnnotatedText(f"{pmid}:{span[1]}-{span[2]}", phrase, (mention,))


def read_phrase_table(
    path: str | os.PathLike[str],
    *,
    prefix: str = "",
    encoding: str = "utf8",
) -> Iterator[AnnotatedText]:
    """Stream a table with a phrase and its concept on every row, separated by tabs.

    If the first line has no tab, the separator is a comma. A COMETA header is recognised; any other
    table has no header and the columns id, name, phrase, as in AskAPatient and TwADR-L.

    prefix (str): Vocabulary of ids without a prefix.
    encoding (str): Encoding of the file; AskAPatient is published in "latin-1".
    YIELDS (AnnotatedText): The id is "file name:line", the one mention covers the phrase.
    RAISES BioelError: [B118] row too short or without a phrase, [B126]
        broken quoting; errors of `open_text`.
    """
    line = first_line(path, encoding=encoding)
    separator = "\t" if "\t" in line else ","
    header = line.split(separator)
    has_header = _COMETA_PHRASE in header and _COMETA_IDS in header
    indices = [0, 2]
    if has_header:
        indices = [header.index(_COMETA_IDS), header.index(_COMETA_PHRASE)]
    # AskAPatient has unpaired quotes; tables with a header are written by pandas, which quotes.
    rows = read_rows(path, separator=separator, quoted=has_header, encoding=encoding)
    for number, row in islice(rows, int(has_header), None):
        yield _phrase(path, number, row, indices, prefix)


def _phrase(
    path: str | os.PathLike[str], number: int, row: list[str], indices: list[int], prefix: str
) -> AnnotatedText:
    if len(row) <= max(indices) or not row[indices[1]].strip():
        raise BioelError(
            Errors.B118.format(path=path, line=number, n=max(indices) + 1, row="\t".join(row)[:80])
        )
    raw_id, phrase = (row[index].strip() for index in indices)
    mention = Mention(0, len(phrase), "", split_ids(raw_id, prefix))
    return AnnotatedText(f"{Path(path).name}:{number}", phrase, (mention,))


def read_biosyn_dictionary(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[Concept]:
    """Stream a BioSyn dictionary (`id||name`) or MEDIC (`id||name|name|...`).

    An id field such as "C567755|613097" has a concept and its alternate id. The ids of several
    concepts with the same name are joined by "|" too. An id is therefore alternate only if no line
    begins with it; otherwise it is another concept with this name. For this the file is read
    twice. Only adjacent lines of one concept are merged.

    In a field such as "114480|D001943", which begins with an OMIM number (774 fields in MEDIC of
    July 2012), the concept is the MeSH id: corpora have it, and later MEDICs begin with it.

    prefix (str): Vocabulary of ids without a prefix; with "MESH", six digits are an OMIM number.
    YIELDS (Concept): Concepts with their names; alternate ids without names, with `replaced_by`.
    RAISES BioelError: [B116] malformed row; errors of `numbered_lines`.
    """
    leading, partners = set(), {}
    for ids, _ in _dictionary_rows(path, prefix):
        leading.add(ids[0])
        if len(ids) == 2 and ids[0].startswith("OMIM:") and ids[1].startswith("MESH:"):
            partners[ids[0]] = ids[1]
    current_ids = {omim: mesh for omim, mesh in partners.items() if mesh not in leading}
    seen: set[str] = set()
    for ids, rows in groupby(_dictionary_rows(path, prefix), key=lambda row: row[0]):
        names = unique_names([name for _, names in rows for name in names])
        current = ids[0]
        for concept_id in ids:
            if concept_id in leading:
                current = current_ids.get(concept_id, concept_id)
                yield Concept(current, names)
            if concept_id != current and concept_id not in seen:
                seen.add(concept_id)
                yield Concept(concept_id, (), replaced_by=current)


def _dictionary_rows(
    path: str | os.PathLike[str], prefix: str
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        raw_ids, _, raw_names = line.partition("||")
        ids = tuple(dict.fromkeys(curie(raw, prefix) for raw in raw_ids.split("|")))
        with one_record(path, number):
            if not all(ids) or not raw_names.strip("| "):
                raise BioelError(
                    Errors.B116.format(path=path, line=number, expected="id||name", row=line[:80])
                )
            # MEDIC has XML entities: "Gunther&apos;s Disease".
            yield ids, html.unescape(raw_names).split("|")


def read_name_lists(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[Concept]:
    """Yield the concepts of a JSON object: id -> [[kind of name, name], ...].

    The concept names of AskAPatient and TwADR-L are distributed in this layout. The whole file is
    in memory.

    prefix (str): Vocabulary of ids without a prefix.
    YIELDS (Concept): Names of the kind "primary" come first.
    RAISES BioelError: [B143] another layout; errors of `open_text`.
    """
    for raw_id, pairs in read_json_object(path, problem=Errors.B143).items():
        with one_record(path):
            if not isinstance(pairs, list) or not all(map(_is_name_pair, pairs)):
                found = f"{raw_id!r}: {str(pairs)[:60]}"
                raise BioelError(Errors.B143.format(path=path, found=found))
            pairs.sort(key=lambda pair: pair[0] != "primary")
            yield Concept(curie(raw_id, prefix), unique_names([name for _, name in pairs]))


def _is_name_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(s, str) for s in pair)

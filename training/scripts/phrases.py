"""Read corpora and dictionaries of bare names: MEDIC, AskAPatient, TwADR-L, COMETA."""

from __future__ import annotations

import html
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.jsonl import read_json
from spacy_bioel.io.open import (
    Place,
    StrPath,
    curie,
    numbered_lines,
    parse_ids,
    skip_if_bad,
    unique_names,
)
from spacy_bioel.io.table import split_rows
from spacy_bioel.types import AnnotatedText, Concept, Mention

BAD_PHRASE = (
    "[T030] {where}: expected at least {n} columns, separated by tabs, and a phrase, found "
    "{found!r}. Correct the row."
)
BAD_NAMES = (
    "[T031] {path}: expected a JSON object of concepts, id -> [[kind, name], ...], found {found}. "
    "Check the format."
)
# Columns of COMETA; the second is the gold column of its "general" splits.
_COMETA_PHRASE, _COMETA_IDS = "Term", "General SNOMED ID"


def read_phrase_table(path: StrPath, *, prefix: str = "") -> Iterator[AnnotatedText]:
    """Stream a table with a phrase and its concept on every row, separated by tabs.

    If the first line does not contain a tab, the separator is a comma. A COMETA header is
    recognised; any other table must have the columns id, name, phrase without a header, as in
    AskAPatient and TwADR-L. The id of a text is "file name:line"; its mention covers the phrase.
    """
    line = next((line for _, line in numbered_lines(path)), "")
    separator = "\t" if "\t" in line else ","
    header = line.split(separator)
    has_header = _COMETA_PHRASE in header and _COMETA_IDS in header
    id_at, phrase_at = 0, 2
    if has_header:
        id_at, phrase_at = header.index(_COMETA_IDS), header.index(_COMETA_PHRASE)
    n_columns = max(id_at, phrase_at) + 1
    # AskAPatient has unpaired quotes; tables with a header are written by pandas, which quotes.
    rows = split_rows(numbered_lines(path, ends=True), separator, quoted=has_header)
    for where, row, _ in islice(rows, int(has_header), None):
        phrase = row[phrase_at].strip() if len(row) >= n_columns else ""
        if not phrase:
            found = "\t".join(row)[:80]
            raise BioelError(BAD_PHRASE.format(where=where, n=n_columns, found=found))
        mention = Mention(0, len(phrase), "", parse_ids(row[id_at], prefix))
        yield AnnotatedText(f"{Path(path).name}:{where.line}", phrase, (mention,))


def read_dictionary(path: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Stream a BioSyn dictionary (`id||name`) or MEDIC (`id||name|name|...`).

    An id field such as "C567755|613097" contains a concept and its alternate id. Ids of several
    concepts with the same name are also joined by "|". An id is therefore alternate only if no
    line begins with it, which is why the file is read twice. Only adjacent lines of one concept
    are merged.

    In a field such as "114480|D001943", which begins with an OMIM number (774 fields in MEDIC of
    July 2012), the concept is the MeSH id: corpora use it, and later versions begin with it.

    YIELDS (Concept): Concepts with their names; alternate ids without names, with `replaced_by`.
    """
    leading, partners = set(), {}
    for ids, _ in _dictionary_rows(path, prefix):
        leading.add(ids[0])
        if len(ids) == 2 and ids[0].startswith("OMIM:") and ids[1].startswith("MESH:"):
            partners[ids[0]] = ids[1]
    current_ids = {omim: mesh for omim, mesh in partners.items() if mesh not in leading}
    seen: set[str] = set()
    for ids, rows in groupby(_dictionary_rows(path, prefix), key=lambda row: row[0]):
        names = unique_names(name for _, names in rows for name in names)
        current = ids[0]
        for concept_id in ids:
            if concept_id in leading:
                current = current_ids.get(concept_id, concept_id)
                yield Concept(current, names)
            if concept_id != current and concept_id not in seen:
                seen.add(concept_id)
                yield Concept(concept_id, (), replaced_by=current)


def _dictionary_rows(path: StrPath, prefix: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    for where, line in numbered_lines(path):
        if not line.strip():
            continue
        raw_ids, _, raw_names = line.partition("||")
        ids = tuple(dict.fromkeys(curie(raw, prefix) for raw in raw_ids.split("|")))
        with skip_if_bad(where):
            if not all(ids) or not raw_names.strip("| "):
                row = line[:80]
                raise BioelError(Errors.B116.format(where=where, expected="id||name", row=row))
            # MEDIC has XML entities: "Gunther&apos;s Disease".
            yield ids, html.unescape(raw_names).split("|")


def read_name_lists(path: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Stream the concepts of a JSON object: id -> [[kind of name, name], ...].

    AskAPatient and TwADR-L distribute concept names in this layout. Names of the kind "primary"
    come first.
    """
    for raw_id, pairs in read_json(path, dict, problem=BAD_NAMES).items():
        with skip_if_bad(Place(path)):
            is_list = isinstance(pairs, list) and all(isinstance(pair, list) for pair in pairs)
            if not is_list or any([*map(type, pair)] != [str, str] for pair in pairs):
                found = f"{raw_id!r}: {str(pairs)[:60]}"
                raise BioelError(BAD_NAMES.format(path=path, found=found))
            pairs.sort(key=lambda pair: pair[0] != "primary")
            yield Concept(curie(raw_id, prefix), unique_names(name for _, name in pairs))


# Readers by `format` in corpora.yml.
READERS = {"dictionary": read_dictionary, "name lists": read_name_lists}

"""Mappings between vocabularies: SSSOM files, and links with the ids of another vocabulary.

The format is described at https://mapping-commons.github.io/sssom.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from spacy_bioel.curation.ids import prefix_key, split_id
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.formats import table_line
from spacy_bioel.export.html import address_of
from spacy_bioel.export.rows import LinkedText
from spacy_bioel.io.open import Place, StrPath, curie, numbered_lines, skip_if_bad
from spacy_bioel.io.table import check_row, column_indices, header_of, separator_of, split_rows
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Candidate, Concept, KbRelease, Link, Opened, opened, remember

_EXACT = re.compile(r"skos:exactMatch|https?://www\.w3\.org/2004/02/skos/core#exactMatch")
_ADDRESS = re.compile(r"""#\s*["']?([\w.-]+)["']?:\s*["']?(https?://[^\s"']+)""")
_NOT_LOCAL = re.compile(r"\s|^//")  # white space, or the rest of an address
_COLUMNS = ("subject_id", "subject_label", "predicate_id", "object_id", "mapping_justification")
_XREF, _JUSTIFICATION = "oboInOwl:hasDbXref", "semapv:UnspecifiedMatching"
_SSSOM = "https://w3id.org/sssom"
_PREFIXES = {
    "oboInOwl": "http://www.geneontology.org/formats/oboInOwl#",
    "semapv": "https://w3id.org/semapv/vocab/",
}


def read_sssom(path: StrPath, kb: KnowledgeBase, left_out: Counter[str]) -> Iterator[Concept]:
    """Stream the exact mappings of concepts in a knowledge base, as their cross-references.

    left_out (Counter): Counts the mappings that are left out, by reason.
    RAISES BioelError: [B128] if a column is missing, [B510] if a row has another number of cells,
        [B608] if no exact mapping is of a concept in the knowledge base.
    """
    addresses: dict[str, str] = {}

    def table() -> Iterator[tuple[Place, str]]:
        for where, line in numbered_lines(path, ends=True):
            if not line.startswith("#"):
                yield where, line
            elif match := _ADDRESS.match(line):
                addresses[match[1]] = match[2]

    rows = split_rows(table(), separator_of(path), quoted=True)
    header = header_of(next(rows, (None, [], ""))[1])
    names = ["subject_id", "object_id", "predicate_id"]
    names += {"predicate_modifier"} & set(header)
    at = [i for (i,) in column_indices(path, {name: name for name in names}, header).values()]
    unknown, is_used = "none", False
    for where, row, _ in rows:
        with skip_if_bad(where):
            check_row(where, row, len(header), ())
            subject, target, predicate, *negated = (row[i].strip() for i in at)
            if not _EXACT.fullmatch(predicate) or any(negated):
                left_out["not skos:exactMatch"] += 1
                continue
            pair = _in_full(subject, addresses), _in_full(target, addresses)
            found = kb.find_all([curie(id) for id in pair]).tolist()
            for concept, other in zip(found, pair[::-1], strict=True):
                if concept >= 0:
                    is_new = curie(other) not in map(curie, kb.xrefs(concept))
                    yield Concept(kb.ids[concept], (), xrefs=(other,) * is_new)
                    is_used = True
            if max(found) < 0:
                left_out["of other concepts"] += 1
                unknown = subject
    if not is_used:
        example = next(iter(kb.ids), "none")
        raise BioelError(Errors.B608.format(path=path, id=unknown, kb=kb.where, example=example))


def _in_full(id: str, addresses: dict[str, str]) -> str:
    """Return an id with the usual prefix, if its own stands for the address of a vocabulary."""
    prefix, _, local = id.partition(":")
    found = split_id(addresses.get(prefix, "") + local)
    return ":".join(found) if prefix in addresses and found and "/" not in found[1] else id


def sssom_lines(kb: KnowledgeBase, counts: Counter[str]) -> Iterator[str]:
    """Yield the lines of a file with the cross-references of all concepts.

    counts (Counter): Counts the cross-references "written", and those "left out" because they or
        the ids of their concepts are not CURIEs.
    """
    prefixes = {prefix for pair in _pairs(kb, Counter()) for prefix, _ in pair[1:]}
    about = kb.releases[0]
    is_address = about.licence.startswith("http")
    metadata = {
        "license": about.licence if is_address else f"{_SSSOM}/license/unspecified",
        "mapping_set_id": f"{_SSSOM}/mappings/{kb.fingerprint}",
        "mapping_set_title": f"Cross-references of {about.source or about.name}",
        "mapping_set_version": about.release,
        "mapping_tool": "spacy-bioel",
    }
    yield "# curie_map:\n"
    addresses = {prefix: address_of(f"{prefix}:0") for prefix in sorted(prefixes)}
    for prefix, address in (addresses | _PREFIXES).items():
        if prefix in addresses:
            is_start = address.endswith("0")
            address = address[:-1] if is_start else f"https://bioregistry.io/{prefix}:"
        yield f"#   {prefix}: {json.dumps(address)}\n"
    for key, value in metadata.items():
        if value:
            yield f"# {key}: {json.dumps(value)}\n"
    yield table_line(_COLUMNS, "\t")
    for name, subject, target in _pairs(kb, counts):
        cells = ":".join(subject), name, _XREF, ":".join(target), _JUSTIFICATION
        yield table_line(cells, "\t")


def _pairs(
    kb: KnowledgeBase, counts: Counter[str]
) -> Iterator[tuple[str, tuple[str, str], tuple[str, str]]]:
    """Yield the preferred name, and the split ids, of each concept and cross-reference."""
    rows = np.arange(len(kb))
    names = kb.names.take(kb.preferred_rows(rows))
    for id, name, xrefs in zip(kb.ids, names, kb.xrefs_of_all(rows), strict=True):
        for xref in xrefs:
            subject, target = split_id(id), split_id(xref)
            if subject and target and not _NOT_LOCAL.search(target[1]):
                counts["written"] += 1
                yield name, subject, target
            else:
                counts["left out"] += 1


class LinksAs:
    """Replaces the ids of links by the first cross-references to a vocabulary.

    kept (Counter): Counts the ids that stay, because they have no such cross-reference.
    RAISES BioelError: [B609] if the knowledge base has no cross-reference to the vocabulary.
    """

    def __init__(self, vocabulary: str, kb: KnowledgeBase) -> None:
        self.kept, self._key = Counter[str](), prefix_key(vocabulary)
        self._views: dict[str, _OtherIds] = {}
        xrefs = chain.from_iterable(kb.xrefs_of_all(np.arange(len(kb))))
        known = {_prefix_of(xref) for xref in xrefs} - {"http", "https", ""}
        if self._key not in map(prefix_key, known):
            about = {"name": vocabulary, "known": ", ".join(sorted(known)[:20]) or "none"}
            raise BioelError(Errors.B609.format(kb=kb.where, **about))

    def __call__(self, document: LinkedText) -> LinkedText:
        return replace(document, links=tuple(map(self._with_other_ids, document.links)))

    def _with_other_ids(self, link: Link) -> Link:
        ids: dict[str, str] = {}
        candidates: dict[str, Candidate] = {}
        for candidate in link.candidates:
            view = self._views.setdefault(candidate.kb, _OtherIds(opened(candidate.kb), self._key))
            id = view.id_of(candidate.id)
            ids[candidate.id] = id
            candidates.setdefault(id, replace(candidate, id=id, kb=view.fingerprint))
        for id in link.ids:
            if prefix_key(_prefix_of(ids.setdefault(id, id))) != self._key:
                self.kept[id] += 1
        linked = dict.fromkeys(ids[id] for id in link.ids)
        return replace(link, ids=tuple(linked), candidates=tuple(candidates.values()))


def _prefix_of(id: str) -> str:
    prefix, colon, _ = id.partition(":")
    return prefix if colon else (split_id(id) or ("",))[0]


class _OtherIds:
    """A knowledge base whose concepts also have the ids of another vocabulary."""

    def __init__(self, kb: Opened, key: str) -> None:
        self._kb, self._key, self._own = kb, key, dict[str, str]()
        self._known: dict[str, str] = {}
        self.fingerprint = f"{kb.fingerprint} as {key}"
        remember(self)

    @property
    def releases(self) -> tuple[KbRelease, ...]:
        return self._kb.releases

    def id_of(self, id: str) -> str:
        """Return the id of a concept in the other vocabulary, or else its own."""
        if id not in self._known:
            ids = (id, *(self._kb[id].xrefs if id in self._kb else ()))
            new = (curie(other) for other in ids if prefix_key(_prefix_of(other)) == self._key)
            self._known[id] = next(new, id)
            self._own.setdefault(self._known[id], id)
        return self._known[id]

    def find(self, id: str) -> int:
        return self._kb.find(self._own.get(id, id))

    def preferred_name(self, concept: int) -> str:
        return self._kb.preferred_name(concept)

    def __contains__(self, id: object) -> bool:
        return self._own.get(str(id), id) in self._kb

    def __getitem__(self, id: str) -> Concept:
        return self._kb[self._own.get(id, id)]

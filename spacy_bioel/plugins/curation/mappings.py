"""Mappings between vocabularies: SSSOM files, and links with another vocabulary's ids.

The format is described at https://mapping-commons.github.io/sssom.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from spacy_bioel.errors import BioelError
from spacy_bioel.export.pages import address_of
from spacy_bioel.export.rows import LinkedText
from spacy_bioel.io.open import Place, StrPath, curie, numbered_lines, skip_if_bad
from spacy_bioel.io.table import check_row, column_indices, header_of, separator_of, split_rows
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.curation.errors import CurationErrors
from spacy_bioel.plugins.curation.ids import prefix_key, split_id
from spacy_bioel.text.normalize import table_line
from spacy_bioel.types import Candidate, Concept, remember

_EXACT = ("skos:exactMatch", "http://www.w3.org/2004/02/skos/core#exactMatch")
_CURIE_MAP_LINE = re.compile(r"""#\s*["']?([\w.-]+)["']?:\s*["']?(https?://[^\s"']+)""")
_NOT_LOCAL = re.compile(r"\s|^//")  # white space, or part of an address
_SSSOM_COLUMNS = "subject_id subject_label predicate_id object_id mapping_justification".split()
_HAS_DBXREF, _JUSTIFICATION = "oboInOwl:hasDbXref", "semapv:UnspecifiedMatching"
_SSSOM = "https://w3id.org/sssom"
_PREFIXES = {
    "oboInOwl": "http://www.geneontology.org/formats/oboInOwl#",
    "semapv": "https://w3id.org/semapv/vocab/",
}


def read_sssom(path: StrPath, kb: KnowledgeBase, left_out: Counter[str]) -> Iterator[Concept]:
    """Yield knowledge base concepts with a file's exact mappings as cross-references.

    left_out (Counter): Counts the mappings that are skipped, by reason.
    RAISES BioelError: [B128] if a column is missing, [B510] if a row has the wrong number of cells.
    """
    addresses: dict[str, str] = {}

    def table() -> Iterator[tuple[Place, str]]:
        for where, line in numbered_lines(path, ends=True):
            if not line.startswith("#"):
                yield where, line
            elif match := _CURIE_MAP_LINE.match(line):
                addresses[match[1]] = match[2]

    def in_full(id: str) -> str:
        """Normalise an id's prefix if the file maps that prefix to a known address."""
        prefix, _, local = id.partition(":")
        found = split_id(addresses[prefix] + local) if prefix in addresses else None
        return ":".join(found) if found and not _NOT_LOCAL.search(found[1]) else id

    rows = split_rows(table(), separator_of(path), quoted=True)
    header = header_of(next(rows, (None, [], ""))[1])
    names = ["subject_id", "object_id", "predicate_id", *({"predicate_modifier"} & {*header})]
    at = [i for (i,) in column_indices(path, {name: name for name in names}, header).values()]
    for where, row, _ in rows:
        with skip_if_bad(where):
            check_row(where, row, len(header), ())
            *pair, predicate, negated = [*(row[i].strip() for i in at), ""][:4]
            if predicate not in _EXACT or negated or "sssom:NoTermFound" in pair:
                left_out["not skos:exactMatch"] += 1
                continue
            pair = [in_full(id) for id in pair]
            found = kb.find_all([curie(id) for id in pair]).tolist()
            left_out["of other concepts"] += max(found) < 0
            for concept, other in zip(found, pair[::-1], strict=True):
                if concept >= 0 and curie(other) not in map(curie, kb.xrefs(concept)):
                    yield Concept(kb.ids[concept], (), xrefs=(other,))


def sssom_lines(kb: KnowledgeBase, left_out: Counter[str]) -> list[str]:
    """Return the lines of an SSSOM file with all concepts' cross-references.

    left_out (Counter): Counts, by prefix, the cross-references that are skipped because they or
        the concept's id are not CURIEs.
    """
    rows, lines, prefixes = np.arange(len(kb)), [table_line(_SSSOM_COLUMNS, "\t")], set[str]()
    names = kb.names.take(kb.preferred_rows(rows))
    for id, name, xrefs in zip(kb.ids, names, kb.xrefs_of_all(rows), strict=True):
        for xref in xrefs:
            subject, target = split_id(id), split_id(xref)
            if not (subject and target) or _NOT_LOCAL.search(target[1]):
                left_out[_prefix_of(xref)] += 1
                continue
            prefixes |= {subject[0], target[0]}
            cells = ":".join(subject), name, _HAS_DBXREF, ":".join(target), _JUSTIFICATION
            lines.append(table_line(cells, "\t"))
    addresses = dict(_PREFIXES)
    for prefix in sorted(prefixes):
        start, zero, end = address_of(f"{prefix}:0").rpartition("0")
        addresses[prefix] = start if zero and not end else f"https://bioregistry.io/{prefix}:"
    licence = kb.releases[0].licence
    licence = licence if licence.startswith("http") else f"{_SSSOM}/license/unspecified"
    return [
        "# curie_map:\n",
        *(f"#   {prefix}: {json.dumps(url)}\n" for prefix, url in addresses.items()),
        f"# license: {json.dumps(licence)}\n",
        f"# mapping_set_id: {_SSSOM}/mappings/{kb.fingerprint}\n",
        *lines,
    ]


def _prefix_of(id: str) -> str:
    prefix, colon, _ = id.partition(":")
    return prefix if colon else (split_id(id) or ("",))[0]


class LinksAs:
    """Replaces each link id with its concept's first cross-reference to a vocabulary.

    Candidates look up their concepts in this object, by the new ids.

    kept (Counter): Counts the ids that are kept because they have no such cross-reference.
    RAISES BioelError: [B609] if the knowledge base has no cross-reference to the vocabulary.
    """

    def __init__(self, vocabulary: str, kb: KnowledgeBase) -> None:
        self.kept, self._kb = Counter[str](), kb
        self._other: dict[str, str] = {}
        self._own: dict[str, str] = {}
        self.fingerprint, self.releases = f"{kb.fingerprint} as {vocabulary}", kb.releases
        self.preferred_name, self.types_of, known = kb.preferred_name, kb.types_of, set()
        key = prefix_key(vocabulary)
        for id, xrefs in zip(kb.ids, kb.xrefs_of_all(np.arange(len(kb))), strict=True):
            for xref in (id, *xrefs):
                known.add(prefix := _prefix_of(xref))
                if prefix_key(prefix) == key and id not in self._other:
                    self._other[id] = curie(xref)
                    self._own.setdefault(curie(xref), id)
        if not self._other:
            about = {"name": vocabulary, "known": ", ".join(sorted(known)[:20])}
            raise BioelError(CurationErrors.B609.format(kb=kb.where, **about))
        remember(self)

    def __call__(self, document: LinkedText) -> LinkedText:
        links = []
        for link in document.links:
            candidates: dict[str, Candidate] = {}
            for candidate in link.candidates:
                id = self._other.get(candidate.id, candidate.id)
                candidates.setdefault(id, replace(candidate, id=id, kb=self.fingerprint))
            self.kept.update(id for id in link.ids if id not in self._other)
            new = tuple(dict.fromkeys(self._other.get(id, id) for id in link.ids))
            links.append(replace(link, ids=new, candidates=tuple(candidates.values())))
        return replace(document, links=tuple(links))

    def find(self, id: str) -> int:
        return self._kb.find(self._own.get(id, id))

    def __contains__(self, id: object) -> bool:
        return self._own.get(str(id), id) in self._kb

    def __getitem__(self, id: str) -> Concept:
        return self._kb[self._own.get(id, id)]

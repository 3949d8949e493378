"""The usual meanings of short gene names: "LH" is LHB, although LH is also a name of PLOD1.

assets/usual_names.tsv lists such names, with the symbols of the human genes that they mean in most
texts. The symbols are looked up instead of the name, in the document's organism, unless the
document defines the name. A name of a family means the members that the table lists ("ferritin":
FTH1 and FTL), or the member that curators choose ("ERK": MAPK1). Some names ("ER", "oxytocin") mean
genes only next to words such as "expression of". A name before "transporter" is a protein.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from spacy_bioel.batch import Batch, Query
from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.entities import RULE_PROBABILITY, LinkerKnowledge
from spacy_bioel.entities.patterns import find_words, is_code
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.types import CHEMICAL, GENE, HUMAN, ScoredSpan

_NAME_OR_WORD = re.compile(r"(?<![\w-])[^\W\d_][\w/-]*+")
_NUMBER_OR_CAT = re.compile(r"\d{4}|^[Cc]at$|^CAT$")
MAX_PARTS = 4  # limit on hyphenated parts, because "a-a-a-..." would take quadratic time
_NEVER_LABELS = (GENE, "Disease")
USUAL_NAME = "by the rules for names of genes"  # shown in explanations


class UsualName(NamedTuple):
    """The normalised symbols that a name refers to (none if it is neither a gene nor a disease),
    and whether it is a gene only next to words such as "expression of"."""

    symbols: tuple[str, ...]
    needs_context: bool


@cache
def usual_names() -> dict[str, UsualName]:
    """Read assets/usual_names.tsv, and add a capitalised form of each lower-case name."""
    names = {}
    for line in (ASSETS_FOLDER / "usual_names.tsv").read_text("utf8").splitlines():
        if not line.startswith("#"):
            name, symbols, context, *_ = [*line.split("\t"), ""]
            meant = tuple(map(normalize_name, filter(None, symbols.split("|"))))
            names[name] = UsualName(meant, context != "")
            if name.islower():
                names[name.capitalize()] = names[name]
    return names


def usual_queries(batch: Batch, knowledge: LinkerKnowledge) -> list[Query]:
    """Return the queries with symbols replacing short names that the document does not define."""
    queries = list(batch.queries)
    for i, (span, query) in enumerate(zip(batch.spans, queries, strict=True)):
        usual = usual_names().get(span.text) if span.label_ == GENE else None
        if usual and usual.symbols and query.whole == normalize_name(span.text):
            symbols = usual.symbols
            if _means_others(knowledge.kb_of(GENE), query.whole, symbols):
                readings = (symbols,) if len(symbols) > 1 else ()
                queries[i] = replace(query, whole=symbols[0], readings=readings)
    return queries


def _means_others(kb: KnowledgeBase, name: str, symbols: tuple[str, ...]) -> bool:
    """Whether a knowledge base has these symbols, but uses the name for a different set of genes.

    Names that the user added keep their meaning.
    """
    if HUMAN not in kb.type_names or (kb.lookup_names(symbols) < 0).any():
        return False
    rows = kb.lookup_names([name])
    _, concepts, _ = kb.concepts_of_names(rows)
    human = np.array([c for c in concepts.tolist() if HUMAN in kb.types_of(c)], dtype=np.int64)
    found = normalize_names(kb.names.take(kb.preferred_rows(human)))
    return tuple(found) != symbols and not (rows[0] >= 0 and kb.is_added[rows[0]])


def is_beside_gene_words(text: str, start: int, end: int) -> bool:
    """Whether text[start:end] comes right before or after words such as "expression of"."""
    return bool(
        find_words("before a gene", text, start, end)
        or find_words("after a gene", text, start, end)
    )


def add_proteins(doc: Doc, found: FoundSpans, kb: KnowledgeBase) -> None:
    """Widen chemicals to the proteins named after them: "iodide" to "sodium iodide symporter".

    kb (KnowledgeBase): The knowledge base of genes.
    """
    text, by_name = text_of(doc), dict[Span, str]()
    for start, end, label, probability in found.spans:
        end_char = doc[end - 1].idx + len(doc[end - 1])
        after = find_words("after a chemical", text, doc[start].idx, end_char)
        if label != CHEMICAL or probability == 1 or not after:
            continue
        for first in (start, max(0, start - 1)):
            for last, name_end in (after.end(),) * 2, (after.end("word"), after.end("singular")):
                span = doc.char_span(doc[first].idx, last)
                if span is not None and doc[first].text[0].isalnum():
                    by_name[span] = text[span.start_char : name_end]
    if not by_name:
        return
    rows = kb.lookup_names(normalize_names(list(by_name.values())))
    for span in filter_spans(s for s, row in zip(by_name, rows, strict=True) if row >= 0):
        near = found.overlapping(span.start, span.end)
        if all(span.start <= s[0] and s[1] <= span.end and s[3] < 1 for s in near):
            found.add((span.start, span.end, GENE, RULE_PROBABILITY), USUAL_NAME, instead_of=near)


def add_usual_names(doc: Doc, found: FoundSpans) -> None:
    """Add missed gene names, relabel chemicals that mean genes, and drop non-genes."""
    text, names, added = text_of(doc), usual_names(), list[ScoredSpan]()
    dropped = set[ScoredSpan]()
    for word in _NAME_OR_WORD.finditer(text):
        name = "-".join(word.group().split("-", MAX_PARTS)[:MAX_PARTS])
        while name not in names and "-" in name:
            name = name.rpartition("-")[0]
        usual, start, end = names.get(name), word.start(), word.start() + len(name)
        if usual is None or (span := doc.char_span(start, end)) is None:
            continue
        near = found.overlapping(span.start, span.end)
        if not usual.symbols:  # "PBS"
            if name not in long_forms(doc):
                dropped.update(s for s in near if s[2] in _NEVER_LABELS and s[3] < 1)
            continue
        is_same = all(s[:2] == (span.start, span.end) and s[3] < 1 for s in near)
        is_other = name in long_forms(doc) or text.startswith((" receptor", "-receptor"), end)
        if any(s[2] == GENE for s in near) or not is_same or is_other:
            continue
        if (usual.needs_context or near) and not is_beside_gene_words(text, start, end):
            continue
        added.append((span.start, span.end, GENE, RULE_PROBABILITY))
    for scored in found.spans:
        if scored[2] == GENE and scored[3] < 1:
            mention = doc[scored[0] : scored[1]]
            place = mention.start_char, mention.end_char
            if _NUMBER_OR_CAT.search(mention.text) and is_code(text, *place):
                dropped.add(scored)
    found.drop(dropped, USUAL_NAME)
    for scored in added:  # a gene replaces other spans with the same tokens
        found.add(scored, USUAL_NAME, instead_of=found.overlapping(*scored[:2]))

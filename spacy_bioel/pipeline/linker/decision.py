"""From mentions to links: candidates of strings, what the documents say of them, the decision.

A symbol is a gene in each organism that has it. The organisms that a document names, how often, and
the one that stands before the mention ("human BRCA1") say which, as in SR4GN (Wei et al. 2012,
https://doi.org/10.1371/journal.pone.0038460). "Patients" are human, whether they are found as an
organism or not. In a document that names none, nothing is known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log1p
from typing import Any

from spacy.tokens import Span
from thinc.api import Model

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.models.reading import reading_evidence, reads
from spacy_bioel.pipeline.contextual.methods import METHODS
from spacy_bioel.pipeline.contextual.weighing import Reading
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
from spacy_bioel.pipeline.linker.queries import (
    Mentions,
    Query,
    best_first,
    rank_mentions,
    rank_names,
)
from spacy_bioel.pipeline.linker.settings import BY_KB
from spacy_bioel.text.display import hgvs_of
from spacy_bioel.text.variants import gene_of, rs_numbers
from spacy_bioel.types import CELL_LINE, DBSNP, ORGANISM, VARIANT, Candidate, Link

Candidates = tuple[Candidate, ...]
# Logistic regression on the training documents of BioRED, NLM-Gene and GNormPlus: of the logarithm
# of 1 + mentions of an organism, of one that stands before the gene, and of being human, which
# documents do not always say.
_OFTEN, _BEFORE, _HUMAN = 1.7, 2.5, 0.8
# Of being human, too: the logarithm of 1 + mentions of cell lines. Those are mostly human, and mice
# are named where such cells were put into them.
_CELL_LINES = 1.24
_HUMAN_ID = f"{ORGANISM}9606"
_PEOPLE = re.compile(
    r"\b(?:patients?|wom[ae]n|m[ae]n|volunteers?|probands?|persons)\b", re.IGNORECASE
)
_LEAST = 1e-9  # so that nothing is divided by 0
_NEAR = 2  # characters between an organism and the gene that it stands before


def decide(
    span: Span,
    query: Query,
    candidates: tuple[Candidate, ...],
    of_parts: Mapping[str, tuple[Candidate, ...]],
    *,
    nil_threshold: float,
) -> Link:
    """The link of a mention.

    A composite reading is taken if all its parts together are likelier than the whole: a name
    with "and" in it ("head and neck neoplasms") stays one, and so does what was one in training.

    candidates (tuple): Of the whole mention.
    of_parts (Mapping): Those of each part of its readings.
    """
    whole = candidates
    ids: tuple[str, ...] = tuple(c.id for c in candidates[:1] if c.score >= nil_threshold)
    best = candidates[0].score if candidates else 0.0
    for reading in query.readings:
        parts = [of_parts[part][:1] for part in reading]
        if not all(parts):
            continue
        firsts = {part[0].id: part[0] for part in parts}
        likelihood = min(part[0].score for part in parts) ** len(parts)
        if likelihood > max(best, nil_threshold) and len(firsts) == len(parts):
            best, ids = likelihood, tuple(firsts)
            rest = [c for c in whole if c.id not in firsts]
            candidates = (*firsts.values(), *rest)
    return Link(span.start_char, span.end_char, span.label_, ids, candidates)


def with_labels(links: Sequence[Sequence[Link]], kb: KnowledgeBase) -> list[list[Link]]:
    """Links with labels in place of empty ones: `doc.ents` takes no span without one.

    The label is that of the linked concept, or of the best candidate where that is NIL, see
    `KnowledgeBase.labels_of`.
    """
    concepts = [
        next(iter(link.ids or (c.id for c in link.candidates)), "")
        for of_doc in links
        for link in of_doc
    ]
    different = list(dict.fromkeys(concepts))
    rows = kb.find_all(different)
    known = rows >= 0
    label_of = dict.fromkeys(different, kb.title)
    ids = [id for id, is_known in zip(different, known.tolist(), strict=True) if is_known]
    label_of |= dict(zip(ids, kb.labels_of(rows[known]), strict=True))
    labels = iter([label_of[id] for id in concepts])
    return [[replace(link, label=next(labels)) for link in of_doc] for of_doc in links]


@dataclass(frozen=True)
class Ranking:
    """Mentions of a batch of documents with their candidates, before anything is decided.

    generator (CandidateGenerator): What the candidates come from.
    mentions (Mentions): Those that get links.
    asked (Mentions): These and the parts of composites, see `Mentions.with_parts`.
    candidates (Sequence): Of all that was asked for.
    """

    generator: CandidateGenerator
    mentions: Mentions
    asked: Mentions
    candidates: Sequence[Candidates]

    def links(self, *, nil_threshold: float | None = None) -> list[list[Link]]:
        """Decide what the mentions of each document are linked to.

        nil_threshold (float | None): None: that of the settings.
        """
        settings, kb = self.generator.state.settings, self.generator.kb
        threshold = settings.nil_threshold if nil_threshold is None else nil_threshold
        candidates, mentions, n = self.candidates, self.mentions, len(self.mentions.spans)
        if "organism" in settings.evidence:
            candidates = weigh_organisms(kb, self.asked, candidates, n=n, nil_threshold=threshold)
        of_parts = iter(candidates[n:])
        links: list[list[Link]] = [[] for _ in mentions.docs]
        asked = zip(mentions.spans, mentions.queries, mentions.owners, strict=True)
        weighed = _weighed(mentions, candidates)
        for (span, query, owner), found in zip(asked, weighed, strict=True):
            parts = {part: next(of_parts) for part in query.parts} if query.readings else {}
            links[owner].append(decide(span, query, found, parts, nil_threshold=threshold))
        if settings.mentions in BY_KB:
            return with_labels(links, kb)
        docs = zip(mentions.docs, links, strict=True)
        return [with_rs_numbers(doc.text, of_doc, kb) for doc, of_doc in docs]


def with_rs_numbers(text: str, links: list[Link], kb: KnowledgeBase) -> list[Link]:
    """Links of a document. Variants without an id of another vocabulary have the rs number that the
    text says, or that the knowledge base has of the change and its gene, see `io.nlm.read_clinvar`.
    """
    variants = [x for x in links if x.label == VARIANT and all(i.startswith(DBSNP) for i in x.ids)]
    numbers = rs_numbers(text, [(x.start, x.end) for x in variants])
    said = {
        id(x): _with_rs_number(text, x, rs, links, kb)
        for x, rs in zip(variants, numbers, strict=True)
    }
    return [said.get(id(x), x) for x in links]


def _with_rs_number(
    text: str, link: Link, rs: str, links: Sequence[Link], kb: KnowledgeBase
) -> Link:
    id, evidence = DBSNP + rs, "text"
    if not rs and VARIANT in kb.type_names and (change := hgvs_of(text, link)):
        gene = gene_of(text, link.start, link.end, links)
        id, evidence = kb.canonical(f"{gene}:{change}"), "table"
    if not id.startswith(DBSNP + "rs"):
        is_named = any(map(_is_named, link.candidates[:1]))
        return link if is_named else replace(link, ids=())  # numbers are not alike
    found = Candidate(id, 1.0, id.removeprefix(DBSNP), evidence)
    rest = (c for c in link.candidates if c.id != id)
    return replace(link, ids=(id,), candidates=(found, *rest))


def rank_candidates(
    model: Model[Any, Any], generator: CandidateGenerator, mentions: Mentions
) -> Ranking:
    """Rank the candidates of mentions, and of the parts of composites, in one batch.

    model (Model): The linker's, which may read the documents.
    """
    settings, asked = generator.state.settings, mentions.with_parts()
    is_reading = reading_evidence(model) in settings.evidence and reads(model)
    if mentions.likely is not None and not (is_reading or generator.state.statistics.counts):
        # Names need no search: their concepts are known, and nobody prefers others.
        candidates = rank_names(generator.kb, asked, coherence=settings.coherence)
    else:
        n, coherence = len(mentions.spans), settings.coherence
        candidates = rank_mentions(generator, asked, n=n, coherence=coherence)
    if candidates and is_reading:
        reading: Reading = METHODS[model.name].read(model, generator, asked, candidates)
        candidates = reading.rank(generator.state.reading, top=settings.max_candidates)
    return Ranking(generator, mentions, asked, candidates)


def _weighed(mentions: Mentions, candidates: Sequence[Candidates]) -> Iterator[Candidates]:
    """Candidates of mentions, with their probability times that of their mention."""
    if mentions.likely is None:
        yield from candidates[: len(mentions.spans)]
        return
    for found, likely in zip(candidates, mentions.likely, strict=True):
        yield tuple(replace(c, score=round(c.score * likely, 4)) for c in found)


def weigh_organisms(
    kb: KnowledgeBase,
    mentions: Mentions,
    candidates: Sequence[Candidates],
    *,
    n: int,
    nil_threshold: float,
) -> list[Candidates]:
    """Candidates with the probability that the document means their organism.

    Those of concepts that are of no organism stay as they are.

    candidates (Sequence): Of each mention.
    n (int): How many mentions say which organisms their documents name: the first ones. Behind
        them come the parts of composites.
    nil_threshold (float): From which probability on a mention is an organism.
    """
    if not any(name.startswith(ORGANISM) for name in kb.type_names):
        return list(candidates)
    organism_of = _organisms(kb, {c.id for of_mention in candidates for c in of_mention})
    spans, owners = mentions.spans, mentions.owners
    wholes: list[list[Span]] = [[] for _ in mentions.docs]
    before: list[dict[int, str]] = [{} for _ in mentions.docs]  # organism by its end
    counts = [Counter[str]() for _ in mentions.docs]
    for span, owner, found in zip(spans[:n], owners, candidates, strict=False):
        wholes[owner].append(span)
        if found and found[0].id.startswith(ORGANISM) and found[0].score >= nil_threshold:
            before[owner][span.end_char] = found[0].id
            counts[owner][found[0].id] += 1
    for number, doc in enumerate(mentions.docs):
        people = [m for m in _PEOPLE.finditer(doc.text) if m.end() not in before[number]]
        if people:
            counts[number][_HUMAN_ID] += len(people)
    n_cells = [sum(span.label_ == CELL_LINE for span in of_doc) for of_doc in wholes]
    moved: dict[int, list[Candidate]] = {}
    for number, (span, owner, found) in enumerate(zip(spans, owners, candidates, strict=True)):
        if not counts[owner]:
            continue
        # What stands before a composite stands before its parts: "mouse BRCA1 and TP53".
        whole = span if number < n else _whole_of(span, wholes[owner])
        places = range(whole.start_char - _NEAR, whole.start_char + 1)
        nearest = next((before[owner][place] for place in places if place in before[owner]), None)
        moved[number] = _weigh(found, organism_of, _likely(counts[owner], nearest, n_cells[owner]))
    weighed = list(candidates)
    for number, found in zip(moved, best_first(moved.values()), strict=True):
        weighed[number] = found
    return weighed


def _organisms(kb: KnowledgeBase, ids: set[str]) -> dict[str, str]:
    """The organism of each concept that is of one."""
    known = sorted(ids)
    of_rows = kb.types_of_all(kb.find_all(known))
    organisms = (next((t for t in types if t.startswith(ORGANISM)), "") for types in of_rows)
    return {id: organism for id, organism in zip(known, organisms, strict=True) if organism}


def _whole_of(part: Span, mentions: Sequence[Span]) -> Span:
    return next(m for m in mentions if m.start <= part.start and part.end <= m.end)


def _likely(counts: Counter[str], before: str | None, n_cells: int) -> dict[str, float]:
    """Probability of each organism, given how often each is named."""
    human = _HUMAN + _CELL_LINES * log1p(n_cells)
    weights = {
        id: exp(_OFTEN * log1p(counts[id]) + _BEFORE * (id == before) + human * (id == _HUMAN_ID))
        for id in dict.fromkeys([*counts, _HUMAN_ID])
    }
    total = sum(weights.values())
    return {id: weight / total for id, weight in weights.items()}


def _weigh(
    candidates: Candidates, organism_of: Mapping[str, str], likely: Mapping[str, float]
) -> list[Candidate]:
    """Candidates of several organisms compete: a name that several have is that of the likeliest,
    however often one of them was mentioned in training.
    """
    groups: dict[str, list[Candidate]] = {}
    for c in candidates:
        groups.setdefault(organism_of.get(c.id, ""), []).append(c)
    moved = groups.pop("", [])
    named = [organism for organism, own in groups.items() if any(map(_is_named, own))]
    total = sum(c.score for organism in named for c in groups[organism])
    for organism, own in groups.items():
        factor = likely.get(organism, 0.0)
        if organism in named:
            factor *= total / max(sum(c.score for c in own), _LEAST)
        moved += [replace(c, score=round(c.score * factor, 4)) for c in own]
    return moved


def _is_named(candidate: Candidate) -> bool:
    """Whether the mention is a name of the concept, and not only like one."""
    return bool({"exact", "memory"} & set(candidate.evidence.split("+")))

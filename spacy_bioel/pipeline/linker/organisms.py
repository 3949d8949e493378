"""Organisms that the genes of a document are of.

A symbol is a gene in each organism that has it. The organisms that a document names, how often, and
the one that stands before the mention ("human BRCA1") say which, as in SR4GN (Wei et al. 2012,
https://doi.org/10.1371/journal.pone.0038460). "Patients" are human, whether they are found as an
organism or not. In a document that names none, nothing is known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import exp, log1p

from spacy.tokens import Span

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.linker.queries import Mentions, best_first
from spacy_bioel.types import CELL_LINE, ORGANISM, Candidate

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


def weigh_organisms(
    kb: KnowledgeBase,
    mentions: Mentions,
    candidates: Sequence[Candidates],
    *,
    n_mentions: Sequence[int],
    nil_threshold: float,
) -> list[Candidates]:
    """Candidates with the probability that the document means their organism; flat.

    Those of concepts that are of no organism stay as they are.

    candidates (Sequence): Of each mention; flat.
    n_mentions (Sequence[int]): How many of each document say which organisms it names: the first
        ones. Behind them come the parts of composites.
    nil_threshold (float): From which probability on a mention is an organism.
    """
    if not any(name.startswith(ORGANISM) for name in kb.type_names):
        return list(candidates)
    organism_of = _organisms(kb, {c.id for of_mention in candidates for c in of_mention})
    rest = iter(candidates)
    weighed: list[Candidates] = []
    for doc, spans, n in zip(mentions.docs, mentions.spans, n_mentions, strict=True):
        of_doc = list(islice(rest, len(spans)))
        named = [
            (span, found[0].id)
            for span, found in zip(spans[:n], of_doc, strict=False)
            if found and found[0].id.startswith(ORGANISM) and found[0].score >= nil_threshold
        ]
        before = {span.end_char: id for span, id in named}
        people = [m for m in _PEOPLE.finditer(doc.text) if m.end() not in before]
        counts = Counter([id for _, id in named] + [_HUMAN_ID] * len(people))
        if not counts:
            weighed += of_doc
            continue
        n_cells = sum(span.label_ == CELL_LINE for span in spans[:n])
        # What stands before a composite stands before its parts: "mouse BRCA1 and TP53".
        wholes = [*spans[:n], *(_whole_of(part, spans[:n]) for part in spans[n:])]
        for whole, found in zip(wholes, of_doc, strict=True):
            likely = _likely(counts, _stands_before(whole, before), n_cells)
            weighed.append(_weigh(found, organism_of, likely))
    return weighed


def _organisms(kb: KnowledgeBase, ids: set[str]) -> dict[str, str]:
    """The organism of each concept that is of one."""
    known = sorted(ids)
    of_rows = kb.types_of_all(kb.find_all(known))
    organisms = (next((t for t in types if t.startswith(ORGANISM)), "") for types in of_rows)
    return {id: organism for id, organism in zip(known, organisms, strict=True) if organism}


def _whole_of(part: Span, mentions: Sequence[Span]) -> Span:
    return next(m for m in mentions if m.start <= part.start and part.end <= m.end)


def _stands_before(span: Span, ends: Mapping[int, str]) -> str | None:
    places = range(span.start_char - _NEAR, span.start_char + 1)
    return next((ends[place] for place in places if place in ends), None)


def _likely(counts: Counter[str], before: str | None, n_cells: int) -> dict[str, float]:
    """Probability of each organism, given how often each is named."""
    human = _HUMAN + _CELL_LINES * log1p(n_cells)
    weights = {
        id: exp(_OFTEN * log1p(counts[id]) + _BEFORE * (id == before) + human * (id == _HUMAN_ID))
        for id in {*counts, _HUMAN_ID}
    }
    total = sum(weights.values())
    return {id: weight / total for id, weight in weights.items()}


def _weigh(
    candidates: Candidates, organism_of: Mapping[str, str], likely: Mapping[str, float]
) -> Candidates:
    """Candidates of several organisms compete: a name that several have is that of the likeliest,
    however often one of them was mentioned in training.
    """
    groups: dict[str, list[Candidate]] = {}
    for c in candidates:
        groups.setdefault(organism_of.get(c.id, ""), []).append(c)
    moved = groups.pop("", [])
    named = {organism for organism, own in groups.items() if any(map(_is_named, own))}
    total = sum(c.score for organism in named for c in groups[organism])
    for organism, own in groups.items():
        factor = likely.get(organism, 0.0)
        if organism in named:
            factor *= total / max(sum(c.score for c in own), _LEAST)
        moved += [replace(c, score=round(c.score * factor, 4)) for c in own]
    return best_first(moved)


def _is_named(candidate: Candidate) -> bool:
    """Whether the mention is a name of the concept, and not only like one."""
    return bool({"exact", "memory"} & set(candidate.evidence.split("+")))

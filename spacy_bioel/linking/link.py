"""Link mentions: `link` resolves a `Batch` of mentions to concept ids.

1. Before `link` is called, `linking.find` finds the spans, `Batch.of` expands abbreviations, and
   rules prepare the strings to look up and split composites (`RuleSet.prepare`).
2. `rank_candidates` calls `rank_by_string`. The generator searches each knowledge base once for all
   strings, scores concepts by their evidence, drops concepts that a mention's label does not
   allow, and caches candidates by string and label. `agree_in_documents` then compares the
   mentions of a document, and a contextual model, such as a cross-encoder, reranks candidates.
3. `decide` lets rules rescore candidates, for example genes by the organisms in the document.
   `decide_one` then chooses a link, and rules add facts, such as the HGVS form of a variant.

Each step rounds scores to four decimals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp
from operator import itemgetter

import numpy as np
from spacy.tokens import Span

from spacy_bioel.batch import AS_NAME, Batch, LabelledString, Query, Ranked
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.find import add_hidden_names
from spacy_bioel.types import Candidate, Link, best_first, is_tied


def link(
    batch: Batch,
    generator: CandidateGenerator,
    *,
    nil_threshold: float | None = None,
) -> tuple[Batch, list[list[Link]]]:
    """Link the mentions in each document.

    If a mention is NIL but ends with an unambiguous name, as in "patients with NSCLC", the name is
    linked instead.

    batch (Batch): Mentions from `linking.find`, with or without their candidates.
    nil_threshold (float | None): Minimum score of a link; None: use the setting.
    RETURNS (tuple): The batch with its links, and the links of each document. If names replaced
        mentions, the batch contains only the affected documents (enough to explain one text).
    RAISES BioelError: [B497, B500, B503] if rules fail.
    """
    decided = decide(rank_candidates(batch, generator), generator, nil_threshold=nil_threshold)
    links = decided.links_of_docs()
    doc_numbers, named = add_hidden_names(decided, generator)
    if doc_numbers:
        decided = decide(rank_candidates(named, generator), generator, nil_threshold=nil_threshold)
        for number, of_doc in zip(doc_numbers, decided.links_of_docs(), strict=True):
            links[number] = of_doc
    return decided, links


def rank_candidates(batch: Batch, generator: CandidateGenerator) -> Batch:
    """Rank candidates for mentions and composite parts by string and, if the linker has a
    contextual model, by context. A batch that already has candidates is returned unchanged."""
    if batch.candidates:
        return batch
    batch, state = rank_by_string(batch, generator), generator.state
    if state.rescorer is not None and batch.candidates:
        scores = state.rescorer.score(generator, batch)
        ranked = scores.rank(state.rescoring, top=state.settings.max_candidates)
        batch = replace(batch, candidates=ranked)
    return batch


def rank_by_string(batch: Batch, generator: CandidateGenerator) -> Batch:
    """Rank candidates for mentions and composite parts by string.

    All strings are ranked together, including other strings that rules will ask for.
    """
    state = generator.state
    if len(parts := batch.parts()):
        batch = batch.followed_by(generator.rules.prepare(parts))
    labels = batch.labels
    if batch.probabilities and not (state.rescorer or state.alias_table.counts):
        # Dictionary names need no search unless a contextual model or an alias table could prefer
        # other concepts.
        pairs = zip(batch.labels, batch.probabilities, strict=True)
        labels = [label if p is None else AS_NAME for label, p in pairs]
    strings = list(zip(batch.strings, labels, strict=True))
    wanted = {
        (string, label)
        for query, label in zip(batch.queries, labels, strict=True)
        for string in ((query.whole, *query.others) if label != AS_NAME else ())
    }
    ranked = {
        **(generator.rank(sorted(wanted)) if wanted else {}),
        **generator.rank_names([string for string, label in strings if label == AS_NAME]),
    }
    agreed = agree_in_documents(batch, strings, ranked, weight=state.settings.coherence)
    return replace(batch, candidates=agreed)


def agree_in_documents(
    batch: Batch, pairs: Sequence[LabelledString], ranked: Ranked, *, weight: float
) -> list[tuple[Candidate, ...]]:
    """Raise the scores of candidates that a mention shares with others in its document.

    Documents use several names for a concept ("renal impairment", then "renal insufficiency"). A
    candidate's score is multiplied by exp(weight * its best score for another string). The
    mention's scores are then scaled back to their previous sum. Composite parts are not compared.

    RETURNS (list): The candidates of each mention and part.
    """
    keys = list(zip(batch.owners, pairs, strict=True))
    mentions = list(dict.fromkeys(keys[: batch.n_wholes]))
    support: dict[tuple[int, str], dict[str, float]] = defaultdict(dict)
    for owner, pair in mentions:
        for c in ranked[pair]:
            by_string = support[owner, c.id]
            by_string[pair[0]] = max(by_string.get(pair[0], 0.0), c.score)
    # Two scores per concept suffice: if the best is the string's own, use the second best.
    best_two = {
        key: sorted(scores.items(), key=itemgetter(1), reverse=True)[:2]
        for key, scores in support.items()
    }
    rescored: list[tuple[Candidate, ...]] = []
    for owner, pair in mentions:
        candidates, raised = ranked[pair], []
        for c in candidates:
            others = [score for other, score in best_two[owner, c.id] if other != pair[0]]
            raised.append(c.score * exp(weight * others[0]) if others else c.score)
        if raised != (scores := [c.score for c in candidates]):
            # Preserve the sum of scores: agreement favours one concept over another, not over NIL.
            # Concepts in different knowledge bases do not compete, so the sum can exceed 1.
            growth = sum(raised) / sum(scores)
            candidates = tuple(  # dataclasses.replace is several times slower
                Candidate(c.id, round(min(x / growth, 1.0), 4), c.name, c.evidence, c.kb)
                for c, x in zip(candidates, raised, strict=True)
            )
        rescored.append(candidates)
    agreed = dict(zip(mentions, best_first(rescored), strict=True))
    return [agreed.get(key) or ranked[key[1]] for key in keys]


def decide(
    batch: Batch, generator: CandidateGenerator, *, nil_threshold: float | None = None
) -> Batch:
    """Let the rules rescore the candidates, then choose each mention's link.

    Unless a composite reading is chosen, a mention is NIL if it has no candidates, if its best
    candidate scores below the threshold, or if its two best candidates are tied. After the tie
    check, a dictionary name's score is multiplied by the probability that the name is meant.
    """
    settings, rules = generator.state.settings, generator.rules
    threshold = settings.nil_threshold if nil_threshold is None else nil_threshold
    batch = rules.rescore(replace(batch, nil_threshold=threshold))
    candidates = [of_mention[: settings.max_candidates] for of_mention in batch.candidates]
    parts = iter(candidates[batch.n_wholes :])
    links = []
    for number in range(batch.n_wholes):
        span, query, whole = batch.spans[number], batch.queries[number], candidates[number]
        part_candidates = {part: next(parts) for part in query.parts}
        tied = is_tied(whole)
        if batch.probabilities and (probability := batch.probabilities[number]) is not None:
            whole = _scaled(whole, probability)
            part_candidates = {p: _scaled(c, probability) for p, c in part_candidates.items()}
        link = decide_one(span, query, whole, part_candidates, nil_threshold=threshold)
        links.append(replace(link, ids=()) if tied and len(link.ids) == 1 else link)
    batch = batch.without_parts()
    if batch.probabilities:
        links = with_labels(links, batch.probabilities, generator.kb)
    batch = replace(batch, links=links)
    pairs = zip(links, rules.facts(batch), strict=True)
    return replace(batch, links=[replace(one, facts=f) if f else one for one, f in pairs])


def _scaled(candidates: Iterable[Candidate], factor: float) -> tuple[Candidate, ...]:
    return tuple(replace(c, score=round(c.score * factor, 4)) for c in candidates)


def decide_one(
    span: Span,
    query: Query,
    candidates: tuple[Candidate, ...],
    part_candidates: Mapping[str, tuple[Candidate, ...]],
    *,
    nil_threshold: float,
) -> Link:
    """Choose a mention's link: one concept, several (composite), or none (NIL).

    A composite reading is chosen if its parts are different concepts and if the reading is more
    probable than the whole mention, so "head and neck neoplasms" remains one concept. A reading is
    as probable as its least probable part; unless its parts agree, this probability is raised to
    the power of the number of parts, to be safe. If the parts agree and one is also the concept of
    the whole, the reading only has to exceed the threshold: "CDK4/6" also names Cdk4 in flies.
    """
    whole = candidates
    whole_ids = ids = tuple(c.id for c in whole[:1] if c.score >= nil_threshold)
    best = candidates[0].score if candidates else 0.0
    for reading in query.readings:
        if not all(part_candidates[part] for part in reading):
            continue
        firsts = [part_candidates[part][0] for part in reading]
        different = {first.id: first for first in firsts}
        probability = min(first.score for first in firsts)
        if not query.parts_agree:
            probability = probability ** len(reading)
        includes_whole = query.parts_agree and ids == whole_ids and different.keys() >= set(ids)
        required = nil_threshold if includes_whole else max(best, nil_threshold)
        if probability > required and len(different) == len(reading):
            best, ids = probability, tuple(different)
            others = [c for c in whole if c.id not in different]
            candidates = (*different.values(), *others)
    return Link(span.start_char, span.end_char, span.label_, ids, candidates)


def with_labels(
    links: Sequence[Link], probabilities: Sequence[float | None], kb: KnowledgeBase
) -> list[Link]:
    """Label unlabelled dictionary names with the label of their linked or best concept."""
    concepts = [next(iter(link.ids or [c.id for c in link.candidates]), "") for link in links]
    rows, index = np.unique(kb.find_all(concepts), return_inverse=True)
    labels = [kb.title] * int((rows < 0).sum()) + kb.labels_of(rows[rows >= 0])
    rows_of_links = zip(links, probabilities, index.tolist(), strict=True)
    return [
        link if link.label or p is None else replace(link, label=labels[i])
        for link, p, i in rows_of_links
    ]

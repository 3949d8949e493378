"""Counts of one document when the linker was given the gold mentions.

Ids are canonical, sorted and unique, as in `counts`. Ranks are counted within the candidates of a
link, at most the linker's `max_candidates`: a concept beyond them counts as not found.

For a composite, `count_gold_strict` requires all its ids and `count_gold_any` one of them. Its rank
is 1 plus the number of wrong candidates before the last required id.
"""

from __future__ import annotations

from collections.abc import Callable

from spacy_bioel.scoring.counts import Counts, Golds, Ids, Links
from spacy_bioel.types import Candidate, Link, Mention


def count_gold_strict(gold: Golds, links: Links) -> Counts:
    """Count linking of given mentions; a composite is right only with exactly its ids.

    accuracy@1 compares the set of linked ids with the set of gold ids; NIL is wrong, for all these
    mentions have an id. accuracy@1_nil_ignored replaces NIL by the best candidate: it measures the
    ranking, without the threshold. recall@k requires all gold ids among the first k candidates
    (for a composite of more than k ids, among as many as it has ids). mrr is the mean of 1 / rank,
    0 where a gold id is no candidate. The denominator is all gold mentions with an id, whether in
    the knowledge base or not, predicted or not.

    Normalised metrics have the same numerators. Their denominator is the mentions served by
    candidate generation: all gold ids are candidates, or were linked. A normalised metric times
    the share of these mentions, `among_candidates` / `gold`, is the metric itself.
    """
    return _count_given(gold, links, right=_equal, needed=len)


def count_gold_any(gold: Golds, links: Links) -> Counts:
    """Count linking of given mentions; a composite is right with one of its ids.

    The protocol of BioSyn, SapBERT and others. Metrics and denominators are those of
    `count_gold_strict`, with the best-ranked gold id instead of all gold ids.
    """
    return _count_given(gold, links, right=_intersect, needed=_one)


def _count_given(
    gold: Golds,
    links: Links,
    *,
    right: Callable[[Ids, Ids], bool],
    needed: Callable[[Ids], int],
) -> Counts:
    """Count one document.

    right (Callable): Compares linked ids with gold ids.
    needed (Callable): Number of the gold ids that must be found.
    """
    counts: Counts = dict.fromkeys(
        (
            "gold", "right", "right_nil_ignored", "recalled@1", "recalled@5", "recalled@10",
            "reciprocal_ranks", "among_candidates", "tied", "right_at_best", "right_at_worst",
            "nil", "right_nil", "not_predicted", "nil_not_predicted", "widened",
        ),
        0,
    )  # fmt: skip
    for mention, link in pair_by_offsets(gold, links):
        if not mention.ids:
            counts["nil"] += 1
            counts["right_nil"] += link is not None and not link.ids
            counts["nil_not_predicted"] += link is None
            continue
        counts["gold"] += 1
        if link is None:
            counts["not_predicted"] += 1
            continue
        is_right = right(link.ids, mention.ids)
        hit = right(link.ids or tuple(c.id for c in link.candidates[:1]), mention.ids)
        tied = _tied_ids(link)
        outcomes = [right((id_,), mention.ids) for id_ in tied] or [is_right]
        counts["widened"] += (link.start, link.end) != (mention.start, mention.end)
        counts["right"] += is_right
        counts["right_nil_ignored"] += hit
        counts["tied"] += bool(tied)
        counts["right_at_best"] += any(outcomes)
        counts["right_at_worst"] += all(outcomes)
        n_needed = needed(mention.ids)
        last = _place_of(n_needed, mention.ids, link.candidates)
        for k in (1, 5, 10):
            counts[f"recalled@{k}"] += 0 < last <= max(k, n_needed)
        counts["reciprocal_ranks"] += 1 / (last - n_needed + 1) if last else 0.0
        counts["among_candidates"] += hit or last > 0
    return counts


def _place_of(n: int, gold: Ids, candidates: tuple[Candidate, ...]) -> int:
    """Rank, from 1, of the n-th candidate with a gold id; 0: fewer than n are candidates."""
    places = [i for i, candidate in enumerate(candidates, start=1) if candidate.id in gold]
    return places[n - 1] if len(places) >= n else 0


def pair_by_offsets(gold: Golds, links: Links) -> list[tuple[Mention, Link | None]]:
    """Find the link of each gold mention, where the linker was given the gold mentions.

    Links are matched by equal offsets (and label, if several have these offsets). A mention that
    begins or ends inside a token was widened to whole tokens: its link is the shortest one that
    covers it, has its label and matches no other mention.

    RETURNS (list[tuple[Mention, Link | None]]): In the order of `gold`; None: no link.
    """
    exact = {(x.start, x.end, x.label): x for x in reversed(links)}
    by_span = {(x.start, x.end): x for x in reversed(links)}
    gold_spans = {(m.start, m.end) for m in gold}
    spare = sorted(
        (x for x in links if (x.start, x.end) not in gold_spans),
        key=lambda x: (x.end - x.start, x.start),
    )
    pairs: list[tuple[Mention, Link | None]] = []
    for m in gold:
        link = exact.get((m.start, m.end, m.label)) or by_span.get((m.start, m.end))
        if link is None:
            covering = (
                x for x in spare if x.start <= m.start and m.end <= x.end and x.label == m.label
            )
            link = next(covering, None)
        pairs.append((m, link))
    return pairs


def _tied_ids(link: Link) -> Ids:
    """Ids tied with the linked one for the top score, itself included; () without a tie."""
    if len(link.ids) != 1 or not link.candidates:
        return ()
    best = max(candidate.score for candidate in link.candidates)
    tied = tuple(c.id for c in link.candidates if c.score == best)
    return tied if len(tied) > 1 and link.ids[0] in tied else ()


def _equal(ids: Ids, gold: Ids) -> bool:
    return ids == gold


def _intersect(ids: Ids, gold: Ids) -> bool:
    return not set(gold).isdisjoint(ids)


def _one(ids: Ids) -> int:
    return 1

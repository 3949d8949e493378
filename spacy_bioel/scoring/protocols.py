"""The protocols by name, and `evaluate`: gold documents and predicted links in, numbers out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.scoring import counts, given
from spacy_bioel.scoring.measure import Counts, Measurement, Metric, measure
from spacy_bioel.types import AnnotatedText, Candidate, Link, Mention

_PRECISION = ("right_predicted", "predicted")
_RECALL = ("right_gold", "gold")
_F1 = {
    "precision": Metric((_PRECISION,), n="gold"),
    "recall": Metric((_RECALL,), n="gold"),
    "f1": Metric((_PRECISION, _RECALL), n="gold"),
}
_ACCURACY = {
    "accuracy@1": Metric((("right", "gold"),), n="gold"),
    "accuracy@1_with_nil": Metric((("right_decided", "gold"),), n="gold"),
    "accuracy@1_normalised": Metric((("right", "among_candidates"),), n="among_candidates"),
    "recall@1": Metric((("recalled@1", "gold"),), n="gold"),
    "recall@5": Metric((("recalled@5", "gold"),), n="gold"),
    "recall@10": Metric((("recalled@10", "gold"),), n="gold"),
    "map": Metric((("reciprocal_ranks", "gold"),), n="gold"),
    "map_normalised": Metric((("reciprocal_ranks", "among_candidates"),), n="among_candidates"),
    "accuracy@1_tie_optimistic": Metric((("right_at_best", "gold"),), n="gold"),
    "accuracy@1_tie_pessimistic": Metric((("right_at_worst", "gold"),), n="gold"),
    "nil_accuracy": Metric((("right_nil", "nil"),), n="nil"),
}


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to compare predictions with gold annotations.

    count (Callable): Counts one document, see `counts` and `given`.
    metrics (dict[str, Metric]): What is computed from the summed counts.
    given_mentions (bool): The linker is given the gold mentions; otherwise it sees only text.
    """

    count: Callable[[Sequence[Mention], Sequence[Link]], Counts]
    metrics: dict[str, Metric]
    given_mentions: bool = False


PROTOCOLS: dict[str, Protocol] = {
    "mention": Protocol(counts.count_mentions, _F1),
    "mention_unlabelled": Protocol(counts.count_unlabelled_mentions, _F1),
    "end_to_end": Protocol(counts.count_strict, _F1),
    "end_to_end_any": Protocol(counts.count_any_id, _F1),
    "end_to_end_with_nil": Protocol(counts.count_strict_with_nil, _F1),
    "partial_binary": Protocol(counts.count_partial_binary, _F1),
    "partial_fractional": Protocol(counts.count_partial_fractional, _F1),
    "document": Protocol(counts.count_document_ids, _F1),
    "gold": Protocol(given.count_gold_strict, _ACCURACY, given_mentions=True),
    "gold_any": Protocol(given.count_gold_any, _ACCURACY, given_mentions=True),
}
ALIASES = {"strict": "end_to_end", "partial": "partial_binary"}


def get_protocol(name: str) -> tuple[str, Protocol]:
    """Look a protocol up by its name or alias.

    RETURNS (tuple[str, Protocol]): Its proper name, and the protocol.
    RAISES BioelError: [B081] when there is none of this name.
    """
    proper = ALIASES.get(name, name)
    if proper not in PROTOCOLS:
        known = ", ".join([*PROTOCOLS, *ALIASES])
        raise BioelError(Errors.B081.format(name=name, known=known))
    return proper, PROTOCOLS[proper]


def evaluate(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    protocols: Iterable[str],
    canonical: Callable[[str], str] = str,
    in_kb: Callable[[str], bool] | None = None,
    per_label: bool = True,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[Measurement]:
    """Score the predicted links of documents against their gold mentions.

    gold (Sequence[AnnotatedText]): The documents.
    predicted (Sequence[Sequence[Link]]): The links of each document. For the protocols "gold"
        and "gold_any" they must be predictions on the gold mentions.
    protocols (Iterable[str]): Names in PROTOCOLS, or aliases.
    canonical (Callable[[str], str]): Current id of a concept; applied to both sides.
    in_kb (Callable[[str], bool] | None): Whether a canonical id can be predicted at all. Gold
        mentions with other ids count as wrong; with `in_kb` the details say how many those are:
        `missing_from_kb` (none of the ids is known) and `partly_missing_from_kb`.
    per_label (bool): Also measure each label alone: its gold mentions against its predictions.
    n_resamples, seed (int): Of the bootstrap over documents.
    RETURNS (list[Measurement]): By protocol, then label (all labels first), then metric.
    RAISES BioelError: [B080] when the numbers of documents differ, [B081] for an unknown protocol.
    """
    chosen = [get_protocol(name) for name in protocols]
    if len(gold) != len(predicted):
        raise BioelError(Errors.B080.format(n_gold=len(gold), n_predicted=len(predicted)))
    # Of all candidates of all mentions: the same few thousand again and again.
    canonical = cache(canonical)
    golds = [[_canonical_mention(m, canonical) for m in text.mentions] for text in gold]
    links = [[canonical_link(link, canonical) for link in doc_links] for doc_links in predicted]
    labels = [""] + (_labels(golds, links) if per_label else [])
    found = []
    for name, protocol in chosen:
        for label in labels:
            rows = _count_documents(golds, links, protocol=protocol, label=label, in_kb=in_kb)
            found += measure(
                rows,
                protocol.metrics,
                protocol=name,
                label=label,
                n_resamples=n_resamples,
                seed=seed,
            )
    return found


def canonical_link(link: Link, canonical: Callable[[str], str] = str) -> Link:
    """Bring the ids of a link into the form that `counts` compares.

    RETURNS (Link): Canonical ids, sorted and unique; one candidate a concept, the best one.
    """
    best: dict[str, Candidate] = {}
    for candidate in link.candidates:
        id_ = canonical(candidate.id)
        best.setdefault(id_, replace(candidate, id=id_))
    ids = tuple(sorted({canonical(id_) for id_ in link.ids}))
    return replace(link, ids=ids, candidates=tuple(best.values()))


def _canonical_mention(mention: Mention, canonical: Callable[[str], str]) -> Mention:
    return replace(mention, ids=tuple(sorted({canonical(id_) for id_ in mention.ids})))


def _labels(golds: list[list[Mention]], links: list[list[Link]]) -> list[str]:
    of_gold = {m.label for mentions in golds for m in mentions}
    of_links = {x.label for doc_links in links for x in doc_links}
    return sorted((of_gold | of_links) - {""})


def _count_documents(
    golds: list[list[Mention]],
    links: list[list[Link]],
    *,
    protocol: Protocol,
    label: str,
    in_kb: Callable[[str], bool] | None,
) -> list[Counts]:
    rows = []
    for mentions, doc_links in zip(golds, links, strict=True):
        if label:
            mentions = [m for m in mentions if m.label == label]
            doc_links = [x for x in doc_links if x.label == label]
        row = protocol.count(mentions, doc_links)
        rows.append(row | (_count_missing(mentions, in_kb) if in_kb else {}))
    return rows


def _count_missing(mentions: Iterable[Mention], in_kb: Callable[[str], bool]) -> Counts:
    missing: Counts = {"missing_from_kb": 0, "partly_missing_from_kb": 0}
    for mention in mentions:
        known = [in_kb(id_) for id_ in mention.ids]
        missing["missing_from_kb"] += bool(known) and not any(known)
        missing["partly_missing_from_kb"] += any(known) and not all(known)
    return missing

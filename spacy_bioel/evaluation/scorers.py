"""Registered spaCy scorers for the training loop, based on `protocols`.

Gold mentions come from `example.reference.spans[gold_key]`, predictions from
`example.predicted.spans[spans_key]`; they are compared by character offsets. `kb_id_` holds ids
joined by "|"; "" and "NIL" both mean no id.

`spacy evaluate` prints keys that begin with `spans_` and the name of a span group, and no others of
ours: with `--spans-key bioel` mention detection, with `--spans-key bioel_link` links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from spacy.tokens import Span
from spacy.training import Example

from spacy_bioel.evaluation.protocols import PROTOCOLS
from spacy_bioel.types import ANNOTATES, Link, Mention

Scores = dict[str, Any]
Scorer = Callable[..., Scores]
Pair = tuple[list[Mention], list[Link]]


def make_mention_scorer_v1(spans_key: str = "bioel", gold_key: str = "bioel_gold") -> Scorer:
    """Registered as `spacy-bioel.mention_scorer.v1`: mention detection by offsets and label.

    RETURNS (Scorer): Computes `bioel_mention_p`, `_r` and `_f` in [0, 1]; None without gold. Also
        as `spans_KEY_p`, `_r` and `_f`, and of each label as `spans_KEY_per_type`, for the KEY of
        the group.
    """
    # Partial functions, not closures, so that pipelines with them can be pickled.
    return partial(_score, spans_key=spans_key, gold_key=gold_key, mentions=True, links=False)


def make_link_scorer_v1(spans_key: str = "bioel", gold_key: str = "bioel_gold") -> Scorer:
    """Registered as `spacy-bioel.link_scorer.v1`: strict end to end over linked mentions.

    RETURNS (Scorer): Computes `bioel_link_p`, `_r` and `_f`, and `bioel_link_acc`: the share of
        exactly right ids among gold mentions with an id whose offsets were predicted; 0 when none
        was predicted. All are in [0, 1]; None without gold, as in spaCy's own scorers. A
        `bioel_linker` passes its KB's canonical ids: a retired id counts as its replacement. P, R
        and F are also `spans_KEY_link_p`, `_r`, `_f` and `_per_type`, for the KEY of the group.
    """
    return partial(_score, spans_key=spans_key, gold_key=gold_key, mentions=False, links=True)


def make_finder_scorer_v1(spans_key: str = "bioel", gold_key: str = "bioel_gold") -> Scorer:
    """Registered as `spacy-bioel.finder_scorer.v1`: both scorers above, for a linker that finds
    its mentions itself."""
    return partial(_score, spans_key=spans_key, gold_key=gold_key, mentions=True, links=True)


def _score(
    examples: Iterable[Example],
    *,
    spans_key: str,
    gold_key: str,
    mentions: bool,
    links: bool,
    canonical: Callable[[str], str] = str,
    **settings: object,
) -> Scores:
    pairs = list(_pairs(examples, spans_key, gold_key, canonical))
    scores: Scores = {}
    if mentions:
        scores |= _scores("mention", pairs, "bioel_mention", f"spans_{spans_key}")
    if links:
        scores |= _scores("end_to_end", pairs, "bioel_link", f"spans_{spans_key}_link")
        scores["bioel_link_acc"] = _accuracy_of_found(pairs)
    return scores


def _pairs(
    examples: Iterable[Example], spans_key: str, gold_key: str, canonical: Callable[[str], str]
) -> Iterator[Pair]:
    def ids_of(span: Span) -> tuple[str, ...]:
        return tuple(sorted({canonical(i) for i in set(span.kb_id_.split("|")) - {"", "NIL"}}))

    for example in examples:
        gold_spans = example.reference.spans.get(gold_key, ())
        # Labels that were looked for; none given: all.
        annotates = getattr(gold_spans, "attrs", {}).get(ANNOTATES)
        yield (
            [Mention(s.start_char, s.end_char, s.label_, ids_of(s)) for s in gold_spans],
            [
                Link(s.start_char, s.end_char, s.label_, ids_of(s))
                for s in example.predicted.spans.get(spans_key, ())
                if not annotates or s.label_ in annotates
            ],
        )


def _accuracy_of_found(pairs: Iterable[Pair]) -> float | None:
    """Share of right ids among gold mentions with an id whose offsets were predicted."""
    at_gold = []
    for gold, links in pairs:
        # The protocol also pairs a mention with a link that covers it.
        places = {(mention.start, mention.end) for mention in gold}
        at_gold.append((gold, [x for x in links if (x.start, x.end) in places]))
    total = _sum_counts("gold", at_gold)
    if not total["gold"]:
        return None
    # 0, not None, when nothing was found: spaCy's training loop ignores a score for the rest of
    # the training once it has been None.
    n_found = total["gold"] - total["not_predicted"]
    return total["right"] / n_found if n_found else 0.0


def _sum_counts(protocol: str, pairs: Iterable[Pair]) -> Counter[str]:
    total: Counter[str] = Counter()
    for gold, links in pairs:
        total.update(PROTOCOLS[protocol].count(gold, links))  # type: ignore[arg-type]
    return total


def _scores(protocol: str, pairs: Sequence[Pair], name: str, key: str) -> Scores:
    """Precision, recall and F under both names, and of each label under the second one."""
    total = _sum_counts(protocol, pairs)
    prf: Scores = _prf(total) if total["gold"] else dict.fromkeys("prf")
    per_type = {
        label: _prf(_sum_counts(protocol, (_of_label(pair, label) for pair in pairs)))
        for label in sorted({item.label for pair in pairs for items in pair for item in items})
    }
    scores = {f"{start}_{letter}": value for start in (name, key) for letter, value in prf.items()}
    return scores | {f"{key}_per_type": per_type}


def _of_label(pair: Pair, label: str) -> Pair:
    gold, links = pair
    return [m for m in gold if m.label == label], [x for x in links if x.label == label]


def _prf(total: Counter[str]) -> dict[str, float]:
    n_right, predicted, gold = total["right_gold"], total["predicted"], total["gold"]
    return {
        "p": n_right / predicted if predicted else 0.0,
        "r": n_right / gold if gold else 0.0,
        "f": 2 * n_right / (predicted + gold) if predicted + gold else 0.0,
    }

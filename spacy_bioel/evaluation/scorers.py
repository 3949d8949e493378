"""What the training loop of spaCy reports: scores based on `protocols`, its log, and its steps.

Gold mentions come from `example.reference.spans[gold_key]`, predictions from
`example.predicted.spans[spans_key]`; they are compared by character offsets. `kb_id_` holds ids
joined by "|"; "" and "NIL" both mean no id.

`spacy evaluate` prints keys that begin with `spans_` and the name of a span group, and no others of
ours: with `--spans-key bioel` mention detection, with `--spans-key bioel_link` links.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, Any

from spacy.language import Language
from spacy.scorer import PRFScore
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


def make_end_to_end_scorer_v1(spans_key: str = "bioel", gold_key: str = "bioel_gold") -> Scorer:
    """Registered as `spacy-bioel.end_to_end_scorer.v1`: both scorers above, for a linker that finds
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
    right = total["right_gold"]
    wrong, missed = total["predicted"] - right, total["gold"] - right
    return PRFScore(tp=right, fp=wrong, fn=missed).to_dict()


Log = Callable[[dict[str, Any] | None], None]
_LEAST_WIDTH = 7


def create_console_log_v1() -> Callable[..., tuple[Log, Callable[[], None]]]:
    """Registered as `spacy-bioel.ConsoleLog.v1`, for `[training.logger]`.

    A row has the update and how many there are, the epoch, the loss of each pipe since the row
    before, the scores that count, in percent, their weighted sum by which the best pipeline is
    chosen, and the time so far and that which is left. spaCy's own log cuts the names of pipes and
    scores that begin alike to the same column title. Training may stop earlier, see `patience`.
    """
    return _open_log


def _open_log(
    nlp: Language, stdout: IO[str] = sys.stdout, stderr: IO[str] = sys.stderr
) -> tuple[Log, Callable[[], None]]:
    training = nlp.config["training"]
    pipes = [name for name, pipe in nlp.pipeline if getattr(pipe, "is_trainable", False)]
    pipes = [name for name in pipes if name not in training["frozen_components"]]
    scores = [name for name, weight in training["score_weights"].items() if weight]
    titles = ["update", "epoch", *(f"loss {_short(name)}" for name in pipes)]
    titles += [*map(_short, scores), "score", "time", "left"]
    widths = [max(_LEAST_WIDTH, len(title)) for title in titles]
    widths[0] = max(widths[0], len(_progress(training["max_steps"], training["max_steps"])))

    def write(cells: list[str]) -> None:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        stdout.write("   ".join(padded) + "\n")
        stdout.flush()

    write(titles)
    write(["-" * width for width in widths])

    def log(info: dict[str, Any] | None) -> None:
        if info is None or info["score"] is None:  # an update without an evaluation
            return
        step, most = info["step"], training["max_steps"]
        losses, found = info["losses"], info["other_scores"]
        left = info["seconds"] * (most - step) / step if step and most else None
        cells = [_progress(step, most), str(info["epoch"])]
        cells += [f"{losses.get(name, 0.0):.2f}" for name in pipes]
        cells += [_percent(found, name) for name in scores]
        write([*cells, f"{info['score'] * 100:.2f}", _clock(info["seconds"]), _clock(left)])

    return log, lambda: None


def _short(name: str) -> str:
    """Name a score or pipe without what the names of this package begin with: "mention f"."""
    return name.removeprefix("bioel_").replace("_", " ")


def _progress(step: int, most: int) -> str:
    return f"{step}/{most}" if most else str(step)


def _percent(scores: Mapping[str, Any], name: str) -> str:
    value = scores.get(name)
    return "-" if not isinstance(value, int | float) else f"{value * 100:.2f}"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


STEPS = "training_steps"


def create_step_counter_v1(*, done: int = 0) -> Callable[[Language, dict[str, Any]], None]:
    """Registered as `spacy-bioel.StepCounter.v1`, for `[training.before_update]`.

    Each saved pipeline then says in its meta.json, as `training_steps`, at which step of the
    training it was saved, so that training can go on from there.

    done (int): Updates of earlier runs.
    """

    def count_steps(nlp: Language, about: dict[str, Any]) -> None:
        nlp.meta[STEPS] = done + about["step"]

    return count_steps

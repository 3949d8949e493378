"""Scorers based on `protocols`, plus a console log and a step counter for spaCy's training loop.

Gold mentions come from `example.reference.spans[gold_key]`, predictions from
`example.predicted.spans[spans_key]`; they are compared by character offsets. `kb_id_` holds ids
joined by "|"; "" and "NIL" both mean no id.

`spacy evaluate` prints only a fixed set of scores, such as scores by type for the span group "sc".
Our scores appear there as the rows "mentions" and "links", unless documents have a group "sc".
`--spans-key bioel` shows mention detection by label, `--spans-key bioel_link` shows links.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import IO, Any

from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.tokens import Span
from spacy.training import Example

from spacy_bioel.doc import annotated_labels
from spacy_bioel.errors import Warnings
from spacy_bioel.scoring.protocols import PROTOCOLS
from spacy_bioel.types import Link, Mention

ScoreDict = dict[str, Any]
Scorer = Callable[..., ScoreDict]
GoldAndLinks = tuple[list[Mention], list[Link]]
MAX_UNKNOWN_SHARE = 0.2  # maximum share of found mentions whose label no gold mention has
_PRINTED = "sc"  # the span group whose scores `spacy evaluate` prints


def make_mention_scorer_v1(spans_key: str = "bioel", gold_key: str = "bioel_gold") -> Scorer:
    """Registered as `spacy-bioel.mention_scorer.v1`: score mention detection by offsets and label.

    RETURNS (Scorer): Computes `bioel_mention_p`, `_r` and `_f` in [0, 1]; None without gold. They
        are also returned as `spans_KEY_p`, `_r` and `_f`, where KEY is the span group, and by label
        as `spans_KEY_per_type`.
    """
    # A partial function can be pickled with the pipeline; a closure cannot.
    return partial(_score, spans_key=spans_key, gold_key=gold_key, mentions=True, links=False)


def make_link_scorer_v1(spans_key: str = "bioel", gold_key: str = "bioel_gold") -> Scorer:
    """Registered as `spacy-bioel.link_scorer.v1`: score links by the strict end-to-end protocol.

    RETURNS (Scorer): Computes `bioel_link_p`, `_r` and `_f`, and `bioel_link_acc`: the fraction of
        gold mentions with an id and predicted offsets that have exactly the correct ids (0 if no
        offsets were predicted). All are in [0, 1]; None without gold, as in spaCy's scorers.
        `bioel_linker` makes ids canonical: a retired id counts as its replacement. P, R and F are
        also returned as `spans_KEY_link_p`, `_r`, `_f` and `_per_type`.
    """
    return partial(_score, spans_key=spans_key, gold_key=gold_key, mentions=False, links=True)


def make_end_to_end_scorer_v1(spans_key: str = "bioel", gold_key: str = "bioel_gold") -> Scorer:
    """Registered as `spacy-bioel.end_to_end_scorer.v1`: score both mentions and links."""
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
) -> ScoreDict:
    examples = list(examples)
    pairs = list(_gold_and_links(examples, spans_key, gold_key, canonical))
    scores: ScoreDict = {}
    if mentions and not links:  # a linker's labels may be types of its knowledge base
        _check_unknown_labels(pairs)
    if mentions:
        scores |= _prf_scores("mention", pairs, "bioel_mention", f"spans_{spans_key}")
    if links:
        scores |= _prf_scores("end_to_end", pairs, "bioel_link", f"spans_{spans_key}_link")
        scores["bioel_link_acc"] = _accuracy_of_found(pairs)
    # A linker's scores overwrite those of earlier pipes under this key, so include both rows.
    printed = {"mentions": "mention"} | ({"links": "end_to_end"} if links else {})
    has_group = any(_PRINTED in doc.spans for x in examples for doc in (x.reference, x.predicted))
    if not has_group and any(gold for gold, _ in pairs):
        rows = {row: _prf(_sum_counts(protocol, pairs)) for row, protocol in printed.items()}
        scores[f"spans_{_PRINTED}_per_type"] = rows
    return scores


def _gold_and_links(
    examples: Iterable[Example], spans_key: str, gold_key: str, canonical: Callable[[str], str]
) -> Iterator[GoldAndLinks]:
    def ids_of(span: Span) -> tuple[str, ...]:
        return tuple(sorted({canonical(i) for i in set(span.kb_id_.split("|")) - {"", "NIL"}}))

    for example in examples:
        gold_spans = example.reference.spans.get(gold_key, ())
        annotates = annotated_labels(example.reference, key=gold_key)  # empty: all labels
        yield (
            [Mention(s.start_char, s.end_char, s.label_, ids_of(s)) for s in gold_spans],
            [
                Link(s.start_char, s.end_char, s.label_, ids_of(s))
                for s in example.predicted.spans.get(spans_key, ())
                if not annotates or s.label_ in annotates
            ],
        )


def _check_unknown_labels(pairs: Sequence[GoldAndLinks]) -> None:
    """Warn [W382] if many mentions have labels that no gold mention has."""
    annotated = {mention.label for gold, _ in pairs for mention in gold}
    n_found = Counter(link.label for _, links in pairs for link in links)
    labels = sorted(set(n_found) - annotated)
    share = sum(n_found[label] for label in labels) / max(1, n_found.total())
    if annotated and share > MAX_UNKNOWN_SHARE:
        names = {"labels": ", ".join(labels), "known": ", ".join(sorted(annotated))}
        warnings.warn(Warnings.W382.format(**names), stacklevel=2)  # shown once


def _accuracy_of_found(pairs: Iterable[GoldAndLinks]) -> float | None:
    """Return the linking accuracy over gold mentions that have an id and predicted offsets."""
    with_equal_offsets = []
    for gold, links in pairs:
        # Use only links with gold offsets: the protocol also pairs mentions with longer links.
        offsets = {(mention.start, mention.end) for mention in gold}
        with_equal_offsets.append((gold, [x for x in links if (x.start, x.end) in offsets]))
    total = _sum_counts("gold", with_equal_offsets)
    if not total["gold"]:
        return None
    # Return 0 rather than None if nothing was found: once a score is None, spaCy's training loop
    # ignores it for the rest of the training.
    n_found = total["gold"] - total["not_predicted"]
    return total["right"] / n_found if n_found else 0.0


def _sum_counts(protocol: str, pairs: Iterable[GoldAndLinks]) -> Counter[str]:
    total: Counter[str] = Counter()
    for gold, links in pairs:
        total.update(PROTOCOLS[protocol].count(gold, links))  # type: ignore[arg-type]
    return total


def _prf_scores(protocol: str, pairs: Sequence[GoldAndLinks], name: str, key: str) -> ScoreDict:
    """Return P, R and F1 under the prefixes `name` and `key`, and per-label scores under `key`."""
    total = _sum_counts(protocol, pairs)
    prf: ScoreDict = _prf(total) if total["gold"] else dict.fromkeys("prf")
    scores: ScoreDict = {}
    for prefix in (name, key):
        scores |= {f"{prefix}_{letter}": value for letter, value in prf.items()}
    of_labels = scores[f"{key}_per_type"] = {}
    for label in sorted({item.label for pair in pairs for items in pair for item in items}):
        with_label = (
            ([m for m in gold if m.label == label], [x for x in links if x.label == label])
            for gold, links in pairs
        )
        of_labels[label] = _prf(_sum_counts(protocol, with_label))
    return scores


def _prf(total: Counter[str]) -> dict[str, float]:
    right = total["right_gold"]
    wrong, missed = total["predicted"] - right, total["gold"] - right
    return PRFScore(tp=right, fp=wrong, fn=missed).to_dict()


Log = Callable[[dict[str, Any] | None], None]
_MIN_COLUMN_WIDTH = 7


def create_console_log_v1() -> Callable[..., tuple[Log, Callable[[], None]]]:
    """Registered as `spacy-bioel.ConsoleLog.v1`, for `[training.logger]`.

    Each row shows the update and the number of updates, the epoch, each pipe's loss since the
    previous row, the scores with a weight (in percent), their weighted sum (used to choose the best
    pipeline), the elapsed time and the remaining time. Training may stop earlier (see `patience`).
    spaCy's own log truncates the names of our pipes and scores, so column titles are identical.
    """
    return _open_log


def _open_log(
    nlp: Language, stdout: IO[str] = sys.stdout, stderr: IO[str] = sys.stderr
) -> tuple[Log, Callable[[], None]]:
    training = nlp.config["training"]
    pipes = [name for name, pipe in nlp.pipeline if getattr(pipe, "is_trainable", False)]
    pipes = [name for name in pipes if name not in training["frozen_components"]]
    scores = [name for name, weight in training["score_weights"].items() if weight]
    titles = ["update", "epoch", *(f"loss {column_title(name)}" for name in pipes)]
    titles += [*map(column_title, scores), "score", "time", "left"]
    widths = [max(_MIN_COLUMN_WIDTH, len(title)) for title in titles]
    widths[0] = max(widths[0], len(_progress(training["max_steps"], training["max_steps"])))

    def write(cells: list[str]) -> None:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        stdout.write("   ".join(padded) + "\n")
        stdout.flush()

    write(titles)
    write(["-" * width for width in widths])

    def log(info: dict[str, Any] | None) -> None:
        if info is None or info["score"] is None:  # no evaluation after this update
            return
        step, max_steps = info["step"], training["max_steps"]
        remaining = info["seconds"] * (max_steps - step) / step if step and max_steps else None
        cells = [_progress(step, max_steps), str(info["epoch"])]
        cells += [f"{info['losses'].get(name, 0.0):.2f}" for name in pipes]
        values = (info["other_scores"].get(name) for name in scores)
        cells += [f"{x * 100:.2f}" if isinstance(x, int | float) else "-" for x in values]
        cells += [f"{info['score'] * 100:.2f}", clock(info["seconds"]), clock(remaining)]
        write(cells)

    return log, lambda: None


def column_title(name: str) -> str:
    """Shorten a score or pipe name, e.g. "bioel_mention_f" to "mention f"."""
    return name.removeprefix("bioel_").replace("_", " ")


def _progress(step: int, max_steps: int) -> str:
    return f"{step}/{max_steps}" if max_steps else str(step)


def clock(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


STEPS = "training_steps"


def create_step_counter_v1(*, done: int = 0) -> Callable[[Language, dict[str, Any]], None]:
    """Registered as `spacy-bioel.StepCounter.v1`, for `[training.before_update]`.

    The meta.json of each saved pipeline stores the step at which it was saved as `training_steps`,
    so that training can resume from there.

    done (int): Number of updates in earlier runs.
    """

    def count_steps(nlp: Language, info: dict[str, Any]) -> None:
        nlp.meta[STEPS] = done + info["step"]

    return count_steps

"""Error reports from `bioel evaluate`: the `--errors` table, and the `--html` page."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from spacy_bioel.cli.console import writing
from spacy_bioel.export.pages import PAGES
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.plugins.evaluation.calibration import curves_over_scores, reliability
from spacy_bioel.plugins.evaluation.evaluate import (
    Figure,
    LinkingError,
    confusions,
    find_errors,
    strings_of,
)
from spacy_bioel.plugins.evaluation.run import Predicted, knowledge_of
from spacy_bioel.scoring.protocols import KINDS, MARKS, PAIRING, PROTOCOLS
from spacy_bioel.text.normalize import escape_formula, table_line
from spacy_bioel.types import AnnotatedText, Link, Mention

NameOf = Callable[[str], str]  # maps an id to its preferred name; "" if unknown

EXAMPLES_PER_KIND = 50  # max. errors of each kind on the page
_MAX_CONFUSIONS = 20  # max. rows in the confusion and string tables
_MAX_PARTS = 7  # max. labels in the bar for each kind of error
_OTHER_LABELS = "other labels"
_THRESHOLDS = [*(n / 20 for n in range(20)), 0.97, 0.99, 1.0]
_WORDS = {"nil": "NIL", "not_nil": "not NIL", "nil_first_right": "NIL, first right"}
_BY_LABEL = (": f1", ": accuracy@1")
_OVER_THRESHOLDS = ("precision", "recall", "f1", "accuracy@1", "nil_accuracy")
_PAGE_METRICS = ("precision", "recall", "f1", "accuracy@1")
_CONTEXT_CHARACTERS = 80  # Max. characters shown on each side of a mention.
# Columns of the error file, with user-facing descriptions.
COLUMNS = {
    "document": "id of the document",
    "kind": "kind of error",
    "marks": "additional marks of the error",
    "start": "start of the gold mention (character offset); empty for a spurious prediction",
    "end": "end of the gold mention",
    "string": "string of the gold mention",
    "label": "label of the gold mention",
    "gold_ids": "gold ids, with retired ids replaced by current ones; empty for NIL",
    "gold_names": "preferred names of the gold ids; empty for ids not in the knowledge base",
    "predicted_start": "start of the prediction; empty for a missed mention",
    "predicted_end": "end of the prediction",
    "predicted_string": "string of the prediction",
    "predicted_label": "label of the prediction",
    "predicted_ids": "predicted ids; empty for NIL",
    "predicted_names": "preferred names of the predicted ids",
    "rank": "rank of the first gold id among the candidates, from 1; empty if there is none",
    "candidates": "id, matched name, score and evidence of each candidate, best first",
    "context": "text around the gold mention or spurious prediction, which is enclosed in "
    "[[ and ]]",
}


def report_errors(
    linker: Linker | None,
    texts: Sequence[AnnotatedText],
    links: Predicted,
    *,
    scores: Sequence[Figure],
    about: Mapping[str, Any],
    rows: Path | None,
    page: Path | None,
    labels: bool,
) -> int:
    """Write the errors on plain text, or on gold mentions if `links` contains nothing else.

    rows, page (Path | None): Table and page to write.
    labels (bool): Whether the pipeline uses the gold labels.
    RETURNS (int): Number of errors.
    """
    is_given = False not in links  # key: whether the linker was given the gold mentions
    predicted, knowledge = links[is_given], None if linker is None else knowledge_of(linker)
    has_labels = any(mention.label for text in texts for mention in text.mentions)
    labels = labels and has_labels and not is_given
    errors = [*find_errors(texts, predicted, knowledge=knowledge, labels=labels, given=is_given)]

    def name_of(id: str) -> str:
        row = -1 if linker is None else linker.kb.find(id)
        return "" if linker is None or row < 0 else linker.kb.preferred_name(row)

    if rows is not None:
        _write_rows(rows, errors, name_of)
    if page is not None:
        canonical = str if linker is None else linker.kb.canonical
        curve_of = partial(reliability, texts, predicted, canonical=canonical)
        on_gold_borders = {"all predictions": False, "predictions with gold offsets": True}
        curves = {name: curve_of(on_gold_borders=only) for name, only in on_gold_borders.items()}
        of_all, of_labels = [], defaultdict(list)
        for one in (score for score in scores if score.n):  # labels not in gold have no scores
            cells = (one.value, one.low, one.high, one.n)
            if not one.label and one.metric in _PAGE_METRICS:
                of_all.append((_words(one.protocol), one.metric, *cells))
            if not one.label or labels or PROTOCOLS[one.protocol].given_mentions:
                name = f"{_words(one.protocol)}: {one.metric}"
                of_labels[name].append((one.label or "all labels", *cells))
        protocol = "gold" if is_given else "end_to_end"
        threshold = 0.0 if linker is None else float(linker.cfg["nil_threshold"])
        over = curves_over_scores(
            texts, predicted, {*_THRESHOLDS, threshold}, protocol=protocol, canonical=canonical
        )
        shown = [x for x in _OVER_THRESHOLDS if x in over and any(y > 0 for _, y in over[x])]
        n_mentions = sum(len(text.mentions) for text in texts)
        source = "gold mentions were given to the linker" if is_given else "found in the plain text"
        facts = {
            "model": str(about["model"]),
            "corpus": f"{about['gold']}: {len(texts):,} documents, {n_mentions:,} gold mentions",
            "predictions": f"{sum(map(len, predicted)):,} ({source})",
        }
        if linker is not None:
            kb, keys = linker.kb, ("source", "release")
            title = " ".join(str(kb.meta.get(key, "")) for key in keys).strip() or kb.title
            facts["knowledge base"] = f"{title}, fingerprint {kb.fingerprint}"
            if not linker.alias_table.counts:
                facts["alias table"] = "none, so no error is marked as unseen"
        text = _render(
            errors,
            name_of,
            about=facts | {"command": str(about["command"])},
            scores=of_all,
            of_labels={name: rows for name, rows in of_labels.items() if name.endswith(_BY_LABEL)},
            reliabilities={name: curve for name, curve in curves.items() if curve.n},
            all_errors=rows,
            protocol=protocol,
            threshold=threshold,
            thresholds={name: over[name] for name in shown},
        )
        with writing(page) as file:
            file.write(text)
    return len(errors)


def _write_rows(path: Path, errors: Iterable[LinkingError], name_of: NameOf) -> None:
    """Write one row per error, in the format that the file suffix implies."""
    rows = (row_of(error, name_of) for error in errors)
    suffix = path.suffix.lower()
    with writing(path) as file:
        if suffix == ".jsonl":
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            return
        for cells in chain([COLUMNS], (map(_error_cell, row.values()) for row in rows)):
            file.write(table_line(map(escape_formula, cells), "," if suffix == ".csv" else "\t"))


def _error_cell(value: object) -> str:
    if isinstance(value, list):
        parts = [_candidate_text(part) if isinstance(part, dict) else part for part in value]
        return " | ".join(parts)
    return "" if value is None else str(value)


def _candidate_text(candidate: dict[str, Any]) -> str:
    """Format a candidate as one line: "MESH:D003920 Diabetes (0.91, exact+dense)"."""
    return "{id} {name} ({score:.2f}, {evidence})".format(**candidate)


def row_of(error: LinkingError, name_of: NameOf) -> dict[str, Any]:
    """Return an error's cells, keyed by column name (see `COLUMNS`); None for an empty cell."""
    before, mention, after = _split_context(error)
    candidates = error.link.candidates if error.link else ()
    values = [
        *(error.text.id, error.kind, list(error.marks)),
        *_span_cells(error, error.gold, name_of),
        *_span_cells(error, error.link, name_of),
        error.rank or None,
        [{key: getattr(c, key) for key in ("id", "name", "score", "evidence")} for c in candidates],
        f"{before}[[{mention}]]{after}",
    ]
    return dict(zip(COLUMNS, values, strict=True))


def _span_cells(error: LinkingError, span: Mention | Link | None, name_of: NameOf) -> Sequence[Any]:
    """Return the start, end, string, label, ids and names of a gold mention or prediction."""
    if span is None:
        return (None, None, None, None, [], [])
    string = _one_line(error.text.text[span.start : span.end])
    names = [name_of(id) for id in span.ids]
    return span.start, span.end, string, span.label, list(span.ids), names


def _split_context(error: LinkingError) -> tuple[str, str, str]:
    """Return the text before a mention, the mention and the text after it, each on one line."""
    text, place = error.text.text, error.place
    start = max(0, place.start - _CONTEXT_CHARACTERS)
    end = min(len(text), place.end + _CONTEXT_CHARACTERS)
    return (
        ("…" if start else "") + _one_line(text[start : place.start]),
        _one_line(text[place.start : place.end]),
        _one_line(text[place.end : end]) + ("…" if end < len(text) else ""),
    )


def _one_line(text: str) -> str:
    # Keep all white space (as spaces), because it may separate a mention from its context.
    return "".join(" " if c.isspace() or c < " " else c for c in text)


def _render(errors: Sequence[LinkingError], name_of: NameOf, **shown: Any) -> str:
    by_kind = {kind: [error for error in errors if error.kind == kind] for kind in KINDS}

    def with_names(ids: Iterable[str]) -> str:
        return ", ".join(f"{id} {name_of(id)}".strip() for id in ids)

    def most_frequent(kind: str) -> list[tuple[str, str, int]]:
        counts = strings_of(errors, kind).most_common(_MAX_CONFUSIONS)
        return [(string, label, n) for (string, label), n in counts]

    def examples(of_kind: Sequence[LinkingError]) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
        """Choose errors from across the corpus, rather than only from its first documents."""
        n, n_shown = len(of_kind), min(len(of_kind), EXAMPLES_PER_KIND)
        chosen = [of_kind[i * n // n_shown] for i in range(n_shown)]
        return [(row_of(error, name_of), _split_context(error)) for error in chosen]

    labels = [label for label, _ in Counter(e.place.label for e in errors).most_common()]
    if len(labels) > _MAX_PARTS:
        labels[_MAX_PARTS - 1 :] = [_OTHER_LABELS]
    n_of = Counter(
        (e.kind, e.place.label if e.place.label in labels else _OTHER_LABELS) for e in errors
    )
    return PAGES.get_template("errors.html").render(
        **shown,
        counts={kind: len(of_kind) for kind, of_kind in by_kind.items()},
        labels=labels,
        n_of=[
            (_words(kind), *(n_of[kind, label] for label in labels), len(of_kind))
            for kind, of_kind in by_kind.items()
            if of_kind
        ],
        marked=[(mark, sum(mark in error.marks for error in errors)) for mark in MARKS],
        confused=[
            (with_names(gold), with_names(predicted), n)
            for (gold, predicted), n in confusions(errors).most_common(_MAX_CONFUSIONS)
        ],
        most_frequent=most_frequent,
        examples={kind: examples(of_kind) for kind, of_kind in by_kind.items() if of_kind},
        with_names=with_names,
        candidate_text=_candidate_text,
        pairing=PAIRING,
        kinds=KINDS,
        marks=MARKS,
        words=_words,
    )


def _words(name: str) -> str:
    """Format the name of an error kind or protocol for display."""
    return _WORDS.get(name, name.replace("_", " "))

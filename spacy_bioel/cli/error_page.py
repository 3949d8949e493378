"""Self-contained HTML page of the errors of a pipeline: counts, confusions, reliability, examples.

`errors.html` is the page, whose values Jinja2 escapes. Colours follow the reader's preference for
dark or light.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader

from spacy_bioel.cli.error_rows import NameOf, context_of, describe_candidate, row_of
from spacy_bioel.scoring.counts import KINDS, MARKS, PAIRING
from spacy_bioel.scoring.evaluation import Reliability
from spacy_bioel.scoring.linking_errors import LinkingError, confusions, strings_of
from spacy_bioel.scoring.measure import Measurement

SHOWN = 50  # errors of a kind
_WORST = 20  # rows of a table of confusions or strings
_METRICS = ("precision", "recall", "f1", "accuracy@1")


@dataclass(frozen=True)
class ErrorReport:
    """All that the page shows.

    about (Mapping[str, str]): Model, corpus, knowledge base and command, in words.
    scores (Sequence[Measurement]): Of the protocols that were measured.
    errors (Sequence[LinkingError]): All errors.
    name_of (NameOf): From an id to its preferred name.
    reliabilities (Mapping[str, Reliability]): By the predictions that are compared.
    figures (Mapping[str, str]): SVG by name, "counts" and "reliability"; empty without matplotlib.
    all_errors (str): File that has all errors; "": none was written.
    """

    about: Mapping[str, str]
    scores: Sequence[Measurement]
    errors: Sequence[LinkingError]
    name_of: NameOf
    reliabilities: Mapping[str, Reliability]
    figures: Mapping[str, str]
    all_errors: str = ""


def render_errors(report: ErrorReport) -> str:
    """The whole page."""
    by_kind: dict[str, list[LinkingError]] = {kind: [] for kind in KINDS}
    for error in report.errors:
        by_kind[error.kind].append(error)
    by_kind = {kind: errors for kind, errors in by_kind.items() if errors}
    sections = {"counts": "counts", "worst": "confusions"}
    sections |= {"reliability": "reliability"} if report.reliabilities else {}
    sections |= {kind: kind for kind in by_kind} | {"definitions": "definitions"}
    labels = sorted({error.place.label for error in report.errors})
    marks = Counter(mark for error in report.errors for mark in error.marks)
    pages = Environment(loader=PackageLoader("spacy_bioel", "cli"), autoescape=True)
    return pages.get_template("errors.html").render(
        report=report,
        sections=sections,
        scores=_scores(report.scores),
        kinds_head=("kind", *(label or "(no label)" for label in labels), "all"),
        by_kind=[_count(kind, errors, labels) for kind, errors in by_kind.items()],
        by_mark=[(mark, marks[mark]) for mark in MARKS],
        confused=_confused(report),
        missed=_strings(report.errors, "missed"),
        spurious=_strings(report.errors, "spurious"),
        reliabilities=dict(_bins(name, one) for name, one in report.reliabilities.items()),
        examples={kind: _examples(errors, report.name_of) for kind, errors in by_kind.items()},
        side=_side,
        describe=describe_candidate,
        pairing=PAIRING,
        kinds=KINDS,
        marks=MARKS,
    )


def _scores(scores: Sequence[Measurement]) -> list[tuple[str, ...]]:
    return [
        (m.protocol, m.metric, f"{m.value:.2f}", f"{m.low:.2f}-{m.high:.2f}", f"{m.n:,}")
        for m in scores
        if not m.label and m.metric in _METRICS
    ]


def _count(kind: str, errors: Sequence[LinkingError], labels: Sequence[str]) -> list[str | int]:
    n = Counter(error.place.label for error in errors)
    return [kind, *(n[label] for label in labels), len(errors)]


def _confused(report: ErrorReport) -> list[tuple[str, str, int]]:
    def described(ids: Iterable[str]) -> str:
        return ", ".join(f"{id} {report.name_of(id)}".strip() for id in ids)

    worst = confusions(report.errors).most_common(_WORST)
    return [(described(gold), described(predicted), n) for (gold, predicted), n in worst]


def _strings(errors: Iterable[LinkingError], kind: str) -> list[tuple[str, str, int]]:
    found = strings_of(errors, kind).most_common(_WORST)
    return [(string, label, n) for (string, label), n in found]


def _bins(name: str, one: Reliability) -> tuple[str, list[tuple[str, ...]]]:
    rows: list[tuple[str, ...]] = [
        (f"{b.low:.1f}-{b.high:.1f}", f"{b.n:,}", f"{b.score:.3f}", f"{b.right:.3f}")
        for b in one.bins
    ]
    return f"{name}: expected calibration error {one.calibration_error:.3f}, n {one.n:,}", rows


def _examples(errors: Sequence[LinkingError], name_of: NameOf) -> tuple[int, list[tuple[Any, Any]]]:
    """How many there are, and some: spread over the corpus, and not its first documents."""
    n = len(errors)
    shown = [errors[i * n // SHOWN] for i in range(SHOWN)] if n > SHOWN else errors
    return n, [(row_of(error, name_of), context_of(error)) for error in shown]


def _side(label: str, ids: Sequence[str], names: Sequence[str]) -> str:
    found = ", ".join(f"{id} {name}".strip() for id, name in zip(ids, names, strict=True)) or "NIL"
    return f"{label} {found}".strip()

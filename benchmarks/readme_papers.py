"""The table of docs/results.md that has the figures of the four papers beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.markdown import CORPORA, MISSING, Row, seeds_of, select, table
from benchmarks.record import load


@dataclass(frozen=True)
class Beside:
    """A published figure, and where ours for the same question is recorded.

    published (str): As it is printed in the paper.
    protocol (str): Both are measured by it, except where docs/results.md says.
    ours (dict): System's name -> its rows of `file`, all of one corpus.
    """

    paper: str
    corpus: str
    protocol: str
    published: str
    file: str
    ours: dict[str, dict[str, Any]]


_NAMES = {"protocol": "biosyn", "metric": "accuracy@1"}
_GIVEN = "mentions given, accuracy@1, any id"
_STRICT = {"protocol": "strict", "metric": "f1"}
_WRITTEN = {"protocol": "gold_any", "metric": "recall@1"}
_RESCNN = {
    "encoder alone": {"system": "dense"} | _NAMES,
    "linker": {"system": "rescnn"} | _NAMES,
}
_DUAL = {
    "reading alone": {"system": "dual_encoder_context"},
    "with strings": {"system": "dual_encoder"},
}
_LINKED = {
    "closed vocabulary": {"system": "multitask", "protocol": "closed", "metric": "f1"},
    "open, with strings": {"system": "multitask", "protocol": "open", "metric": "f1"},
}
_GENERATED = {
    "names written alone": {"system": "generated"} | _WRITTEN,
    "with strings": {"system": "both"} | _WRITTEN,
}
_END = "end to end, strict F1"
_P1 = {"protocol": "gold", "metric": "accuracy@1_nil_ignored"}
FIGURES = (
    Beside("ResCNN, 2021", "ncbi_disease", _GIVEN, "92.4", "linking", _RESCNN),
    Beside("ResCNN, 2021", "bc5cdr_disease", _GIVEN, "93.1", "linking", _RESCNN),
    Beside("ResCNN, 2021", "bc5cdr_chemical", _GIVEN, "96.8", "linking", _RESCNN),
    Beside(
        *("dual encoder, 2021", "bc5cdr", _END, "73.8", "end_to_end"),
        {name: system | _STRICT for name, system in _DUAL.items()},
    ),
    Beside(
        *("dual encoder, 2021", "bc5cdr", "mentions given, precision@1", "84.8", "end_to_end"),
        {name: system | _P1 for name, system in _DUAL.items()},
    ),
    Beside(
        *("dual encoder, 2021", "medmentions_st21pv", _END, "53.4 (full corpus)", "end_to_end"),
        {"with strings": {"system": "dual_encoder"} | _STRICT},
    ),
    Beside(
        *(
            "hierarchical multi-task",
            "bc5cdr",
            "mentions, strict F1, labels ignored",
            "88.9",
            "multitask",
        ),
        {"mentions": {"system": "multitask", "protocol": "mention_unlabelled", "metric": "f1"}},
    ),
    Beside("hierarchical multi-task", "bc5cdr", _END, "63.9", "multitask", _LINKED),
    Beside("hierarchical multi-task", "medmentions_st21pv", _END, "41.5", "multitask", _LINKED),
    Beside("GenBioEL, 2022", "ncbi_disease", _GIVEN, "91.0 (a re-run)", "generative", _GENERATED),
    Beside("GenBioEL, 2022", "bc5cdr", _GIVEN, "93.1 (a re-run)", "generative", _GENERATED),
)


def papers_table(_: list[Row]) -> str:
    """One line a published figure: test parts there, development parts here."""
    lines = []
    for one in FIGURES:
        rows = select(load(one.file), corpus=one.corpus, subset="")
        found = {name: select(rows, **wanted) for name, wanted in one.ours.items()}
        some = [row for of_system in found.values() for row in of_system]
        ours = "; ".join(f"{name} {_mean(of_system)}" for name, of_system in found.items())
        numbers = [f"{max(row['n'] for row in some):,}", seeds_of(some)]
        lines.append(
            [one.paper, CORPORA[one.corpus], one.protocol, f"*{one.published}*", ours, *numbers]
        )
    columns = ["paper", "corpus", "protocol", "published, test", "ours, dev", "n", "seeds"]
    return table(columns, lines)


def _mean(rows: list[Row]) -> str:
    return f"{fmean(row['value'] for row in rows):.1f}" if rows else MISSING

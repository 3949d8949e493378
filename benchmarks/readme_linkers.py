"""The README's tables of linking in bare text, and of the kinds of linkers."""

from __future__ import annotations

from statistics import fmean

from benchmarks.markdown import CORPORA, MISSING, Row, in_order, seeds_of, select, table
from benchmarks.record import load

_SYSTEMS = {
    "rescnn": "CNN, light linker",
    "transformer": "MiniLM, light linker",
    "dual_encoder": "MiniLM, dual encoder",
    "dual_encoder_strings": "the same, strings alone",
    "dual_encoder_context": "the same, reading alone",
    "reranker": "reranker alone, 100 documents",
    "reranker_strings": "the same, strings alone",
}
_COLUMNS = {
    ("mention", "f1"): "mentions, strict F1",
    ("strict", "f1"): "end to end, strict F1",
    ("partial", "f1"): "overlap F1",
    ("partial_fractional", "f1"): "fractional F1",
    ("gold", "accuracy@1_nil_ignored"): "gold mentions, accuracy@1, NIL ignored",
    ("gold", "mrr"): "MRR",
    ("gold", "recall@10"): "recall@10",
}
_SUBSETS = (
    "",
    "seen string",
    "unseen string, seen concept",
    "unseen concept",
    "ambiguous name",
)
# Advice on each kind, and the systems that have its accuracy.
_KINDS = {
    "light": ("light: strings alone", "dual_encoder_strings", "no GPU, millions of documents"),
    "collective": (
        "dual encoder: documents read once",
        "dual_encoder",
        "a transformer reads the documents anyway, to find mentions",
    ),
    "single": ("the same, mention by mention", "", "never: for comparison"),
    "rerank": (
        "reranker: each candidate read in context",
        "reranker",
        "few mentions, or a GPU",
    ),
}


def end_to_end_table(rows: list[Row]) -> str:
    """One line a corpus and system, then parts of the given mentions."""
    lines = []
    for corpus in in_order(CORPORA, rows, "corpus"):
        of_corpus = select(rows, corpus=corpus, subset="")
        for system in in_order(_SYSTEMS, of_corpus, "system"):
            of_line = select(of_corpus, system=system)
            cells = [
                _mean(select(of_line, protocol=protocol, metric=metric), interval=metric == "f1")
                for protocol, metric in _COLUMNS
            ]
            name = f"{CORPORA.get(corpus, corpus)} {of_line[0]['split']}"
            lines.append([name, _SYSTEMS.get(system, system), seeds_of(of_line), *cells])
    columns = ["corpus", "detector and linker", "seeds", *_COLUMNS.values()]
    return f"{table(columns, lines)}\n\n{_subset_table(rows)}"


def _subset_table(rows: list[Row]) -> str:
    accuracy = select(rows, protocol="gold_any", metric="accuracy@1_nil_ignored")
    lines = []
    for corpus in in_order(CORPORA, accuracy, "corpus"):
        of_corpus = select(accuracy, corpus=corpus)
        for system in in_order(_SYSTEMS, of_corpus, "system"):
            parts = [select(of_corpus, system=system, subset=name) for name in _SUBSETS]
            cells = [f"{_mean(part)} ({part[0]['n']:,})" if part else MISSING for part in parts]
            lines.append([CORPORA.get(corpus, corpus), _SYSTEMS.get(system, system), *cells])
    columns = ["gold mentions, any id right, NIL ignored (n)", "", "all", *_SUBSETS[1:]]
    return table(columns, lines)


def kinds_table(speed: list[Row]) -> str:
    """One line a kind of linker: how good, how fast, how large, and what for."""
    accuracy = select(load("end_to_end"), corpus="bc5cdr", subset="")
    ratios = select(speed, system="rerank", metric="collective_is_faster")
    # The pairs of training/configs/reranker.cfg are the shortest that were measured.
    speed = [row for row in speed if row["max_pieces"] == min(r["max_pieces"] for r in ratios)]
    lines = []
    for kind, (name, system, when) in _KINDS.items():
        found = select(accuracy, system=system, protocol="gold", metric="accuracy@1_nil_ignored")
        numbers = {row["metric"]: row["value"] for row in select(speed, system=kind)}
        lines.append(
            [
                name,
                f"{_mean(found)} ({found[0]['n']:,})" if found else MISSING,
                f"{numbers['mentions_per_second']:,.0f}",
                f"{1 / numbers['collective_is_faster']:.2f}",
                f"{numbers['megabytes']:.0f}",
                when,
            ]
        )
    columns = [
        "linker",
        "BC5CDR dev, gold mentions, accuracy@1, NIL ignored (n)",
        "mentions per processor second",
        "speed beside the dual encoder",
        "MB, KB aside",
        "when",
    ]
    about = speed[0]
    by_length = ", ".join(f"{r['value']:.0f} times ({r['max_pieces']})" for r in ratios)
    note = (
        "The dual encoder is faster than the reranker, by the word pieces that a pair may have: "
        f"{by_length}. One run: {about['n']:,} gold mentions against {about['names']:,} names; "
        f"`{about['command']}`; {about['machine']}; {about['date']}."
    )
    return f"{table(columns, lines)}\n\n{note}"


def _mean(rows: list[Row], *, interval: bool = False) -> str:
    if not rows:
        return MISSING
    value = f"{fmean(row['value'] for row in rows):.1f}"
    if not interval:
        return value
    return f"{value} ({fmean(r['low'] for r in rows):.1f}-{fmean(r['high'] for r in rows):.1f})"

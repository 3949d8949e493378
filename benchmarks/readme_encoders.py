"""The table of docs/linkers.md of what the name encoder is made of, from pretraining.json."""

from __future__ import annotations

from statistics import fmean

from benchmarks.markdown import CORPORA, MISSING, Row, commands_note, seeds_of, select, table

_PROTOCOLS = {"base": "names", "biosyn": "names and training strings"}


def pretraining_table(rows: list[Row]) -> str:
    """Accuracy of the nearest name, and of the linker, by the embeddings of word pieces."""
    corpora = [corpus for corpus in CORPORA if select(rows, corpus=corpus)]
    heads = [f"{CORPORA[c]} dev, {name}" for c in corpora for name in _PROTOCOLS.values()]
    lines = []
    for about, steps in sorted({(row["about"], row["steps"]) for row in rows}, key=_most_steps):
        of_kind = select(rows, about=about, steps=steps)
        cells = [
            _cell(select(of_kind, corpus=corpus, protocol=protocol))
            for corpus in corpora
            for protocol in _PROTOCOLS
        ]
        lines.append([about, f"{steps:,}", seeds_of(of_kind), *cells])
    counts = ", ".join(f"{select(rows, corpus=c)[0]['n']:,}" for c in corpora)
    note = (
        f"Nearest name alone / all evidence, accuracy@1, any id right; n {counts}; "
        f"{commands_note(rows, 'pretraining')}"
    )
    columns = ["embeddings of word pieces", "updates", "seeds", *heads]
    return f"{table(columns, lines)}\n\n{note}"


def _most_steps(kind: tuple[str, int]) -> tuple[int, str]:
    return -kind[1], kind[0]


def _cell(rows: list[Row]) -> str:
    systems = ("dense", "rescnn")
    found = [[row for row in rows if row["system"].endswith(f"_{system}")] for system in systems]
    return " / ".join(
        f"{fmean(row['value'] for row in of_system):.1f}" if of_system else MISSING
        for of_system in found
    )

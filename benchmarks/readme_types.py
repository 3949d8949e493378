"""The tables of docs/types.md, from results/starter.json."""

from __future__ import annotations

from benchmarks.markdown import MISSING, Row, commands_note, select, table

_CORPORA = {
    "biored": "BioRED",
    "nlm_gene": "NLM-Gene",
    "gnormplus": "GNormPlus",
    "s800": "S800",
    "linnaeus": "Linnaeus",
    "tmvar3": "tmVar 3",
    "bioid_figures": "BioID, figure legends",
    "bc5cdr": "BC5CDR",
    "ncbi_disease": "NCBI Disease",
}
_TYPES = ("", "Disease", "Chemical", "Gene", "Species", "CellLine", "Variant")


def types_table(rows: list[Row]) -> str:
    """Mention F1 on the development part of each corpus, over all that it annotates and by type."""
    lines = []
    for corpus, name in _CORPORA.items():
        of_corpus = select(rows, corpus=corpus, protocol="mention", system="light")
        if not of_corpus:
            continue
        by_type = {row["subset"]: row for row in of_corpus}
        cells = [f"{by_type[t]['value']:.1f}" if t in by_type else MISSING for t in _TYPES]
        lines.append([name, f"{by_type['']['n']:,}", *cells])
    columns = ["corpus, dev", "n", "all that it annotates", *_TYPES[1:]]
    note = f"Mention F1, strict, one seed. {commands_note(rows, 'starter')}"
    return f"{table(columns, lines)}\n\n{note}"


def genes_table(rows: list[Row]) -> str:
    """Accuracy of linking given genes by their names."""
    lines = []
    for corpus, name in _CORPORA.items():
        for subset in ("known documents", "known mentions"):
            found = select(rows, corpus=corpus, system="names", subset=f"Gene, {subset}")
            of = {(row["protocol"], row["metric"]): row for row in found}
            if of:
                shown = [
                    f"{of[key]['value']:.1f}"
                    for key in (
                        ("gold", "accuracy@1"),
                        ("gold_any", "accuracy@1"),
                        ("gold", "recall@10"),
                    )
                ]
                lines.append([name, subset, f"{of['gold', 'accuracy@1']['n']:,}", *shown])
    columns = ["corpus, dev", "subset", "n", "all ids right", "any id right", "recall@10"]
    commands = select(rows, system="names")
    return f"{table(columns, lines)}\n\n{commands_note(commands, 'starter')}"

"""Tables of docs/ontology.md, from benchmarks/results/no_labels.json and finding.json."""

from __future__ import annotations

from benchmarks.markdown import MISSING, Row, commands_note, select, table

_SYSTEMS = {
    "ours": '`mentions = "kb"`',
    "without_typos": "without `typos`",
    "without_variants": "without `variants`",
    "without_distant_supervision": "without `learned`: weighed by rules",
    "without_abbreviations": "without `abbreviations`",
    "without_shorthand": "without `shorthand`",
    "exact": '`mentions = "kb_exact"`',
    "fasthpocr": "FastHPOCR 0.1.4",
}
_COLUMNS = {
    ("hpo_dev", "mention"): "HPO, mentions",
    ("hpo_dev", "document"): "HPO, documents",
    ("bc5cdr", "mention"): "MeSH on BC5CDR dev, mentions without ids",
    ("bc5cdr", "end_to_end"): "with ids",
    ("clinical", "overlap"): "clinical sentences: F1 (precision, recall)",
}


def no_labels_table(rows: list[Row]) -> str:
    """F1 of names that are found without training, and with each part switched off."""
    lines = []
    for system, name in _SYSTEMS.items():
        line = [name]
        for corpus, protocol in _COLUMNS:
            found = select(rows, system=system, corpus=corpus, protocol=protocol)
            shown = f"{found[0]['value']:.1f}" if found else MISSING
            if found and corpus == "clinical":
                shown += f" ({found[0]['precision']:.1f}, {found[0]['recall']:.1f})"
            line.append(shown)
        lines.append(line)
    counted = [select(rows, system="ours", corpus=c, protocol=p)[0] for c, p in _COLUMNS]
    heads = [
        f"{name}, n {row['n']:,}" for name, row in zip(_COLUMNS.values(), counted, strict=True)
    ]
    return f"{table(['strict F1', *heads], lines)}\n\n{commands_note(rows, 'no_labels')}"

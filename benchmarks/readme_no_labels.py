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
    "refitted": "refitted by `bioel tune` on other documents, by turns of five",
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


_FINDERS = {
    "ours": '`mentions = "kb"`',
    "fasthpocr": "FastHPOCR 0.1.4",
    "aho_corasick": "exact names by pyahocorasick, no pipeline",
}
_ONTOLOGIES = {"hpo": "HPO", "mondo": "MONDO"}


def affirmed_table(rows: list[Row]) -> str:
    """Sets of ids of documents, of all links and of those that are affirmed."""
    lines = []
    for corpus, name in (("case_reports", "62 case reports"), ("hpo_dev", "62 abstracts")):
        for system, links in (("ours", "all"), ("affirmed", "affirmed")):
            (of,) = select(rows, corpus=corpus, system=system, protocol="document")
            figures = (f"{of[key]:.1f}" for key in ("precision", "recall", "value"))
            lines.append([name, links, f"{of['n']:,}", *figures])
    return table(["texts", "links", "n ids", "precision", "recall", "F1"], lines)


def finding_table(rows: list[Row]) -> str:
    """Documents a second, memory and time to the first answer, of one process."""
    lines = []
    for corpus, ontology in _ONTOLOGIES.items():
        for system, name in _FINDERS.items():
            found = select(rows, corpus=corpus, system=system)
            of = {row["metric"]: row["value"] for row in found}
            if found:
                shown = f"{ontology} ({found[0]['names']:,} names)"
                speed, memory = f"{of['documents_per_second']:,.0f}", f"{of['memory']:.0f}"
                lines.append([shown, name, speed, memory, f"{of['load']:.1f}"])
    columns = ["ontology", "system", "abstracts a second", "MB", "seconds to the first answer"]
    about = rows[0]
    note = (
        f"{about['n']} abstracts of BC5CDR dev in one process, medians of three by turns; "
        f"`{about['command']}`; {about['machine']}; {about['date']}. {about['note']}".strip()
    )
    return f"{table(columns, lines)}\n\n{note}"


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

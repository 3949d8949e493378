"""The tables of docs/starter.md, docs/types.md and the model card, from results/starter.json."""

from __future__ import annotations

from benchmarks.markdown import MISSING, Row, commands_note, seeds_of, select, table

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
    """F1 on the development part of each corpus, over all that it annotates and by type."""
    return _of_system(rows, "light")


def minilm_table(rows: list[Row]) -> str:
    return _of_system(rows, "minilm")


def _of_system(rows: list[Row], system: str) -> str:
    measured = select(rows, system=system)
    if not measured:
        return "Not measured yet."
    lines = []
    for corpus, name in _CORPORA.items():
        found = select(measured, corpus=corpus, metric="f1")
        value = {(r["protocol"], r["subset"]): r["value"] for r in found}
        if not value:
            continue
        (n,) = {r["n"] for r in found if r["protocol"] == "mention" and not r["subset"]}
        lines.append([name, f"{n:,}", *(_pair(value, subset) for subset in _TYPES)])
    columns = ["corpus, dev", "n", "all that it annotates", *_TYPES[1:]]
    note = f"Mentions / end to end, strict F1, seed {seeds_of(measured)}. "
    return f"{table(columns, lines)}\n\n{note}{commands_note(measured, 'starter')}"


def _pair(value: dict[tuple[str, str], float], subset: str) -> str:
    """Mentions and links; variants are in no knowledge base."""
    found = [value.get((protocol, subset)) for protocol in ("mention", "end_to_end")]
    return " / ".join(f"{v:.1f}" for v in found if v is not None) or MISSING


def left_out_table(rows: list[Row]) -> str:
    """Mention F1 on a corpus that the detector was trained on, and on one that it was not: on the
    same documents, which neither was trained on.
    """
    lines = []
    for corpus, name in _CORPORA.items():
        value = {
            (row["system"], row["subset"]): row["value"]
            for row in select(rows, corpus=corpus, protocol="mention")
        }
        for subset in _TYPES[1:]:
            both = [value.get((system, subset)) for system in ("light_beside", "left_out")]
            if None not in both:
                lines.append([name, subset, *(f"{v:.1f}" for v in both if v is not None)])
    columns = ["corpus, dev", "type", "among the training corpora", "left out"]
    measured = select(rows, system="left_out")
    return f"{table(columns, lines)}\n\nMention F1, strict. {commands_note(measured, 'starter')}"


def starter_speed_table(rows: list[Row], *, first_link: bool = False) -> str:
    """Seconds to the first link, abstracts a second, and memory.

    first_link (bool): The first link alone, also without imports and as it was before.
    """
    lines = []
    for system in dict.fromkeys(row["system"] for row in rows):
        is_shown = system.startswith("first link") if first_link else system not in _DETAILS
        if not is_shown:
            continue
        of = {row["metric"]: row["value"] for row in select(rows, system=system)}
        speed = f"{of['seconds']:.1f} s" if "seconds" in of else f"{of['per_second']:.0f} a second"
        lines.append([system, speed, f"{of['megabytes']:,}"])
    first = rows[0]
    note = f"`{first['command']}`, n {first['n']} abstracts; {first['machine']}"
    note += f"; {first['note']}." if first["note"] else "."
    return f"{table(['pipeline of the package', 'time', 'MB'], lines)}\n\n{note}"


_DETAILS = ("first link", "first link, imports included, before")


def assertion_table(rows: list[Row]) -> str:
    """F1 of what notes say of mentions, and mentions a second."""
    value = {(r["question"], r["system"], r["metric"]): r["value"] for r in rows}
    lines = []
    for system in dict.fromkeys(row["system"] for row in rows):
        cells = [
            f"{value[key]:.1f}" if (key := (question, system, "f1")) in value else ""
            for question in ("negated", "historical", "hypothetical")
        ]
        lines.append([system, *cells, f"{value['speed', system, 'per_second']:,}"])
    columns = ["system", "negated", "historical", "hypothetical", "sentences a second"]
    return table(columns, lines)


def where_table(rows: list[Row]) -> str:
    """Milliseconds of an abstract, step by step, drawn as bars."""
    (all_steps,) = [row["value"] for row in rows if row["system"] == "all"]
    lines = []
    for row in rows:
        part = row["value"] / all_steps
        bar = "█" * round(30 * part) if row["system"] != "all" else ""
        lines.append([row["system"], f"{row['value']:.1f}", f"{100 * part:.0f} %", bar])
    first = rows[0]
    note = f"`python -m benchmarks.run where`, n {first['n']} abstracts; {first['machine']}."
    return f"{table(['step', 'ms', 'part', ''], lines)}\n\n{note}"


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

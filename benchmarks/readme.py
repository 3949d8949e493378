"""Write the tables of README.md and of pages in docs/ from the result files:
python -m benchmarks.readme.

A block whose result file is not there stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import srsly

from benchmarks.markdown import CORPORA, MISSING, Row, in_order, seeds_of, select, table
from benchmarks.readme_encoders import pretraining_table
from benchmarks.readme_front import front_table, install_table, links_block
from benchmarks.readme_generative import ablations_table, generative_table
from benchmarks.readme_linkers import (
    all_linkers_table,
    end_to_end_table,
    kinds_table,
    variants_table,
    vocabularies_table,
)
from benchmarks.readme_no_labels import affirmed_table, finding_table, no_labels_table
from benchmarks.readme_papers import papers_table
from benchmarks.readme_speed import (
    documents_table,
    encoding_table,
    roofline_table,
    scispacy_table,
)
from benchmarks.readme_types import (
    assertion_table,
    genes_table,
    left_out_table,
    minilm_table,
    starter_speed_table,
    types_table,
    where_table,
)
from benchmarks.record import RESULTS, load

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/generative.md",
    "docs/guides/choose_linker.md",
    "docs/guides/negation.md",
    "docs/install.md",
    "docs/linkers.md",
    "docs/multitask.md",
    "docs/ontology.md",
    "docs/reproduce.md",
    "docs/results.md",
    "docs/starter.md",
    "docs/types.md",
    "docs/where_the_time_goes.md",
    "spacy_bioel/assets/starter/README.md",
)
_MAIN_JOB = {
    ("mention", "f1"): "mentions, strict F1",
    ("end_to_end", "f1"): "end to end, strict F1",
    ("gold", "accuracy@1"): "gold mentions, accuracy@1 (all ids right)",
    ("gold", "accuracy@1_nil_ignored"): "gold mentions, accuracy@1, NIL ignored (all ids right)",
    ("gold_any", "accuracy@1"): "gold mentions, accuracy@1 (any id right)",
    ("gold_any", "accuracy@1_nil_ignored"): "gold mentions, accuracy@1, NIL ignored (any id right)",
}
_PROTOCOLS = {"base": "names", "biosyn": "names and training strings"}
# Columns in their order; other systems come last, by the names that the result file has.
_FLOORS = {
    "exact": "exact",
    "tfidf": "TF-IDF",
    "bm25": "BM25",
    "lexical": "no encoder",
}
_NEURAL = {
    "minilm_dense": "MiniLM alone",
    "dense": "ResCNN alone",
    "biosyn": "ResCNN as BioSyn",
    "rescnn": "ResCNN linker",
}
_PROBES = {
    "unperturbed": "as it is",
    "shuffle_unigram": "shuffled, ones",
    "shuffle_bigram": "shuffled, twos",
    "shuffle_trigram": "shuffled, threes",
    "window_3_paper": "window 3, [CLS] open in the last layer",
    "window_3_code": "window 3, [CLS] open in all layers",
    "window_3": "window 3",
    "window_5_paper": "window 5, [CLS] open in the last layer",
    "window_5_code": "window 5, [CLS] open in all layers",
    "window_5": "window 5",
}


def main_job_table(rows: list[Row]) -> str:
    """BC5CDR dev: one line a measure, the pipeline beside its lexical floor."""
    accuracy = [row for row in rows if row["question"] == "accuracy"]
    cell = {(r["system"], r["protocol"], r["metric"]): r for r in accuracy}
    head = "BC5CDR dev (trained on train; KB: all MeSH diseases and chemicals)"
    lines = []
    for (protocol, metric), name in _MAIN_JOB.items():
        if ("rescnn", protocol, metric) not in cell:
            continue
        ours, floor = cell["rescnn", protocol, metric], cell["lexical", protocol, metric]
        interval = f"{ours['value']:.1f} ({ours['low']:.1f}-{ours['high']:.1f})"
        lines.append([name, f"{ours['n']:,}", interval, f"{floor['value']:.1f}"])
    about = accuracy[0]
    note = (
        f"Seed {seeds_of(accuracy)}; 95 % intervals by document bootstrap; "
        f"`{about['command']}`; {about['machine']}; {about['date']}."
    )
    columns = [head, "n", "ResCNN pipeline", "without the encoder"]
    return f"{table(columns, lines)}\n\n{note}"


def linking_tables(rows: list[Row]) -> str:
    """Given mentions: one line a corpus and protocol, then parts of the mentions."""
    whole = [row for row in rows if not row["subset"] and row["metric"] == _metric(row)]
    present = {row["system"] for row in whole}
    systems = [name for name in _FLOORS | _NEURAL if name in present]
    systems += sorted(present - set(systems))
    named = _FLOORS | _NEURAL
    lines = []
    for corpus in in_order(CORPORA, whole, "corpus"):
        for protocol in in_order(_PROTOCOLS, whole, "protocol"):
            if of_line := select(whole, corpus=corpus, protocol=protocol):
                lines.append(_linking_line(of_line, systems))
    columns = ["corpus", "dictionary", "n", *(named.get(name, name) for name in systems)]
    ours = select(whole, system="rescnn") or whole
    note = (
        "Accuracy@1, any id right (of folds: recall@1, mean ± standard deviation). "
        f"{_seed_note(ours)}; in brackets 95 % intervals by document bootstrap. Commands: "
        f"`benchmarks/results/linking.json`. {rows[-1]['machine']}."
    )
    return "\n\n".join(filter(None, [table(columns, lines), note, _subset_table(rows)]))


def _linking_line(rows: list[Row], systems: Iterable[str]) -> list[str]:
    first = rows[0]
    # A mean over other folds than those of our linker would be no comparison.
    folds = _folds(select(rows, system="rescnn") or rows)
    cells = []
    for system in systems:
        found = select(rows, system=system)
        shown = _cell(found, is_floor=system in _FLOORS) if _folds(found) >= folds else MISSING
        cells.append(shown if found else MISSING)
    n = sum({row.get("fold"): row["n"] for row in rows if row.get("fold") in folds}.values())
    many = f", {len(folds)} folds" if len(folds) > 1 else ""
    corpus: str = first["corpus"]
    protocol: str = first["protocol"]
    measured_on = f"{CORPORA.get(corpus, corpus)} {first['split']}{many}"
    return [measured_on, _PROTOCOLS.get(protocol, protocol), f"{n:,}", *cells]


def _cell(rows: list[Row], *, is_floor: bool) -> str:
    """The mean over seeds and folds, and how sure it is."""
    of_folds = [fmean(r["value"] for r in rows if r.get("fold") == fold) for fold in _folds(rows)]
    value = f"{fmean(of_folds):.1f}"
    if is_floor:
        return value
    if len(of_folds) > 1:
        return f"{value} ± {stdev(of_folds):.1f}"
    if all("low" in row for row in rows):
        return f"{value} ({fmean(r['low'] for r in rows):.1f}-{fmean(r['high'] for r in rows):.1f})"
    return value


def _subset_table(rows: list[Row]) -> str:
    """Parts of the mentions, without our encoder and with it, where both were measured."""
    parts = [
        row
        for row in rows
        if row["subset"] and row["protocol"] == "biosyn" and row["metric"] == "accuracy@1"
    ]
    both = ("lexical", "rescnn")
    corpora = [
        corpus
        for corpus in in_order(CORPORA, parts, "corpus")
        if all(select(parts, corpus=corpus, system=system) for system in both)
    ]
    if not corpora:
        return ""
    lines = []
    for subset in dict.fromkeys(row["subset"] for row in parts):
        line = [subset]
        for corpus in corpora:
            found = [select(parts, corpus=corpus, subset=subset, system=name) for name in both]
            values = " / ".join(_cell(of_system, is_floor=True) for of_system in found if of_system)
            line.append(f"{values} ({found[1][0]['n']:,})" if all(found) else MISSING)
        lines.append(line)
    head = "with training strings: no encoder / ResCNN linker (n)"
    return table([head, *(CORPORA.get(corpus, corpus) for corpus in corpora)], lines)


def probing_table(rows: list[Row]) -> str:
    """One line a system and probe, one column a corpus; published figures in italics."""
    corpora = in_order(CORPORA, [row for row in rows if not row.get("quoted")], "corpus")
    lines = []
    measured_first = sorted(rows, key=lambda row: bool(row.get("quoted")))
    for system in dict.fromkeys(row["system"] for row in measured_first):
        for probe, name in _PROBES.items():
            of_line = select(rows, system=system, protocol=probe)
            if any(row["corpus"] in corpora for row in of_line):
                mark = "*" if of_line[0].get("quoted") else ""
                cells = [_probe_cell(select(of_line, corpus=c), mark=mark) for c in corpora]
                lines.append([f"{mark}{system}{mark}", name, *cells])
    shown = table(["encoder", "word pieces", *(CORPORA.get(c, c) for c in corpora)], lines)
    ours = [row for row in rows if not row.get("quoted")]
    note = (
        "Accuracy@1 of the nearest name, dev, and the relative change; *italics: quoted, not run "
        f"here*. Seeds {seeds_of(ours)}; commands: `benchmarks/results/probing.json`; "
        "[as a plot](probing.svg)."
    )
    return f"{shown}\n\n{note}"


def _probe_cell(rows: Sequence[Row], *, mark: str) -> str:
    if not rows:
        return MISSING
    shown = f"{fmean(row['value'] for row in rows):.1f}"
    changes = [row["relative_change"] for row in rows if row["relative_change"] is not None]
    if changes and rows[0]["protocol"] != "unperturbed":
        shown += f" ({fmean(changes):+.1f} %)"
    return f"{mark}{shown}{mark}"


def _metric(row: Row) -> str:
    """Metric that is reported; of phrases in folds it has been recall@1 from the start."""
    return "accuracy@1" if row.get("fold") is None else "recall@1"


def _folds(rows: Iterable[Row]) -> set[int | None]:
    return {row.get("fold") for row in rows}


def _seed_note(rows: Sequence[Row]) -> str:
    """Corpora that were measured with several seeds, as a sentence."""
    several = [
        f"{CORPORA.get(corpus, corpus)}: mean of seeds {seeds}"
        for corpus in in_order(CORPORA, rows, "corpus")
        if len((seeds := seeds_of(select(rows, corpus=corpus))).split(", ")) > 1
    ]
    return ", ".join(["Seed 0", *several])


BLOCKS: dict[str, tuple[str, Callable[[list[Row]], str]]] = {
    "FRONT RESULTS": ("starter", front_table),
    "INSTALL SIZE": ("install_size", install_table),
    "PAPERS": ("linking", papers_table),
    "RESULTS": ("main_job", main_job_table),
    "LINKING": ("linking", linking_tables),
    "PROBING": ("probing", probing_table),
    "END TO END": ("end_to_end", end_to_end_table),
    "LINKERS": ("reading_speed", kinds_table),
    "ENCODING": ("encoding", encoding_table),
    "SCISPACY": ("scispacy", scispacy_table),
    "DOCUMENTS": ("documents", documents_table),
    "ROOFLINE": ("roofline", roofline_table),
    "ALL LINKERS": ("generative", all_linkers_table),
    "GENERATIVE": ("generative", generative_table),
    "ABLATIONS": ("generative", ablations_table),
    "FINDING": ("finding", finding_table),
    "TYPES": ("starter", types_table),
    "GENES": ("starter", genes_table),
    "LEFT OUT": ("starter", left_out_table),
    "MINILM": ("starter", minilm_table),
    "STARTER SPEED": ("starter_speed", starter_speed_table),
    "FIRST LINK": ("starter_speed", partial(starter_speed_table, first_link=True)),
    "AFFIRMED": ("no_labels", affirmed_table),
    "ASSERTION": ("assertion", assertion_table),
    "WHERE": ("where", where_table),
    "PRETRAINING": ("pretraining", pretraining_table),
    "NO LABELS": ("no_labels", no_labels_table),
    "VOCABULARIES": ("multitask", vocabularies_table),
    "VARIANTS": ("multitask", variants_table),
}


def reproduce_table() -> str:
    """One line a row of reproduce.yml: what was measured, the figure, and the command."""
    lines = ["| what, on development documents | figure | n | command |", "|---|---|---|---|"]
    for entry in srsly.read_yaml(Path(__file__).with_name("reproduce.yml")):
        (row,) = [row for row in load(entry["file"]) if entry["row"].items() <= row.items()]
        value, n = f"{row['value']:,.1f}", f"{row['n']:,}"
        lines.append(
            f"| {entry['what']} | {value} | {n} | `{row['command'].partition(' --note ')[0]}` |"
        )
    return "\n".join(lines)


def write_block(text: str, name: str, content: str) -> str:
    """The text with new content between the comments NAME START and NAME END."""
    block = f"<!-- {name} START -->\n{content}\n<!-- {name} END -->"
    pattern = rf"<!-- {name} START -->.*?<!-- {name} END -->"
    return re.sub(pattern, lambda _: block, text, flags=re.DOTALL)


def main() -> None:
    made = {
        name: make(load(results))
        for name, (results, make) in BLOCKS.items()
        if (RESULTS / f"{results}.json").is_file()
    } | {"LINKS": links_block(), "REPRODUCE": reproduce_table()}
    for page in PAGES:
        text = (ROOT / page).read_text("utf8")
        for name, content in made.items():
            text = write_block(text, name, content)
        (ROOT / page).write_text(text, encoding="utf8")


if __name__ == "__main__":
    main()

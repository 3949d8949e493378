"""Make the tables of README.md, CONTRIBUTING.md and docs/: python -m benchmarks.readme.

A table of `tables.yml` has lines and columns. A line has a label and selects result rows by the
fields in `where`; with `by`, there is a line for each combination of values ("all": the values in
the rows). A cell is a format string with more fields to select rows: numbers are means over these
rows, other values are from the first row. `$name` is the value of `name` in the line, `file`
another result file. Parts of a cell are joined by `join`. A line may override the format of a
column. Missing figures are shown as "–".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import srsly

from benchmarks.record import Row, load

MISSING = "–"
SPECS: dict[str, Any] = srsly.read_yaml(Path(__file__).with_name("tables.yml"))
CORPORA: dict[str, str] = SPECS.pop("names")[0]
_FLOORS = {"exact": "exact", "tfidf": "TF-IDF", "bm25": "BM25", "lexical": "no encoder"}
_NEURAL = {"dense": "ResCNN alone", "biosyn": "ResCNN as BioSyn", "rescnn": "ResCNN linker"}
_DICTIONARIES = {"base": "names", "biosyn": "names and training strings"}
Rows = Sequence[Row]


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    texts = [f"| {' | '.join(row)} |" for row in (columns, *lines)]
    return "\n".join([texts[0], f"|{'---|' * len(columns)}", *texts[1:]])


def pick(rows: Iterable[Row], where: Mapping[str, Any]) -> list[Row]:
    """Return the rows with these fields; values with "*" are patterns."""

    def has(row: Row, key: str, value: Any) -> bool:
        if isinstance(value, str) and "*" in value:
            return fnmatchcase(str(row.get(key, "")), value) and key in row
        return bool(row.get(key) == value)

    return [row for row in rows if all(has(row, *field) for field in where.items())]


def seeds_of(rows: Iterable[Row]) -> str:
    return ", ".join(map(str, sorted({row["seed"] for row in rows if row.get("seed") is not None})))


def shown(text: str, rows: Rows) -> str:
    """Fill a format with the fields of rows; return "" if a field is missing."""
    if not rows:
        return ""
    fields: dict[str, Any] = dict(rows[0]) | {"seeds": seeds_of(rows)}
    for key in ("value", "low", "high", "relative_change"):
        if len(rows) > 1 and all(row.get(key) is not None for row in rows):
            fields[key] = fmean(row[key] for row in rows)
    if value := fields.get("value"):
        fields["inverse"] = 1 / value
    note = re.sub("^idle", "machine otherwise idle", str(fields.get("note", "")).removesuffix("."))
    fields["remark"] = f" {note[:1].upper()}{note[1:]}." if note else ""
    fields["mark"] = "*" if fields.get("quoted") else ""
    fields["command"] = str(fields.get("command")).partition(" --note ")[0]
    try:
        return text.format(**fields)
    except (KeyError, TypeError):  # not measured
        return ""


def render(spec: Mapping[str, Any], rows: Rows | None = None) -> str:
    """Return a table of `tables.yml`. rows: Used instead of its result file."""
    table_rows = pick(load(spec["file"]) if rows is None else rows, spec.get("where", {}))

    def cell(parts: Any, line: Mapping[str, Any]) -> str:
        parts = parts if isinstance(parts[0], list) else [parts]
        texts = [shown(text, chosen(where[0] if where else {}, line)) for text, *where in parts]
        return spec.get("join", " / ").join(filter(None, texts))

    def chosen(where: Mapping[str, Any], line: Mapping[str, Any]) -> list[Row]:
        fields = {**line.get("where", {}), **where}
        fields = {k: line.get(v[1:]) if str(v).startswith("$") else v for k, v in fields.items()}
        if fields.get("figures"):
            return [scale()]
        total, file = fields.pop("of", None), fields.pop("file", None)
        rows = pick(load(file) if file else table_rows, fields)
        if not total:
            return rows
        return [row | {"value": row["value"] * row["n"] / total, "n": total} for row in rows]

    columns, lines = spec["columns"].items(), []
    for line in _lines(spec, table_rows):
        if "by" in spec and not pick(table_rows, line["where"]):
            continue
        label = line["label"] if isinstance(line["label"], list) else [line["label"]]
        label = [shown(text, chosen({}, line) or [{}]) for text in label]
        cells = [cell(line.get(name, parts), line) for name, parts in columns]
        if all(cells) or not spec.get("complete"):
            lines.append([*label, *(text or MISSING for text in cells)])
    heads = [shown(head, table_rows) for head in spec["heads"]]
    heads += [
        shown(head, pick(table_rows, parts[1]) if "{" in head else table_rows)
        for head, parts in columns
    ]
    note = spec.get("note", [])
    notes = [[note]] if isinstance(note, str) else note
    text = "".join(shown(part, chosen(where[0] if where else {}, {})) for part, *where in notes)
    return "\n\n".join(filter(None, [table(heads, lines), text]))


def _lines(spec: Mapping[str, Any], rows: Rows) -> Iterator[Mapping[str, Any]]:
    if "by" not in spec:
        yield from spec["lines"]
        return
    named = {
        key: {row[key]: row[key] for row in rows} if names == "all" else names
        for key, names in spec["by"].items()
    }
    for values in product(*(names.items() for names in named.values())):
        where = {key: value for key, (value, _) in zip(named, values, strict=True)}
        yield {"label": [name for _, name in values], "where": where}


def scale() -> Row:
    """Return the estimates of docs/guides/scale.md: 36 million abstracts, 10 million names."""
    spark = {row["metric"]: row["value"] for row in load("spark")}
    kb = {row["question"]: row for row in load("knowledge_base")}
    grown = {row["question"]: row["value"] for row in pick(load("kb_size"), {"names": 2_000_000})}
    speed = pick(load("contextual_speed"), {"max_pieces": 64, "metric": "mentions_per_second"})
    light, reading = (pick(speed, {"system": s})[0]["value"] for s in ("light", "collective"))
    (abstract,) = pick(load("pubmed"), {"metric": "processor_seconds_a_document"})
    hours = 36e6 * abstract["value"] / 3600
    build = kb["build"]["value"] / kb["build"]["n"]
    disk = kb["size"]["value"] * 1e6 / kb["size"]["n"]
    encode = (grown["add"] + grown["encode"]) / 1e6  # the step from one million to two
    return {
        "build": build,
        "disk": disk,
        "encode": encode,
        "transformer": light / reading,
        "hours": hours,
        "hours_on_160": hours / 160,
        "hours_loading": 160 * spark["processor_seconds_to_start"] / 3600,
        "gigabytes_of_workers": 16 * spark["megabytes"] / 1e3,
        "gigabytes_written": 36e6 * spark["bytes_a_document"] / 1e9,
        "minutes_build": 1e7 * build / 60,
        "minutes_encode": 1e7 * encode / 60,
        # 192 numbers of 16 bits, a scale, a digest of the name, and its part of the index.
        "gigabytes_of_names": 1e7 * (disk + 192 * 16 // 8 + 4 + 16 + 60) / 1e9,
    }


def install_table(rows: Rows) -> str:
    """Return a table of the disk space of the package with dependencies, and of each extra."""
    rows = pick(rows, {"question": "install_size"})
    heads = [f"extra `{row['system']}` adds" for row in rows if row["system"] != "package"]
    cells = [f"{row['value']:,.0f} MB" for row in rows]
    return table(["spacy-bioel and its dependencies", *heads], [cells])


def linking_tables(rows: Rows) -> str:
    """Return tables of linking given mentions: by corpus and dictionary, then by subset."""
    # For phrases in folds, recall@1 is recorded instead of accuracy@1.
    whole = [
        row
        for row in pick(rows, {"subset": ""})
        if row["metric"] == ("accuracy@1" if row.get("fold") is None else "recall@1")
    ]
    present = {row["system"] for row in whole}
    named = {name: text for name, text in (_FLOORS | _NEURAL).items() if name in present}
    named |= {name: name for name in sorted(present - set(named))}
    lines = []
    for (corpus, title), (protocol, dictionary) in product(CORPORA.items(), _DICTIONARIES.items()):
        of_line = pick(whole, {"corpus": corpus, "protocol": protocol})
        if not of_line:
            continue
        # Means are comparable only over the same folds as those of our linker.
        folds = _folds(pick(of_line, {"system": "rescnn"}) or of_line)
        of_systems = [pick(of_line, {"system": system}) for system in named]
        cells = [
            _linking_cell(found) if _folds(found) >= folds else MISSING for found in of_systems
        ]
        n = sum({row.get("fold"): row["n"] for row in of_line if row.get("fold") in folds}.values())
        many = f", {len(folds)} folds" if len(folds) > 1 else ""
        lines.append([f"{title} {of_line[0]['split']}{many}", dictionary, f"{n:,}", *cells])
    ours = pick(whole, {"system": "rescnn"}) or whole
    seeds = {title: seeds_of(pick(ours, {"corpus": c})) for c, title in CORPORA.items()}
    several = [f"{title}, mean of seeds {of}" for title, of in seeds.items() if "," in of]
    note = (
        "Accuracy@1, any id correct (folds: recall@1, mean ± standard deviation). "
        f"{'; '.join(['Seed 0', *several])}. Brackets: 95 % bootstrap intervals over documents. "
        f"Commands: `benchmarks/results/linking.json`. {rows[-1]['machine']}."
    )
    shown_table = table(["corpus", "dictionary", "n", *named.values()], lines)
    return "\n\n".join(filter(None, [shown_table, note, _subset_table(rows)]))


def _folds(rows: Rows) -> set[int | None]:
    return {row.get("fold") for row in rows}


def _linking_cell(rows: Rows) -> str:
    """Return the mean over seeds and folds, with its deviation or interval."""
    of_folds = [fmean(row["value"] for row in pick(rows, {"fold": f})) for f in _folds(rows)]
    value = f"{fmean(of_folds):.1f}"
    if rows[0]["system"] in _FLOORS:
        return value
    if len(of_folds) > 1:
        return f"{value} ± {stdev(of_folds):.1f}"
    return shown("{value:.1f} ({low:.1f}-{high:.1f})", rows) or value


def _subset_table(rows: Rows) -> str:
    """Return a table by subset, without and with our encoder, if both were measured."""
    parts = pick(rows, {"protocol": "biosyn", "metric": "accuracy@1", "subset": "?*"})
    both = ("lexical", "rescnn")
    corpora = [
        c for c in CORPORA if {*both} <= {row["system"] for row in pick(parts, {"corpus": c})}
    ]
    lines = []
    for subset in dict.fromkeys(row["subset"] for row in parts):
        cells = []
        for corpus in corpora:
            wanted = {"corpus": corpus, "subset": subset}
            floor, ours = (pick(parts, wanted | {"system": system}) for system in both)
            text = " / ".join([shown("{value:.1f}", floor), shown("{value:.1f} ({n:,})", ours)])
            cells.append(text if floor and ours else MISSING)
        lines.append([subset, *cells])
    head = "with training strings: no encoder / ResCNN linker (n)"
    return table([head, *map(CORPORA.get, corpora)], lines) if corpora else ""

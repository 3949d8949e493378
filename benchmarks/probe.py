"""Probe a name encoder with shuffled word pieces and narrow attention windows.

python -m benchmarks.probe MODEL GOLD --json rows.json --plot probing.svg; `spacy project run probe`
does so with the pipeline that was trained. Lai, Ji and Zhai (2021), BERT might be Overkill,
https://aclanthology.org/2021.findings-emnlp.140.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.lab.probing import PERTURBATIONS, Probed, gold_queries
from benchmarks.lab.probing import probe as run
from spacy_bioel.cli.console import (
    JsonOption,
    PrefixOption,
    make_folder,
    progress_bar,
    show_note,
    show_table,
    write_json,
)
from spacy_bioel.cli.models import load_with_gold, require_linker
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.storage.atomic import replacing_file

Row = dict[str, Any]
_METRIC = "accuracy@1"
_SHOWN = {
    "unperturbed": "unperturbed",
    "shuffle_unigram": "shuffle, unigram",
    "shuffle_bigram": "shuffle, bigram",
    "shuffle_trigram": "shuffle, trigram",
    "window_3_paper": "window 3, [CLS] open in the last layer",
    "window_3_code": "window 3, [CLS] open in all layers",
    "window_5_paper": "window 5, [CLS] open in the last layer",
    "window_5_code": "window 5, [CLS] open in all layers",
    "window_3": "window 3",
    "window_5": "window 5",
}

# Table 1 of Lai, Ji and Zhai (2021), development sets, as printed. The paper does not specify
# which of the two rules for [CLS] its windows use.
_QUOTED_SYSTEM = "SapBERT, quoted from Lai et al. (2021)"
_QUOTED_ROWS = (
    "unperturbed", "shuffle_unigram", "shuffle_bigram", "shuffle_trigram", "window_3", "window_5",
)  # fmt: skip
_QUOTED = {
    "ncbi_disease": (91.1, 88.2, 89.1, 90.5, 91.1, 91.2),
    "bc5cdr_disease": (90.9, 90.2, 90.8, 91.0, 90.3, 90.9),
    "bc5cdr_chemical": (98.2, 94.0, 96.4, 97.7, 97.9, 97.6),
    "medmentions": (54.4, 53.2, 53.8, 54.0, 53.2, 53.8),
    "cometa": (74.9, 65.6, 71.9, 73.1, 71.9, 73.4),
}

# Labels of the probing plot; published windows are shown beside both of our variants.
_PROBES = {
    "unperturbed": "unperturbed",
    "shuffle_unigram": "shuffle 1",
    "shuffle_bigram": "shuffle 2",
    "shuffle_trigram": "shuffle 3",
    "window_3_paper": "window 3",
    "window_3": "window 3",
    "window_3_code": "window 3\n([CLS] open)",
    "window_5_paper": "window 5",
    "window_5": "window 5",
    "window_5_code": "window 5\n([CLS] open)",
}


app = typer.Typer(add_completion=False)


@app.command()
def probe(
    model: Annotated[str, typer.Argument(help="Pipeline with a trained bioel_linker.")],
    gold: Annotated[
        Path, typer.Argument(help="Corpus with gold mentions, in any format of `bioel convert`.")
    ],
    kb: Annotated[
        Path | None, typer.Option(help="Probe with this knowledge base instead of the model's.")
    ] = None,
    corpus: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Name of the corpus, for the record. Published figures are shown for "
            f"{', '.join(_QUOTED)}. Default: the name of the file.",
        ),
    ] = "",
    split: Annotated[str, typer.Option(help="Part of the corpus, for the record.")] = "dev",
    seed: Annotated[int, typer.Option(help="Seed of the shuffles.")] = 0,
    format: Annotated[
        str | None, typer.Option(help="Format of the corpus; default: detected from the content.")
    ] = None,
    prefix: PrefixOption = "",
    json_file: JsonOption = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the result: .svg, .png or .pdf.")
    ] = None,
) -> None:
    """Probe how a linker's name encoder depends on word order and long-range attention.

    Word pieces of mentions and names are shuffled by ones, twos and threes, or attention is limited
    to a window of 3 or 5 tokens; then accuracy is measured again. Only dense search is used: a
    mention is right if its nearest name belongs to a gold concept. Encodes all names eight times.
    """
    nlp, texts = load_with_gold(model, gold, format=format, prefix=prefix)
    linker = require_linker(nlp, model)
    if kb is not None:
        linker.set_kb(kb)
    queries, concepts = gold_queries(nlp, linker, texts)
    total = len(PERTURBATIONS) * (linker.kb.n_names + len(queries))
    with progress_bar("Probing", total=total) as advance:
        found = run(linker, queries, concepts, seed=seed, progress=advance)
    system = Path(model).name
    about = {"corpus": corpus or gold.name.partition(".")[0], "split": split}
    rows = measured_rows(found, system, about | _describe_run(linker, seed)) + quoted_rows(about)
    if plot is not None:
        plot_probing(rows, plot)
    if write_json(json_file, rows):
        _show(found, rows, system)
        unknown = sum(not known for known in concepts)
        show_note(f"{len(queries):,} gold mentions, {unknown:,} of them without a concept of the "
                  "knowledge base: these count as wrong.")  # fmt: skip


def measured_rows(found: Sequence[Probed], system: str, about: Row) -> list[Row]:
    """Make one row per perturbation that applies to the encoder.

    about (Row): Fields common to all rows.
    """
    base = found[0].accuracy
    return [
        _row(system, one.perturbation, one.accuracy, base) | {"n": one.n} | about
        for one in found
        if one.accuracy is not None
    ]


def quoted_rows(about: Row) -> list[Row]:
    """Published figures for a corpus, if any, marked as quoted."""
    if about["corpus"] not in _QUOTED or about["split"] != "dev":
        return []
    values = _QUOTED[about["corpus"]]
    return [
        _row(_QUOTED_SYSTEM, name, value, values[0]) | {"n": None} | about | {"quoted": True}
        for name, value in zip(_QUOTED_ROWS, values, strict=True)
    ]


def _row(system: str, protocol: str, value: float, base: float | None) -> Row:
    return {
        "question": "probing",
        "system": system,
        "protocol": protocol,
        "metric": _METRIC,
        "value": round(value, 2),
        "relative_change": round(100 * (value - base) / base, 2) if base else None,
    }


def _describe_run(linker: Linker, seed: int) -> Row:
    # Base names only: the folders are specific to a machine.
    arguments = [Path(argument).name or argument for argument in sys.argv[1:]]
    device = "no GPU" if linker.model.ops.device_type == "cpu" else "GPU"
    cores, python = os.cpu_count(), platform.python_version()
    return {
        "kb_fingerprint": linker.kb.fingerprint,
        "encoder_fingerprint": linker.fingerprint,
        "seed": seed,
        "command": shlex.join(["python", "-m", "benchmarks.probe", *arguments]),
        "machine": f"{cores} cores, {platform.machine()}, Python {python}, {device}",
        "date": datetime.now(UTC).date().isoformat(),
    }


def _show(found: Sequence[Probed], rows: Sequence[Row], system: str) -> None:
    """Print a table in the form of table 1 of the paper, measured rows first."""
    corpus = rows[0]["corpus"]
    measured = {row["protocol"]: row for row in rows if not row.get("quoted")}
    shown = [
        (system, _SHOWN[one.perturbation], *_cells(measured.get(one.perturbation))) for one in found
    ]
    shown += [
        (row["system"], _SHOWN[row["protocol"]], *_cells(row, digits=1))
        for row in rows
        if row.get("quoted")
    ]
    columns = ("system", "probe", _METRIC, "relative change")
    show_table(columns, shown, title=f"{corpus}, {rows[0]['split']}")


def _cells(row: Row | None, *, digits: int = 2) -> tuple[str, str]:
    if row is None:
        return "-", "-"
    change = row["relative_change"]
    shown = "" if change is None or row["protocol"] == "unperturbed" else f"{change:+.2f} %"
    return f"{row['value']:.{digits}f}", shown


def plot_probing(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot rows of `--json`, of any number of systems, with one panel per corpus.

    rows (Sequence[dict]): Rows with corpus, split, system, protocol and value.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    corpora = list(dict.fromkeys((row["corpus"], row["split"]) for row in rows))
    figure = Figure(figsize=(9, 3.6 * len(corpora)), layout="constrained")
    panels = figure.subplots(len(corpora), squeeze=False)[:, 0]
    for panel, (corpus, split) in zip(panels, corpora, strict=True):
        chosen = [row for row in rows if (row["corpus"], row["split"]) == (corpus, split)]
        _draw_panel(panel, chosen)
        panel.set_title(f"{corpus}, {split}")
    make_folder(path.parent)
    suffix = path.suffix.lower()
    # Reproducible files: no date, and a fixed salt of the ids.
    metadata = {"Date": None} if suffix == ".svg" else None
    with replacing_file(path) as temporary, rc_context({"svg.hashsalt": "bioel"}):
        figure.savefig(temporary, format=suffix.removeprefix("."), metadata=metadata)


def _draw_panel(panel: Any, rows: Sequence[dict[str, Any]]) -> None:
    """Draw a point for each probe and system, side by side; hollow for quoted values."""
    places = {label: at for at, label in enumerate(dict.fromkeys(_PROBES.values()))}
    systems = list(dict.fromkeys(row["system"] for row in rows))
    for number, system in enumerate(systems):
        own = [row for row in rows if row["system"] == system]
        shift = 0.6 * ((number + 0.5) / len(systems) - 0.5)
        x = [places[_PROBES[row["protocol"]]] + shift for row in own]
        y = [row["value"] for row in own]
        hollow = {"markerfacecolor": "none"} if own[0].get("quoted") else {}
        panel.plot(x, y, "o", label=system, **hollow)
        for left, height in zip(x, y, strict=True):
            place = {"textcoords": "offset points", "xytext": (0, 5), "ha": "center"}
            panel.annotate(f"{height:.1f}", (left, height), fontsize=6, **place)
    panel.set_xticks(list(places.values()), list(places), fontsize=8)
    panel.set_xlim(-0.5, len(places) - 0.5)
    panel.margins(y=0.15)
    panel.grid(axis="y", alpha=0.3)
    panel.set_ylabel("accuracy@1, %")
    panel.legend(fontsize=7)


if __name__ == "__main__":
    app()

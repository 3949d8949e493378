"""Plots of result files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spacy_bioel.cli.console import make_folder, naming
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.storage.atomic import replacing_file

_FORMATS = (".svg", ".png", ".pdf")
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


def check_plottable(path: Path) -> None:
    """Check that a plot can be written, before the computation starts.

    RAISES BioelError: [B156] without matplotlib, [B158] on another suffix than .svg, .png, .pdf.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise BioelError(Errors.B156.format(error=error)) from error
    if path.suffix.lower() not in _FORMATS:
        raise BioelError(Errors.B158.format(path=path))


def plot_probing(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot rows of `bioel probe --json`, of any number of systems, with one panel per corpus.

    rows (Sequence[dict]): Rows with corpus, split, system, protocol and value.
    RAISES BioelError: Those of `check_plottable`.
    """
    check_plottable(path)
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
    with (
        naming(path),
        replacing_file(path) as temporary,
        rc_context({"svg.hashsalt": "bioel"}),
    ):
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

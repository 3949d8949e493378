"""Plots of result files, and for the page of errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from spacy_bioel.cli.console import make_folder, naming
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.scoring.evaluation import Reliability
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
# Colours in a drawing, and what the page has for them.
_INK, _SERIES = "#010203", ("#040506", "#070809")
_PAGE = {_INK: "currentColor", _SERIES[0]: "var(--first)", _SERIES[1]: "var(--second)"}


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


def can_plot() -> bool:
    """Whether matplotlib can be imported."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw_counts(counts: Mapping[str, int]) -> str:
    """Bars of named counts, as the text of an SVG to be put into a page."""
    with _page_colours():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 0.4 * len(counts) + 0.4), layout="constrained")
        panel = figure.subplots()
        names = list(counts)[::-1]  # the first on top
        bars = panel.barh(names, [counts[name] for name in names], color=_SERIES[0])
        panel.bar_label(bars, padding=3)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
        panel.set_xticks([])
        panel.margins(x=0.12)
        shown = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        return _as_svg(figure, "counts", f"Bar chart of the errors of each kind: {shown}.")


def draw_reliability(series: Mapping[str, Reliability]) -> str:
    """Mean score against observed accuracy, as the text of an SVG.

    series (Mapping): One or two, by their names.
    """
    with _page_colours():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.5, 5), layout="constrained")
        panel = figure.subplots()
        panel.plot([0, 1], [0, 1], "--", color=_INK, linewidth=0.8, label="score = accuracy")
        for number, (name, one) in enumerate(series.items()):
            colour, marker = _SERIES[number], "os"[number]
            x, y = [b.score for b in one.bins], [b.right for b in one.bins]
            label = f"{name}: calibration error {one.calibration_error:.3f}, n {one.n:,}"
            panel.plot(x, y, marker=marker, color=colour, label=label)
            for b in one.bins:
                beside = (0, -12 if number else 6)  # below the second line, above the first
                place: Any = {"textcoords": "offset points", "xytext": beside, "ha": "center"}
                panel.annotate(f"{b.n:,}", (b.score, b.right), fontsize=7, **place)
        panel.set_xlim(-0.02, 1.02)
        panel.set_ylim(-0.08, 1.08)
        panel.set_xlabel("score")
        panel.set_ylabel("observed accuracy")
        panel.legend(fontsize=8, framealpha=0, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        described = "; ".join(
            f"{name}, expected calibration error {one.calibration_error:.3f} of {one.n:,}"
            for name, one in series.items()
        )
        return _as_svg(figure, "reliability", f"Reliability diagram: {described}.")


@contextmanager
def _page_colours() -> Iterator[None]:
    """Draw in placeholders for the colours of the page, on nothing."""
    from matplotlib import rc_context

    inks: Any = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    papers: Any = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none")
    # Text stays text, and files are reproducible.
    files: Any = {"svg.hashsalt": "bioel", "svg.fonttype": "none", "font.family": "sans-serif"}
    with rc_context(dict.fromkeys(inks, _INK) | papers | files):
        yield


def _as_svg(figure: Any, name: str, described: str) -> str:
    """A figure as an element of a page: its colours are those of the page, its ids its own.

    name (str): Begins all ids, since those of two figures are the same.
    described (str): For readers who do not see it.
    """
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    _, _, svg = text.getvalue().partition("<svg")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|"#|url\(#)', rf"\g<1>{name}-", svg)
    for placeholder, colour in _PAGE.items():
        svg = svg.replace(placeholder, colour)
    return f'<svg role="img" aria-label="{escape(described)}"{svg.rstrip()}'

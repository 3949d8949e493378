"""Plots of result files, and for the page of errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import Any

from spacy_bioel.scoring.evaluation import Reliability

# Colours in a drawing, and what the page has for them.
_INK, _SERIES = "#010203", ("#040506", "#070809")
_PAGE = {_INK: "currentColor", _SERIES[0]: "var(--first)", _SERIES[1]: "var(--second)"}


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

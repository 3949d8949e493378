"""Draw the charts of README.md and docs/results.md from benchmarks/results.

python -m benchmarks.charts writes docs/img/*.svg, as `python -m benchmarks.readme` does. The
colours are those of the HTML pages, light and dark. Commit 7afda652 has the code of
small_corpora.svg, whose benchmark has answered its question.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from benchmarks.record import load
from benchmarks.tables import pick
from spacy_bioel.export.pages import ticks_of

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "img"
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_OURS = "spacy-bioel"
_COLOURS = ("paper", "ink", "soft", "line", "series-1", "series-2")
# A title, a result file, the format of a value, the systems by name, and fields of their rows.
_Panel = tuple[str, str, str, Mapping[str, str], Mapping[str, str]]
_ACCURACY: Sequence[_Panel] = (
    (
        "Genes of tmVar 3, from text to ids, F1",
        "peers",
        "{value:.1f} ({low:.1f}-{high:.1f})",
        {"PubTator": "pubtator", _OURS: "ours", "HunFlair2": "hunflair2", "BERN2": "bern"},
        {"subset": "not seen", "metric": "f1"},
    ),
    (
        "Phenotypes of HPO in 62 texts, without training, F1",
        "no_labels",
        "{value:.1f}",
        {_OURS: "ours", "FastHPOCR": "fasthpocr", "longest exact names": "exact"},
        {"corpus": "hpo_dev", "protocol": "mention", "metric": "f1"},
    ),
    (
        "Diseases of BC5CDR, mentions given, names only, accuracy@1",
        "scispacy",
        "{value:.1f}",
        {_OURS: "rescnn", "scispaCy": "scispacy"},
        {"question": "accuracy", "metric": "value"},
    ),
)
_PIPELINES = {_OURS: "light", "NER and scispaCy": "scispacy"}
_LINKERS = {_OURS: "rescnn", "scispaCy": "scispacy"}
_SPEED: Sequence[_Panel] = (
    (
        "From text to links: documents per second",
        "documents",
        "{value:,.0f}",
        _PIPELINES,
        {"metric": "documents_per_second"},
    ),
    ("From text to links: MB", "documents", "{value:,.0f}", _PIPELINES, {"metric": "megabytes"}),
    (
        "Linker alone: mentions per second",
        "scispacy",
        "{value:,.0f}",
        _LINKERS,
        {"question": "throughput", "metric": "value"},
    ),
    (
        "Linker alone: MB",
        "scispacy",
        "{value:,.0f}",
        _LINKERS,
        {"question": "memory", "metric": "value"},
    ),
)


def charts() -> Iterator[tuple[str, str]]:
    """Yield the name and the SVG of each chart."""
    yield (
        "accuracy",
        _bars(
            "Accuracy of spacy-bioel and of other tools",
            _ACCURACY,
            "Genes: documents whose genes our starter was not trained on; lines: 95 % intervals.",
            "Our rules for genes and phenotypes were written after reading the texts: expect less.",
            end=100,
        ),
    )
    yield (
        "speed",
        _bars(
            "Speed and memory of spacy-bioel and of scispaCy",
            _SPEED,
            "Medians of three alternating runs on two cores of an idle machine, no GPU.",
        ),
    )


def write_charts() -> None:
    for name, svg in charts():
        (IMAGES / f"{name}.svg").write_text(svg, encoding="utf8")


def _bars(title: str, panels: Sequence[_Panel], *notes: str, end: float = 0) -> str:
    """Draw panels of bars, on a scale to `end`; 0: each panel has its own scale."""
    drawn, y = [], 26
    for head, file, form, systems, fields in panels:
        bars = []
        for name, system in systems.items():
            (row,) = pick(load(file), {"system": system, **fields})
            bar = {key: row.get(key) for key in ("value", "low", "high")}
            bars.append({"name": name, "ours": name == _OURS, "shown": form.format(**bar), **bar})
        highest = max(bar["high"] or bar["value"] for bar in bars)
        drawn.append(
            {"title": head, "y": y, "bars": bars, "end": end or ticks_of([0, highest])[-1]}
        )
        y += 48 + 26 * len(bars)
    return _picture(title, notes, height=y - 24, bars=drawn)


def _picture(title: str, notes: Sequence[str], *, height: int, **drawn: Any) -> str:
    css = (ROOT / "spacy_bioel/templates/style.css").read_text("utf8")
    schemes = [
        "; ".join(f"--{name}: {re.search(rf'--{name}: ([^;]+)', scheme)[1]}" for name in _COLOURS)
        for scheme in re.findall(r"\{\s*(--paper: [^}]*--series-2: [^}]*)\}?", css)
    ]
    about = {"title": title, "notes": notes, "height": height + 17 * len(notes)}
    text = _TEMPLATES.get_template("charts.jinja").render(about, schemes=schemes, **drawn)
    return re.sub(r"\n\s*\n+", "\n", text) + "\n"


if __name__ == "__main__":
    write_charts()

"""The charts of the README and of docs/results.md show the figures of benchmarks/results."""

from statistics import fmean
from xml.etree import ElementTree

import pytest

from benchmarks.charts import IMAGES, charts
from benchmarks.record import load

SVG = "{http://www.w3.org/2000/svg}"
CHARTS = dict(charts())


def values(file, **fields):
    return [row["value"] for row in load(file) if fields.items() <= row.items()]


def panels(name):
    return {g.get("data-panel"): g for g in ElementTree.fromstring(CHARTS[name]).iter(f"{SVG}g")}


def bars(panel):
    return {g.get("data-name"): g for g in panel.iter(f"{SVG}g") if g.get("data-name")}


def test_the_committed_charts_are_those_of_the_results():
    advice = "run: python -m benchmarks.charts"
    for name, svg in CHARTS.items():
        assert (IMAGES / f"{name}.svg").read_text("utf8") == svg, advice


@pytest.mark.parametrize("name", ["accuracy", "speed"])
def test_a_bar_is_as_long_as_its_number(name):
    for title, panel in panels(name).items():
        for bar in bars(panel).values() if title else ():
            scale = 250 / float(panel.get("data-end"))
            drawn = float(bar.find(f"{SVG}rect").get("width"))
            assert drawn == pytest.approx(scale * float(bar.get("data-value")), abs=0.1)
            for line in bar.iter(f"{SVG}path"):
                start, end = line.get("d")[1:].replace(" ", "H").split("H")[::2]
                low, high = (
                    214 + scale * float(line.get(f"data-{key}")) for key in ("low", "high")
                )
                assert [float(start), float(end)] == pytest.approx([low, high], abs=0.1)


def test_bars_of_accuracy_have_one_scale():
    assert {panel.get("data-end") for title, panel in panels("accuracy").items() if title} == {
        "100"
    }


def test_bars_have_the_figures_of_the_results():
    genes, hpo, _ = (bars(panel) for title, panel in panels("accuracy").items() if title)
    shown = {name: float(bar.get("data-value")) for name, bar in genes.items()}
    systems = {"PubTator": "pubtator", "spacy-bioel": "ours", "HunFlair2": "hunflair2"}
    for name, system in {**systems, "BERN2": "bern"}.items():
        assert values("peers", system=system, subset="not seen", metric="f1") == [shown[name]]
    about = {"corpus": "hpo_dev", "protocol": "mention", "metric": "f1"}
    assert [float(hpo["FastHPOCR"].get("data-value"))] == values(
        "no_labels", system="fasthpocr", **about
    )
    assert "83.0 (79.4-85.9)" in [text.text for text in genes["spacy-bioel"].iter(f"{SVG}text")]


def test_lines_have_the_means_over_the_seeds():
    panel = panels("small_corpora")["NCBI Disease"]
    ours, scratch = panel.findall(f"{SVG}g")
    about = {"corpus": "ncbi_disease", "protocol": "mention", "metric": "f1", "subset": ""}
    about["measured"] = "ncbi_disease"  # and not what a pipeline has forgotten
    for line, system in ((ours, "fine_tuned"), (scratch, "scratch")):
        places = line.find(f"{SVG}polyline").get("points").split()
        circles = line.findall(f"{SVG}circle")
        assert len(places) == len(circles) >= 4
        for place, circle in zip(places, circles, strict=True):
            found = values("fine_tuning", system=system, size=circle.get("data-size"), **about)
            assert float(circle.get("data-value")) == pytest.approx(fmean(found), abs=0.01)
            assert [float(circle.get(f"data-{key}")) for key in ("low", "high")] == [
                min(found),
                max(found),
            ]
            assert place == f"{circle.get('cx')},{circle.get('cy')}"
            height = 250 - 200 * (float(circle.get("data-value")) - 20) / 80
            assert float(circle.get("cy")) == pytest.approx(height, abs=0.1)


def test_charts_follow_light_and_dark():
    for svg in CHARTS.values():
        light, dark = svg.split("@media (prefers-color-scheme: dark)")
        assert "--paper: #fff;" in light and "--paper: #14171c;" in dark
        assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")

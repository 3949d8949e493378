"""Charts draw the numbers that they are given."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from browser import check_page, chromium

from spacy_bioel.export.pages import PAGES

NAN = float("nan")
MARKUP = "<script>document.title='run'</script>"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(macro: str, *args: Any, **options: Any) -> str:
    return str(getattr(PAGES.get_template("charts.html").module, macro)(*args, **options)).strip()


def parse(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<main>{html}</main>")


def values(element: ElementTree.Element, *names: str) -> list[float]:
    return [float(element.attrib[name].rstrip("%")) for name in names]


def table_of(chart: ElementTree.Element) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in chart.iter("tr")]


def test_bars_are_as_long_as_their_values():
    rows = [
        ("a", 40.0, 30.0, 50.0, 7),
        (MARKUP, 20.0, 0.0, 80.0, 1_000),
        ("none", 0.0, 0.0, 0.0, 0),
    ]
    columns = ("label", "F1", "low", "high", "n")
    chart = parse(drawn("bars", "F1.", rows, columns, 1, " %", high=100))
    groups = [g for g in chart.iter(f"{SVG}g")]
    assert [g.attrib["data-name"] for g in groups] == ["a", MARKUP, "none"]
    for group, (_, value, low, high, _) in zip(groups, rows, strict=True):
        assert values(group, "data-value") == [value]
        assert values(group.find(f"{SVG}rect"), "width") == [0.8 * value]
        interval = values(group.find(f"{SVG}line"), "data-low", "data-high", "x1", "x2")
        assert interval == [low, high, 0.8 * low, 0.8 * high]
        # The number is on the right of the bar and its interval.
        assert values(group.findall(f"{SVG}text")[-1], "x") == [0.8 * high]
    assert table_of(chart)[1:] == [
        ["a", "40.0", "30.0", "50.0", "7"],
        [MARKUP, "20.0", "0.0", "80.0", "1,000"],
        ["none", "0.0", "0.0", "0.0", "0"],
    ]
    assert chart.find(f".//{SVG}svg").attrib["aria-label"].startswith("F1. a: 40.0 %; <script>")


def test_parts_of_bars_lie_side_by_side():
    rows = [("missed", 3, 0, 1, 4), ("spurious", 0, 2, 0, 2)]
    html = drawn("bars", "Errors.", rows, ("kind", "A", "", MARKUP, "all"), parts=("A", "", MARKUP))
    chart = parse(html)
    parts = [
        [
            (r.attrib["data-part"], *values(r, "data-value", "x", "width"))
            for r in g.iter(f"{SVG}rect")
        ]
        for g in chart.iter(f"{SVG}g")
    ]
    assert parts == [[("A", 3, 0, 60), (MARKUP, 1, 60, 20)], [("", 2, 0, 40)]]
    assert table_of(chart)[1:] == [["missed", "3", "0", "1", "4"], ["spurious", "0", "2", "0", "2"]]
    assert "(no label)" in html


def test_nothing_to_draw_is_no_chart():
    assert drawn("bars", "None.", [], ("label", "n")) == ""
    assert drawn("lines", "None.", {}, "x", "y") == ""
    assert drawn("lines", "None.", {"a": [], "b": [(NAN, 1), (1, NAN)]}, "x", "y") == ""


def test_of_many_bars_some_are_drawn_and_all_are_in_the_table():
    chart = parse(drawn("bars", "Many.", [(f"L{i}", i) for i in range(200)], ("label", "n")))
    assert len(list(chart.iter(f"{SVG}g"))) == 30
    assert len(table_of(chart)) == 201
    assert "The first 30 of 200." in "".join(chart.find("figure/figcaption").itertext())


def test_values_that_are_not_finite_are_in_the_table_only():
    chart = parse(drawn("bars", "F1.", [("a", NAN, NAN, NAN), ("b", 1.0, NAN, 2.0)], ("l", "v"), 1))
    assert len(list(chart.iter(f"{SVG}rect"))) == 1
    assert list(chart.iter(f"{SVG}line")) == []
    assert table_of(chart)[1:] == [["a", "–", "–", "–"], ["b", "1.0", "–", "2.0"]]
    chart = parse(drawn("lines", "L.", {"a": [(0, 1), (1, NAN), (2, 3)]}, "x", "y"))
    assert len(list(chart.iter(f"{SVG}circle"))) == 2
    assert len(table_of(chart)) == 4
    assert "nan" not in ElementTree.tostring(chart, "unicode").lower()


SERIES = {"loss": [(0, 5.0), (50, 2.5), (200, 0.0)], MARKUP: [(0, 0.0), (200, 10.0)]}


def test_points_lie_at_their_values():
    ticks = ([0, 100, 200], [0, 5, 10])
    chart = parse(drawn("lines", "L.", SERIES, "update", "y", *ticks, chosen=(150, "best")))
    groups = {g.attrib["data-name"]: g for g in chart.iter(f"{SVG}g")}
    assert list(groups) == list(SERIES)
    for name, points in SERIES.items():
        places = [(x / 2, 240 - 24 * y) for x, y in points]
        circles = groups[name].findall(f"{SVG}circle")
        assert [tuple(values(c, "data-x", "data-y")) for c in circles] == points
        assert [tuple(values(c, "cx", "cy")) for c in circles] == places
        segments = [values(s, "x1", "y1", "x2", "y2") for s in groups[name].iter(f"{SVG}line")]
        assert segments == [[*a, *b] for a, b in zip(places, places[1:], strict=False)]
    (mark,) = chart.iterfind(f".//{SVG}line[@class='chosen']")
    assert values(mark, "data-x", "x1", "x2") == [150, 75, 75]
    assert table_of(chart)[1:] == [
        [name, f"{x:,}", f"{y:.3f}"] for name, points in SERIES.items() for x, y in points
    ]


def test_the_axes_enclose_the_points_and_the_mark():
    chart = parse(drawn("lines", "One.", {"a": [(3, 7.0)]}, "x", "y", chosen=(12, "best")))
    axis = [t.text for t in chart.iter(f"{SVG}text") if t.attrib.get("y") == "258"]
    assert (axis[0], axis[-1]) == ("2", "12")
    places = [v for e in chart.iter() for k in ("x1", "cx") if k in e.attrib for v in values(e, k)]
    assert all(0 <= place <= 100 for place in places if place)


def test_a_reliability_diagram():
    points = [(0.05, 0.1, 4, 0.0, 0.1), (0.95, 0.9, 100, 0.9, 1.0)]
    chart = parse(drawn("reliability_diagram", "R.", {"all": points}))
    circles = list(chart.iter(f"{SVG}circle"))
    assert [values(c, "cx", "cy") for c in circles] == [[5, 216], [95, 24]]
    small, large = (values(c, "r")[0] - 2.5 for c in circles)
    assert (large / small) ** 2 == pytest.approx(25, rel=0.1)  # areas
    assert "few" in circles[0].attrib["class"] and "few" not in circles[1].attrib["class"]
    (line,) = chart.iterfind(f".//{SVG}g/{SVG}line")
    assert line.attrib["class"] == "line few"
    both = parse(drawn("reliability_diagram", "R.", {"all": points, "gold": points}))
    squares = both.findall(f".//{SVG}g/{SVG}rect")
    assert [values(square, "x", "y") for square in squares] == [[5, 216], [95, 24]]
    (ideal,) = chart.iterfind(f".//{SVG}line[@class='ideal']")
    assert values(ideal, "x1", "y1", "x2", "y2") == [0, 240, 100, 0]
    assert table_of(chart)[1:] == [
        ["all", "0.050", "0.100", "4", "0.000", "0.100"],
        ["all", "0.950", "0.900", "100", "0.900", "1.000"],
    ]


def test_charts_in_a_browser(tmp_path):
    rows = [("مرض السكري", 3, 2, 5), (MARKUP * 20, 1, 0, 1), ("\U0001f600", 0, 900, 900)]
    charts = drawn("bars", "By label.", rows, ("kind", "A", "", "all"), parts=("A", ""))
    charts += drawn("lines", "L.", {**SERIES, MARKUP * 20: [(1e9, 1e-9)]}, "x", "y")
    charts += drawn("reliability_diagram", "R.", {"all": [(1.0, 1.0, 1, 0.9, 1.0)]})
    page = PAGES.get_template("page.html").render(title="Charts")
    path = tmp_path / "charts.html"
    path.write_text(page.replace("<main>", f"<main>{charts}"), encoding="utf8")
    assert re.search("<script", charts) is None
    with chromium() as browser:
        check_page(browser, path.as_uri(), use=lambda page: page.locator("summary").first.click())

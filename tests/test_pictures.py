"""Pictures of the pages, and what was found in them: `python -m benchmarks.run screenshots`."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ["documentation", "errors", "explain", "links", "service"]


def test_each_page_has_its_pictures() -> None:
    found = sorted(path.name for path in (ROOT / "docs/img").glob("*.png"))
    assert found == [f"{page}-{scheme}.png" for page in PAGES for scheme in ("dark", "light")]


def test_nothing_serious_was_found_and_the_keyboard_reaches_everything() -> None:
    rows = json.loads((ROOT / "benchmarks/results/accessibility.json").read_text("utf8"))
    found = {(row["system"], row["scheme"], row["metric"]): row["value"] for row in rows}
    assert sorted({page for page, *_ in found}) == PAGES
    assert {v for (*_, metric), v in found.items() if metric == "serious_violations"} == {0}
    unreached = {
        page: found[page, scheme, "focusable"] - found[page, scheme, "reached_by_keyboard"]
        for page, scheme, _ in found
    }
    # Two links of the documentation's theme are not shown at this width.
    assert unreached == dict.fromkeys(PAGES, 0) | {"documentation": 2}

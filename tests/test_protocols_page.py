"""docs/protocols.md is what the table of protocols says."""

from __future__ import annotations

from benchmarks.protocols import PAGE, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf8") == page()


def test_the_page_has_every_protocol() -> None:
    lines = [line for line in page().splitlines() if line.startswith("| `")]
    assert len([line for line in lines if line.count("|") == 10]) == 10
    assert (
        "| `end_to_end`, also `strict` | equal | ignored | equal sets | different offsets with "
        "their ids | left out, on its own side | right with exactly its ids | compared as their "
        "current ids, on both sides | strong_link_match |"
    ) in lines

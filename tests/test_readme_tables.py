"""The tables of the pages: means over seeds and folds, intervals, quoted rows."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from benchmarks import readme
from benchmarks.readme import LINKS, PAGES, block, filled, write_block
from benchmarks.tables import SPECS, install_table, linking_tables, render
from benchmarks.where import STEPS

ROOT = Path(__file__).parents[1]
Row = dict[str, Any]


def measured(system: str, value: float, **fields: Any) -> Row:
    row = {
        "system": system,
        "corpus": "ncbi_disease",
        "split": "dev",
        "protocol": "biosyn",
        "subset": "",
        "metric": "accuracy@1",
        "value": value,
        "low": value - 1,
        "high": value + 1,
        "n": 1200,
        "seed": 0,
        "machine": "2 cores",
        "command": "c",
        "date": "d",
    }
    return row | fields


def table_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def test_linking_has_floors_first_and_means_over_seeds() -> None:
    rows = [
        measured("rescnn", 90.0),
        measured("rescnn", 92.0, seed=1),
        measured("other_dense", 80.0),
        measured("exact", 70.0),
        measured("exact", 50.0, protocol="base"),
        measured("exact", 99.0, metric="recall@5"),
    ]
    text = linking_tables(rows)
    assert table_lines(text) == [
        "| corpus | dictionary | n | exact | ResCNN linker | other_dense |",
        "|---|---|---|---|---|---|",
        "| NCBI Disease dev | names | 1,200 | 50.0 | – | – |",
        "| NCBI Disease dev | names and training strings | 1,200 | 70.0 | 91.0 (90.0-92.0)"
        " | 80.0 (79.0-81.0) |",
    ]
    assert "Seed 0, NCBI Disease: mean of seeds 0, 1; in brackets" in text


def test_the_steps_of_an_abstract_are_functions() -> None:
    for path in STEPS:
        assert callable(resolve_name(path)), path


def test_folds_are_averaged_and_a_system_without_all_of_them_is_left_out() -> None:
    def fold(system: str, number: int, value: float) -> Row:
        row = measured(system, value, corpus="twadrl", split="test", fold=number, n=100)
        del row["low"], row["high"]
        return row | {"metric": "recall@1"}

    rows = [fold("rescnn", 0, 40.0), fold("rescnn", 1, 44.0), fold("bm25", 0, 30.0)]
    rows += [fold("tfidf", 0, 20.0), fold("tfidf", 1, 30.0)]
    assert table_lines(linking_tables(rows))[2:] == [
        "| TwADR-L test, 2 folds | names and training strings | 200 | 25.0 | – | 42.0 ± 2.8 |"
    ]


def test_parts_of_the_mentions_where_both_systems_were_measured() -> None:
    rows = [measured("rescnn", 90.0), measured("lexical", 85.0)]
    rows += [measured(s, v, subset="one word", n=30) for s, v in (("rescnn", 95), ("lexical", 94))]
    rows += [measured("rescnn", 80.0, subset="two words")]
    assert table_lines(linking_tables(rows))[3:] == [
        "| with training strings: no encoder / ResCNN linker (n) | NCBI Disease |",
        "|---|---|",
        "| one word | 94.0 / 95.0 (30) |",
        "| two words | – |",
    ]


def test_probing_marks_quoted_rows() -> None:
    def row(system: str, probe: str, value: float, change: float | None, **fields: Any) -> Row:
        return measured(system, value, protocol=probe, relative_change=change, **fields)

    paper = "SapBERT, quoted from Lai et al. (2021)"
    rows = [
        row(paper, "unperturbed", 91.1, None, quoted=True),
        row(paper, "window_3", 88.2, -3.2, quoted=True),
        row("rescnn", "unperturbed", 80.0, None),
        row("rescnn", "shuffle_unigram", 60.0, -25.0),
    ]
    assert table_lines(render(SPECS["PROBING"], rows)) == [
        "| encoder | word pieces | NCBI Disease | BC5CDR, diseases |",
        "|---|---|---|---|",
        "| rescnn | as it is | 80.0 | – |",
        "| rescnn | shuffled, ones | 60.0 (-25.0 %) | – |",
        f"| *{paper}* | as it is | *91.1* | – |",
        f"| *{paper}* | window 3 | *88.2 (-3.2 %)* | – |",
    ]


def test_end_to_end_has_a_line_a_system_and_parts_below() -> None:
    about = {"corpus": "bc5cdr"}
    rows = [
        measured("dual_encoder", 84.0, protocol="strict", metric="f1", **about),
        measured("dual_encoder", 86.0, protocol="strict", metric="f1", seed=1, **about),
        measured("rescnn", 81.0, protocol="strict", metric="f1", **about),
    ]
    any_right = about | {"protocol": "gold_any", "metric": "accuracy@1_nil_ignored"}
    parts = [
        measured("rescnn", 90.0, **any_right),
        measured("rescnn", 40.0, **any_right | {"subset": "ambiguous name", "n": 12}),
    ]
    first, second = SPECS["END TO END"]
    assert [line.split(" | ")[1:5] for line in table_lines(render(first, rows))[2:]] == [
        ["CNN, light linker", "0", "–", "81.0 (80.0-82.0)"],
        ["MiniLM, dual encoder", "0, 1", "–", "85.0 (84.0-86.0)"],
    ]
    assert table_lines(render(second, parts))[2:] == [
        "| BC5CDR | CNN, light linker | 90.0 (1,200) | – | – | – | 40.0 (12) |"
    ]


def test_a_line_may_have_its_own_format_and_a_note_the_remark_of_the_run() -> None:
    questions = ("index", "load", "throughput", "different", "memory", "own", "accuracy")
    rows = [
        measured(system, value, question=question, metric=metric, names=71_821, mentions=787)
        | {"documents": 9, "gold": 8, "note": "a busy machine", "command": "c --note x"}
        for question in questions
        for system, metric, value in (
            ("scispacy", "value", 500.0),
            ("rescnn", "value", 10.0),
            ("rescnn", "ratio", 0.02),
        )
    ]
    text = render(SPECS["SCISPACY"], rows)
    assert table_lines(text)[0] == "| 71,821 names | scispaCy | bioel | beside scispaCy |"
    assert [line.split(" | ")[-1] for line in table_lines(text)[2:]] == [
        *("0.0 times as fast |", "0.0 times as fast |", "0.0 times as many |"),
        *("0.0 times as many |", "0.02 of it |", "0.02 of it |", "0.020 of it |"),
    ]
    assert text.endswith("One run: `c`; 2 cores; d. A busy machine.")


def test_what_was_not_measured_is_a_dash() -> None:
    rows = [measured("ours", 98.1, question="negated", metric="f1")]
    assert table_lines(render(SPECS["ASSERTION"], rows))[2:] == ["| ours | 98.1 | – | – | – |"]


def test_front_of_the_readme() -> None:
    lines = table_lines(block("FRONT RESULTS"))
    assert [line.split(" | ")[2] for line in lines[2:]] == ["9,532", "9,532", "1,073"]
    sizes = [
        {"system": "package", "value": 1200},
        {"system": "train", "value": 700},
        {"system": "ann", "value": 66},
    ]
    assert table_lines(install_table(sizes)) == [
        "| spacy-bioel with all that it needs | extra `train` adds | extra `ann` adds |",
        "|---|---|---|",
        "| 1,200 MB | 700 MB | 66 MB |",
    ]


def test_links_of_the_readme_get_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text("utf8")
    assert set(re.findall(r"\]\[([\w ]+)\]", text)) == set(LINKS)
    for page in LINKS.values():
        assert (ROOT / page.partition("#")[0]).exists(), page
    monkeypatch.setattr(readme, "address", lambda: "https://x.org/")
    assert block("LINKS").startswith("[install]: https://x.org/docs/install.md\n")


def test_papers_have_figures_of_ours() -> None:
    lines = table_lines(block("PAPERS"))[2:]
    assert len(lines) == 11 and not [line for line in lines if "–" in line]


def test_write_block_leaves_the_rest_alone() -> None:
    text = "a\n<!-- X START -->\nold\n<!-- X END -->\n<!-- Y START -->\n<!-- Y END -->\n"
    assert write_block(text, "X", r"new \1") == (
        "a\n<!-- X START -->\nnew \\1\n<!-- X END -->\n<!-- Y START -->\n<!-- Y END -->\n"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_are_current(page: Path) -> None:
    text = page.read_text("utf8")
    assert filled(text) == text


def test_each_row_of_reproduce_has_its_command() -> None:
    lines = table_lines(block("REPRODUCE"))
    assert len(lines) == 14 and all("`python -m benchmarks.run " in line for line in lines[2:])

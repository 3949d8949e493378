"""The tables of the README: means over seeds and folds, intervals, quoted rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import readme_front
from benchmarks.readme import BLOCKS, linking_tables, probing_table, reproduce_table, write_block
from benchmarks.readme_front import LINKS, front_table, install_table, links_block
from benchmarks.readme_linkers import end_to_end_table
from benchmarks.readme_papers import papers_table
from benchmarks.readme_speed import encoding_table, scispacy_table
from benchmarks.record import load

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


def test_probing_marks_quoted_rows_and_has_the_columns_that_were_measured() -> None:
    def row(system: str, probe: str, value: float, change: float, **fields: Any) -> Row:
        about = {"system": system, "protocol": probe, "corpus": "cometa", "seed": 0}
        return about | {"value": value, "relative_change": change} | fields

    rows = [
        row("paper", "unperturbed", 74.9, 0.0, quoted=True),
        row("paper", "window_3", 71.9, -4.0, quoted=True),
        row("paper", "unperturbed", 91.1, 0.0, quoted=True, corpus="ncbi_disease"),
        row("ours", "unperturbed", 80.0, 0.0),
        row("ours", "shuffle_unigram", 60.0, -25.0),
    ]
    assert table_lines(probing_table(rows)) == [
        "| encoder | word pieces | COMETA |",
        "|---|---|---|",
        "| ours | as it is | 80.0 |",
        "| ours | shuffled, ones | 60.0 (-25.0 %) |",
        "| *paper* | as it is | *74.9* |",
        "| *paper* | window 3 | *71.9 (-4.0 %)* |",
    ]


def test_write_block_leaves_the_rest_alone() -> None:
    text = "a\n<!-- X START -->\nold\n<!-- X END -->\n<!-- Y START -->\n<!-- Y END -->\n"
    assert write_block(text, "X", r"new \1") == (
        "a\n<!-- X START -->\nnew \\1\n<!-- X END -->\n<!-- Y START -->\n<!-- Y END -->\n"
    )


def test_end_to_end_has_a_line_a_system_and_parts_below() -> None:
    any_right = {"protocol": "gold_any", "metric": "accuracy@1_nil_ignored"}
    rows = [
        measured("dual_encoder", 84.0, protocol="strict", metric="f1"),
        measured("dual_encoder", 86.0, protocol="strict", metric="f1", seed=1),
        measured("rescnn", 81.0, protocol="strict", metric="f1"),
        measured("rescnn", 90.0, **any_right),
        measured("rescnn", 40.0, **any_right, subset="ambiguous name", n=12),
    ]
    lines = table_lines(end_to_end_table(rows))
    assert [line.split(" | ")[1:5] for line in lines[2:4]] == [
        ["CNN, light linker", "0", "–", "81.0 (80.0-82.0)"],
        ["MiniLM, dual encoder", "0, 1", "–", "85.0 (84.0-86.0)"],
    ]
    assert lines[-1] == (
        "| NCBI Disease | CNN, light linker | 90.0 (1,200) | – | – | – | 40.0 (12) |"
    )


def test_encoders_beside_ours() -> None:
    def rows(system: str, names: float, ratio: float) -> list[Row]:
        values = {"names_per_second": names, "mentions_per_second": names / 2, "ratio": ratio}
        return [
            measured(
                system, value, metric=metric, searched=80_000, threads=1, command="c", date="d"
            )
            for metric, value in values.items()
        ]

    systems = ("rescnn", "rescnn_float32", "minilm", "minilm_best", "bert", "bert_best")
    text = encoding_table(
        [row for i, s in enumerate(systems) for row in rows(s, 8000 >> i, 2.0**i)]
    )
    assert table_lines(text)[2:5] == [
        "| ResCNN, as it links | 8,000 | 4,000 |  |",
        "| the same network as it is trained, float32 | 4,000 | 2,000 | 2.0 |",
        "| MiniLM-L6, float32, padded batches | 2,000 | 1,000 | 4.0 |",
    ]
    assert "among 80,000 vectors" in text and "`c`; 2 cores; d." in text


def test_scispacy_beside_ours() -> None:
    rows = [
        measured(system, value, question=question, metric=metric, names=71_821, mentions=787)
        | {"command": "c", "date": "d", "documents": 9, "gold": 8}
        for question in ("index", "load", "throughput", "different", "memory", "own", "accuracy")
        for system, metric, value in (
            ("scispacy", "value", 500.0),
            ("rescnn", "value", 10.0),
            ("rescnn", "ratio", 0.02),
        )
    ]
    assert table_lines(scispacy_table(rows))[2:8] == [
        "| index of all names, seconds | 500.0 | 10.0 | 0.0 times as fast |",
        "| first answer of a new process, seconds | 500.0 | 10.0 | 0.0 times as fast |",
        "| mentions of documents a second | 500.0 | 10.0 | 0.0 times as many |",
        "| different strings a second | 500.0 | 10.0 | 0.0 times as many |",
        "| memory of the process at its peak, MB | 500.0 | 10.0 | 0.02 of it |",
        "| of it beyond imported libraries, MB | 500.0 | 10.0 | 0.02 of it |",
    ]


def test_front_of_the_readme() -> None:
    lines = table_lines(front_table(load("starter")))
    assert [line.split(" | ")[2] for line in lines[2:]] == ["9,532", "9,532", "1,073"]
    sizes = [
        {"system": "package", "value": 1200},
        {"system": "train", "value": 700},
        {"system": "ann", "value": 66},
    ]
    assert table_lines(install_table(sizes))[0] == (
        "| spacy-bioel with all that it needs | extra `train` adds | extra `ann` adds |"
    )
    assert "| 1,200 MB | 700 MB | 66 MB |" in install_table(sizes)


def test_links_of_the_readme_get_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (ROOT / "README.md").read_text("utf8")
    assert set(re.findall(r"\]\[([\w ]+)\]", readme)) == set(LINKS)
    assert "\n[install]: docs/install.md\n" in f"\n{links_block()}\n"
    for page in LINKS.values():
        assert (ROOT / page.partition("#")[0]).exists(), page
    monkeypatch.setattr(readme_front, "address", lambda: "https://x.org/")
    assert links_block().startswith("[install]: https://x.org/docs/install.md\n")


def test_papers_have_figures_of_ours() -> None:
    lines = table_lines(papers_table([]))[2:]
    assert len(lines) == 11 and not [line for line in lines if "–" in line]
    assert {line.split(" | ")[0] for line in lines} == {
        *("| ResCNN, 2021", "| dual encoder, 2021", "| hierarchical multi-task"),
        "| GenBioEL, 2022",
    }


def test_tables_of_the_readme_are_current() -> None:
    """The results that were recorded, and no earlier ones, are what the pages say."""
    for page in ("README.md", "docs/results.md", "docs/reproduce.md"):
        text = (ROOT / page).read_text("utf8")
        for name, (results, make) in BLOCKS.items():
            if f"<!-- {name} START -->" in text:
                assert make(load(results)) in text, name


def test_each_row_of_reproduce_has_its_command() -> None:
    text = (ROOT / "docs/reproduce.md").read_text("utf8")
    table = reproduce_table()
    assert table in text
    assert len(table.splitlines()) == 14 and table.count("| `python -m benchmarks.") == 12

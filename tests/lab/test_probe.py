from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.training import Example

from benchmarks.probe import app, plot_probing, quoted_rows
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.types import Concept

CONCEPTS = [
    Concept("MESH:D009270", ("Naloxone", "Narcan")),
    Concept("MESH:D003000", ("Clonidine",)),
    Concept("MESH:D006973", ("Hypertension", "high blood pressure")),
]


def run(*argv: object) -> None:
    app([str(argument) for argument in argv], standalone_mode=False)


@pytest.fixture(scope="module")
def probed(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linker with a transformer that was not trained."""
    folder = tmp_path_factory.mktemp("probed")
    build_kb(CONCEPTS, folder / "kb")
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy-bioel.TransformerNames.v1", "path": str(checkpoint)}
    linker: Any = nlp.add_pipe("bioel_linker", config={"kb": str(folder / "kb"), "model": model})
    doc = nlp.make_doc("x")
    linker.initialize(lambda: [Example(doc, doc)])
    nlp.to_disk(folder / "sapbert")
    return folder / "sapbert"


PUBTATOR = """\
1|t|Naloxone and clonidine.
1|a|Narcan raises it.
1\t0\t8\tNaloxone\tChemical\tD000001
1\t13\t22\tclonidine\tChemical\tD003000
1\t24\t30\tNarcan\tChemical\tD009270

2|t|Hypertension.
2|a|Of rats.
2\t0\t12\tHypertension\tDisease\tD006973
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "gold.txt").write_text(PUBTATOR, "utf8")
    return tmp_path / "gold.txt"


def test_probe_prints_the_shape_of_the_papers_table(
    probed: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "probing.json"
    options = ("--corpus", "ncbi_disease", "--prefix", "MESH", "--json", out)
    run(probed, corpus, *options)
    printed = capsys.readouterr()
    lines = [line for line in printed.out.splitlines() if "sapbert" in line.lower()]
    shown = [" ".join(line.replace("│", " ").split()) for line in lines]
    assert len(shown) == 8 + 6
    # All four mentions with an id are names; D000001 is unknown to this knowledge base.
    assert shown[0] == "sapbert unperturbed 75.00"
    assert shown[8] == "SapBERT, quoted from Lai et al. (2021) unperturbed 91.1"
    assert shown[9] == "SapBERT, quoted from Lai et al. (2021) shuffle, unigram 88.2 -3.18 %"
    assert "4 gold mentions, 1 of them" in printed.err

    rows = json.loads(out.read_text("utf8"))
    assert [row["protocol"] for row in rows] == [
        "unperturbed", "shuffle_unigram", "shuffle_bigram", "shuffle_trigram",
        "window_3_paper", "window_3_code", "window_5_paper", "window_5_code",
        "unperturbed", "shuffle_unigram", "shuffle_bigram", "shuffle_trigram",
        "window_3", "window_5",
    ]  # fmt: skip
    first = rows[0]
    wanted = {
        "question": "probing", "system": "sapbert", "corpus": "ncbi_disease", "split": "dev",
        "metric": "accuracy@1", "value": 75.0, "relative_change": 0.0, "n": 4, "seed": 0,
    }  # fmt: skip
    assert {key: first[key] for key in wanted} == wanted
    assert {"command", "machine", "date", "kb_fingerprint", "encoder_fingerprint"} <= set(first)
    assert str(tmp_path) not in out.read_text("utf8")
    assert [row["value"] for row in rows if row.get("quoted")] == [
        91.1, 88.2, 89.1, 90.5, 91.1, 91.2,
    ]  # fmt: skip
    assert not any("quoted" in row for row in rows[:8])


def test_the_command_is_recorded_without_folders(
    probed: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["probe.py", str(probed), str(corpus), "--seed", "3"])
    out = tmp_path / "p.json"
    run(probed, corpus, "--prefix", "MESH", "--seed", 3, "--json", out)
    rows = json.loads(out.read_text("utf8"))
    assert rows[0]["command"] == "python -m benchmarks.probe sapbert gold.txt --seed 3"
    assert (rows[0]["seed"], rows[0]["corpus"], len(rows)) == (3, "gold", 8)


def test_an_encoder_without_attention(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_kb(CONCEPTS, tmp_path / "kb")
    nlp = spacy.blank("en")
    linker: Any = nlp.add_pipe("bioel_linker", config={"kb": str(tmp_path / "kb")})
    doc = nlp.make_doc("x")
    linker.initialize(lambda: [Example(doc, doc)], vocabulary=100, width=8)
    nlp.to_disk(tmp_path / "rescnn")
    out = tmp_path / "probing.json"
    command = (tmp_path / "rescnn", corpus, "--prefix", "MESH")
    run(*command, "--json", out)
    lines = [line for line in capsys.readouterr().out.splitlines() if " window " in line]
    assert len(lines) == 4
    assert all(line.replace("│", " ").split()[-2:] == ["-", "-"] for line in lines)
    assert len(json.loads(out.read_text("utf8"))) == 4


def test_published_figures_are_of_development_sets() -> None:
    assert quoted_rows({"corpus": "cometa", "split": "test"}) == []
    assert quoted_rows({"corpus": "mine", "split": "dev"}) == []
    changes = [row["relative_change"] for row in quoted_rows({"corpus": "cometa", "split": "dev"})]
    assert changes == [0.0, -12.42, -4.01, -2.4, -4.01, -2.0]


def test_plot(probed: Path, corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "plots" / "probing.svg"
    options = ("--prefix", "MESH", "--corpus", "ncbi_disease", "--plot", out)
    run(probed, corpus, *options, "--json", tmp_path / "p.json")
    first = out.read_text("utf8")
    assert first.startswith("<?xml") and "<svg" in first
    plot_probing(json.loads((tmp_path / "p.json").read_text("utf8")), out)
    assert out.read_text("utf8") == first
    assert [path.name for path in out.parent.iterdir()] == ["probing.svg"]

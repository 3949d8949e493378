"""The spaCy project: the whole workflow on test-sized settings, and what project.yml declares."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
import typer
from projects import copy_project, run_workflow
from spacy.util import load_config
from wheels import links_of_wheel

from spacy_bioel.cli.app import app
from spacy_bioel.pipeline.annotate import get_links

ROOT = Path(__file__).parents[1]
STEPS = ["fetch", "convert", "kb", "train", "encode", "evaluate", "card", "package", "demo"]
READY = ["starter-types", "starter-tune", "starter-detector", "starter-wheel", "species"]
STARTER = ["starter-names", "pretrain", "starter-assets"]
WHEEL = "packages/embedded/en_core_link-0.1.0-py3-none-any.whl"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in which the workflow has run."""
    folder = copy_project(tmp_path_factory.mktemp("project"))
    done = run_all(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run_all(folder: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    """`spacy project run all` with the test twin of the config.

    settings: Further ones, as on the command line.
    """
    return run_workflow(folder, "all", "--vars.configs", "training/configs/test", *settings)


def test_package_holds_pipeline_and_knowledge_base(folder: Path) -> None:
    with zipfile.ZipFile(folder / WHEEL) as wheel:
        names = wheel.namelist()
        metadata = wheel.read("en_core_link-0.1.0.dist-info/METADATA").decode()
    kb = "en_core_link/en_core_link-0.1.0/bioel_linker/kb/"
    files = sorted({name.rpartition("/")[2] for name in names if name.startswith(kb)})
    assert {"meta.json", "names.txt", "about.json", "codes.npy"} < set(files)
    assert "Requires-Dist: spacy-bioel<0.2.0,>=0.1.0" in metadata


def test_demo_has_links(folder: Path) -> None:
    records = list(srsly.read_jsonl(folder / "metrics/embedded/demo.jsonl"))
    dev = list(srsly.read_jsonl(folder / "corpus/embedded/dev.jsonl"))
    assert [record["text"] for record in records] == [record["text"] for record in dev[:3]]
    found = {(link["text"], link["id"]) for record in records for link in record["links"]}
    assert ("digoxin", "MESH:D004077") in found


def test_metrics_name_their_protocols(folder: Path) -> None:
    rows = json.loads((folder / "metrics/embedded/dev.json").read_text(encoding="utf8"))
    assert list(dict.fromkeys(row["protocol"] for row in rows)) == [
        "mention",
        "end_to_end",
        "partial_binary",
        "partial_fractional",
        "gold",
        "gold_any",
    ]
    n = {(row["protocol"], row["metric"]): row["n"] for row in rows if row["label"] == ""}
    # All mentions of the corpus; 3 of them have no id.
    assert n["mention", "f1"] == 370
    assert n["end_to_end", "f1"] == 367
    value = {row["protocol"]: row["value"] for row in rows if row["metric"] == "f1"}
    assert value["end_to_end"] > 50.0


def test_the_card_says_what_was_measured_and_that_it_is_a_demo(folder: Path) -> None:
    final = folder / "models/embedded/final"
    card = (final / "README.md").read_text("utf8")
    meta = json.loads((final / "meta.json").read_text("utf8"))  # srsly rounds otherwise
    with zipfile.ZipFile(folder / WHEEL) as wheel:
        inside = "en_core_link/en_core_link-0.1.0/"
        assert wheel.read(f"{inside}README.md").decode() == card
        packaged = json.loads(wheel.read(f"{inside}meta.json"))
        metadata = wheel.read("en_core_link-0.1.0.dist-info/METADATA").decode()
    assert card.startswith("# en_core_link (demo)\n\nDemo, do not use for real work: ")
    assert "\nSummary: Demo, do not use for real work: " in metadata
    assert "\nAuthor: the spacy-bioel maintainers\n" in metadata
    # Scores are those of `evaluate` on the development documents, and no losses.
    rows = json.loads((folder / "metrics/embedded/dev.json").read_text(encoding="utf8"))
    (row,) = (
        r for r in rows if (r["protocol"], r["metric"], r["label"]) == ("end_to_end", "f1", "")
    )
    interval = f"{row['low']:.1f}-{row['high']:.1f}"
    assert f"| `end_to_end` | `f1` | {row['value']:.1f} | {interval} | 367 |" in card
    assert f"367 | {row['names_alone']:.1f} |" in card and row["names_alone"] > 20
    assert packaged["performance"] == meta["performance"]
    assert meta["performance"]["end_to_end_f1"] == pytest.approx(row["value"] / 100, abs=1e-4)
    assert srsly.read_json(folder / "models/embedded/tuned/meta.json")["performance"] == {}
    fingerprint = srsly.read_json(folder / "kb/embedded/meta.json")["fingerprint"]
    for said in (
        "train 70 documents, 1,649 mentions; dev 15 documents, 370 mentions",
        f"fingerprint `{fingerprint}`",
        "CC0 1.0; MeSH, excerpt (about January 2024): Courtesy of the U.S.",
        "`nil_threshold` 0.",
        "--vars.config rescnn --vars.seed 0 --vars.configs training/configs/test",
        "## Limits",
    ):
        assert said in card


def test_tuning_maximised_what_evaluate_reports(folder: Path) -> None:
    rows = json.loads((folder / "metrics/embedded/dev.json").read_text(encoding="utf8"))
    measured = {(r["protocol"], r["metric"]): r["value"] for r in rows if not r["label"]}
    tuned = json.loads((folder / "metrics/embedded/tuning.json").read_text(encoding="utf8"))
    meta = json.loads((folder / "models/embedded/final/meta.json").read_text(encoding="utf8"))
    assert meta["bioel"]["tuning"] == tuned
    assert tuned["folds"] == 5
    names = [(one["protocol"], one["metric"]) for one in tuned["tuned"]]
    assert names == [("gold", "accuracy@1_nil_ignored"), ("mention", "f1"), ("end_to_end", "f1")]
    for name, one in zip(names, tuned["tuned"], strict=True):
        assert one["fitted"] == pytest.approx(measured[name], abs=0.006)
        assert 0 < one["cross_fitted"] < 100


def test_training_was_shown_no_test_documents(folder: Path) -> None:
    config = load_config(folder / "models/embedded/config.cfg", interpolate=False)
    assert config["paths"] == {
        "train": "corpus/embedded/train.spacy",
        "dev": "corpus/embedded/dev.spacy",
        "kb": "kb/embedded",
        "encoder": None,
        "vectors": None,  # of spaCy, as the next
        "init_tok2vec": None,
    }
    assert sorted(path.name for path in (folder / "corpus/embedded").iterdir()) == [
        "dev.jsonl",
        "dev.spacy",
        "train.spacy",
    ]


def test_second_run_skips_what_is_done(folder: Path) -> None:
    done = run_all(folder)
    assert done.returncode == 0
    assert skipped_in(done) == STEPS[1:]


def skipped_in(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Steps of a run that were done before."""
    return [step for step in STEPS if f"Skipping '{step}': nothing changed" in done.stdout]


@pytest.fixture
def prepared(folder: Path, tmp_path: Path) -> Path:
    """A copy of the project before the step "train": what comes later depends on the config."""
    later = shutil.ignore_patterns("models", "vectors", "metrics", "packages")
    return shutil.copytree(folder, tmp_path / "project", ignore=later)


def run_config(folder: Path, config: str, *settings: str) -> set[str]:
    """The workflow with another config; its wheel links the same without knowledge base or network.

    RETURNS (set[str]): Files of the wheel.
    """
    pytest.importorskip("transformers")
    done = run_all(folder, "--vars.config", config, *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert skipped_in(done) == ["convert", "kb"]
    rows = json.loads((folder / "metrics/embedded/dev.json").read_text(encoding="utf8"))
    value = {r["protocol"]: r["value"] for r in rows if r["metric"] == "f1" and not r["label"]}
    assert value["end_to_end"] > 50.0
    dev = srsly.read_jsonl(folder / "corpus/embedded/dev.jsonl")
    texts = [record["text"] for record in islice(dev, 3)]
    expected = [
        str(get_links(doc)) for doc in spacy.load(folder / "models/embedded/final").pipe(texts)
    ]
    (folder / "kb").rename(folder / "elsewhere")
    found = links_of_wheel(folder / WHEEL, texts, folder / "site")
    assert found["1"] == found["2"] == expected
    with zipfile.ZipFile(folder / WHEEL) as wheel:
        return {name.rpartition("/")[2] for name in wheel.namelist()}


@pytest.mark.slow
def test_hierarchical_config(prepared: Path, checkpoint: Path) -> None:
    files = run_config(prepared, "hierarchical", "--vars.transformer", str(checkpoint))
    assert {"multitask.json", "multitask.safetensors", "lexicon.safetensors"} < files
    tuned = json.loads((prepared / "metrics/embedded/tuning.json").read_text(encoding="utf8"))
    names = [(one["protocol"], one["metric"]) for one in tuned["tuned"]]
    given = ("gold", "accuracy@1_nil_ignored")
    assert names == [given, given, ("end_to_end", "f1")]


@pytest.mark.slow
def test_generative_config(prepared: Path) -> None:
    files = run_config(prepared, "generative")
    assert {
        f"seq2seq.{part}" for part in ("config.json", "model.safetensors", "tokenizer.json")
    } < files
    tuned = json.loads((prepared / "metrics/embedded/tuning.json").read_text(encoding="utf8"))
    assert [one["chosen"].get("weights") for one in tuned["tuned"]][:2] == ["fusion", "reading"]
    records = list(srsly.read_jsonl(prepared / "metrics/embedded/demo.jsonl"))
    evidence = {c["evidence"] for r in records for x in r["links"] for c in x["candidates"]}
    assert any("generated" in one for one in evidence)


# What project.yml and corpora.yml say.


@pytest.fixture(scope="module")
def project() -> dict:
    return srsly.read_yaml(ROOT / "project.yml")


def test_every_step_declares_what_it_reads_and_writes(project: dict) -> None:
    written: set[str] = set()
    for command in project["commands"]:
        assert command["deps"], command["name"]
        assert command["outputs"], command["name"]
        own = (
            "/${vars.corpus}"
            if command["name"] not in [*STARTER, *READY, "pretrain_seq2seq", "kb_large"]
            else "/"
        )
        assert all(own in output for output in command["outputs"])
        for dep in command["deps"]:
            of_corpus = dep.startswith("corpus/")  # made with --vars.corpus
            assert dep in written or "${" in dep or of_corpus or (ROOT / dep).exists(), dep
        written |= set(command["outputs"])


def test_commands_have_the_options_that_are_used(project: dict) -> None:
    lines = [line for command in project["commands"] for line in command["script"]]
    calls = [line for line in lines if "-m spacy_bioel" in line]
    assert len(calls) == 7
    for line in calls:
        command: Any = typer.main.get_command(app)
        rest = shlex.split(line)[3:]
        while hasattr(command, "commands") and not rest[0].startswith("-"):
            command = command.commands[rest.pop(0)]
        known = {option for param in command.params for option in param.opts}
        assert {word for word in rest if word.startswith("--")} <= known, line


def test_every_archive_has_an_address(project: dict) -> None:
    addresses = {Path(asset["dest"]).name: asset["url"] for asset in project["assets"]}
    assert all(url.startswith("https://") for url in addresses.values())
    wanted = set()
    for corpus in srsly.read_yaml(ROOT / "training/corpora.yml").values():
        files = [file for split in corpus["splits"].values() for file in split]
        files += [file for choice in corpus["kb"]["choices"] for file in choice["files"]]
        wanted |= {file["archive"] for file in files if "archive" in file}
    assert sorted(wanted - set(addresses)) == []
    assert len(wanted) == 10

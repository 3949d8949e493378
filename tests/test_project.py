"""The project makes a tested package of a corpus, and does again only what has changed."""

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
from commands import unknown_options
from projects import copy_project, run_workflow
from spacy.util import load_config
from wheels import links_of_wheel

from spacy_bioel.doc import get_links
from spacy_bioel.kb.knowledge_base import KnowledgeBase

ROOT = Path(__file__).parents[1]
STEPS = [
    "fetch",
    "convert",
    "kb",
    "check",
    "train",
    "encode",
    "evaluate",
    "card",
    "package",
    "demo",
]
# What is made for no corpus.
ONCE = ["starter-types", "starter-tune", "starter-detector", "starter-wheel", "species"]
ONCE += ["starter-names", "pretrain", "starter-assets", "pretrain_seq2seq", "kb_large"]
PROJECT = srsly.read_yaml(ROOT / "project.yml")
WHEEL = "packages/embedded/en_core_link-0.1.0-py3-none-any.whl"


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A copy of the project in which the workflow has run."""
    folder = copy_project(tmp_path_factory.mktemp("project"))
    done = run_all(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run_all(folder: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    """`spacy project run all` with the test twin of the config.

    settings: Further ones, as on the command line.
    """
    if "--vars.config" not in settings:
        settings += ("--vars.config", "rescnn")
    return run_workflow(folder, "all", "--vars.configs", "training/configs/test", *settings)


def read(path: Path) -> Any:
    """Without rounding, as srsly does."""
    return json.loads(path.read_text("utf8"))


@pytest.mark.slow
def test_package_holds_pipeline_and_knowledge_base(folder):
    with zipfile.ZipFile(folder / WHEEL) as wheel:
        names = wheel.namelist()
        metadata = wheel.read("en_core_link-0.1.0.dist-info/METADATA").decode()
    kb = "en_core_link/en_core_link-0.1.0/bioel_linker/kb/"
    files = sorted(name.removeprefix(kb) for name in names if name.startswith(kb))
    assert files[0] == "kb.0001.safetensors" and files[1].startswith("vectors/")
    assert "Requires-Dist: spacy-bioel<0.2.0,>=0.1.0" in metadata
    assert "\nSummary: Demo, do not use for real work: " in metadata


@pytest.mark.slow
def test_demo_has_links(folder):
    records = list(srsly.read_jsonl(folder / "metrics/embedded/demo.jsonl"))
    dev = list(srsly.read_jsonl(folder / "corpus/embedded/dev.jsonl"))
    assert [record["text"] for record in records] == [record["text"] for record in dev]
    found = {(link["text"], link["id"]) for record in records for link in record["links"]}
    assert ("digoxin", "MESH:D004077") in found


@pytest.mark.slow
def test_metrics_name_their_protocols(folder):
    rows = read(folder / "metrics/embedded/dev.json")
    protocols = "mention end_to_end partial_binary partial_fractional gold gold_any"
    assert list(dict.fromkeys(row["protocol"] for row in rows)) == protocols.split()
    found = {r["protocol"]: r for r in rows if (r["metric"], r["label"]) == ("f1", "")}
    # All mentions of the corpus; 3 of them have no id.
    assert (found["mention"]["n"], found["end_to_end"]["n"]) == (370, 367)
    assert found["end_to_end"]["value"] > 50.0


@pytest.mark.slow
def test_the_card_says_what_was_measured_and_that_it_is_a_demo(folder):
    final = folder / "models/embedded/final"
    card, meta = (final / "README.md").read_text("utf8"), read(final / "meta.json")
    with zipfile.ZipFile(folder / WHEEL) as wheel:
        inside = "en_core_link/en_core_link-0.1.0/"
        assert wheel.read(f"{inside}README.md").decode() == card
        assert b"<h1>en_core_link (demo)</h1>" in wheel.read(f"{inside}card.html")
        assert json.loads(wheel.read(f"{inside}meta.json"))["performance"] == meta["performance"]
    assert card.startswith("# en_core_link (demo)\n\nDemo, do not use for real work: ")
    # Scores are those of `evaluate` on the development documents, and no losses.
    rows = read(folder / "metrics/embedded/dev.json")
    about = ("end_to_end", "f1", "")
    (row,) = (r for r in rows if (r["protocol"], r["metric"], r["label"]) == about)
    interval = f"{row['low']:.1f}-{row['high']:.1f}"
    assert f"| `end_to_end` | `f1` | {row['value']:.1f} | {interval} | 367 |" in card
    assert f"367 | {row['names_alone']:.1f} |" in card and row["names_alone"] > 20
    assert meta["performance"]["end_to_end_f1"] == pytest.approx(row["value"] / 100, abs=1e-4)
    assert read(folder / "models/embedded/tuned/meta.json")["performance"] == {}
    assert f"fingerprint `{KnowledgeBase.open(folder / 'kb/embedded').fingerprint}`" in card
    assert "train 70 documents, 1,649 mentions; dev 15 documents, 370 mentions" in card


@pytest.mark.slow
def test_tuning_maximised_what_evaluate_reports(folder):
    rows = read(folder / "metrics/embedded/dev.json")
    measured = {(r["protocol"], r["metric"]): r["value"] for r in rows if not r["label"]}
    tuned = read(folder / "metrics/embedded/tuning.json")
    meta = read(folder / "models/embedded/final/meta.json")
    assert meta["bioel"]["tuning"] == tuned
    assert tuned["folds"] == 5
    names = [(one["protocol"], one["metric"]) for one in tuned["tuned"]]
    assert names == [("gold", "accuracy@1_nil_ignored"), ("mention", "f1"), ("end_to_end", "f1")]
    for name, one in zip(names, tuned["tuned"], strict=True):
        assert one["fitted"] == pytest.approx(measured[name], abs=0.006)
        assert 0 < one["cross_fitted"] < 100


@pytest.mark.slow
def test_training_was_shown_no_test_documents(folder):
    config = load_config(folder / "models/embedded/config.cfg", interpolate=False)
    assert config["paths"] == {
        "train": "corpus/embedded/train.spacy",
        "dev": "corpus/embedded/dev.spacy",
        "kb": "kb/embedded",
        "encoder": None,
        "vectors": None,  # of spaCy, as the next
        "init_tok2vec": None,
    }
    files = sorted(path.name for path in (folder / "corpus/embedded").iterdir())
    assert files == ["dev.jsonl", "dev.spacy", "train.spacy"]


@pytest.mark.slow
def test_second_run_skips_what_is_done(folder):
    done = run_all(folder)
    assert done.returncode == 0
    assert skipped_in(done) == STEPS[1:]


def skipped_in(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Steps of a run that were done before."""
    return [step for step in STEPS if f"Skipping '{step}': nothing changed" in done.stdout]


@pytest.mark.slow
def test_from_the_starter(prepared):
    """The config follows from the size of the corpus; the card shows what training has changed."""
    done = run_all(prepared, "--vars.config", "auto", "--vars.start", "starter")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'Disease' starts from 'Disease' (by name); " in done.stdout + done.stderr
    config = load_config(prepared / "models/embedded/config.cfg", interpolate=False)
    assert config["components"]["bioel_mentions"] == {"source": "${paths.start}"}
    meta = read(prepared / "models/embedded/final/meta.json")
    assert meta["bioel"]["starts"] == {"Chemical": "Chemical", "Disease": "Disease"}
    assert {*meta["labels"]["bioel_mentions"]} == {"Chemical", "Disease"}
    rows = read(prepared / "metrics/embedded/as_it_is.json")
    about = ("mention", "f1", "")
    (before,) = (r for r in rows if (r["protocol"], r["metric"], r["label"]) == about)
    card = (prepared / "models/embedded/final/README.md").read_text("utf8")
    assert "| knowledge base only | as it was before training |" in card
    assert f"| 370 |  | {before['value']:.1f} |" in card and before["value"] > 50
    assert "--vars.config auto --vars.start starter --vars.seed 0" in card
    assert "Config: `training/configs/test/fine_tune.cfg`" in card


@pytest.fixture
def prepared(folder, tmp_path) -> Path:
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
    rows = read(folder / "metrics/embedded/dev.json")
    value = {r["protocol"]: r["value"] for r in rows if r["metric"] == "f1" and not r["label"]}
    assert value["end_to_end"] > 50.0
    dev = srsly.read_jsonl(folder / "corpus/embedded/dev.jsonl")
    texts = [record["text"] for record in islice(dev, 3)]
    nlp = spacy.load(folder / "models/embedded/final")
    expected = [str(get_links(doc)) for doc in nlp.pipe(texts)]
    (folder / "kb").rename(folder / "elsewhere")
    found = links_of_wheel(folder / WHEEL, texts, folder / "site")
    assert found["1"] == found["2"] == expected
    with zipfile.ZipFile(folder / WHEEL) as wheel:
        return {name.rpartition("/")[2] for name in wheel.namelist()}


@pytest.mark.slow
def test_hierarchical_config(prepared, checkpoint):
    files = run_config(prepared, "hierarchical", "--vars.transformer", str(checkpoint))
    assert {"multitask.json", "multitask.safetensors", "gazetteer.safetensors"} < files
    tuned = read(prepared / "metrics/embedded/tuning.json")
    names = [(one["protocol"], one["metric"]) for one in tuned["tuned"]]
    given = ("gold", "accuracy@1_nil_ignored")
    assert names == [given, given, ("end_to_end", "f1")]


@pytest.mark.slow
def test_generative_config(prepared):
    files = run_config(prepared, "generative")
    assert {"seq2seq.config.json", "seq2seq.model.safetensors", "seq2seq.tokenizer.json"} < files
    tuned = read(prepared / "metrics/embedded/tuning.json")
    assert [one["chosen"].get("weights") for one in tuned["tuned"]][:2] == ["fusion", "rescoring"]
    records = list(srsly.read_jsonl(prepared / "metrics/embedded/demo.jsonl"))
    evidence = {c["evidence"] for r in records for x in r["links"] for c in x["candidates"]}
    assert any("generated" in one for one in evidence)


# What project.yml and corpora.yml say.


def test_every_step_declares_what_it_reads_and_writes():
    written: set[str] = set()
    for command in PROJECT["commands"]:
        name = command["name"]
        assert command["deps"] and command["outputs"], name
        own = "/" if name in ONCE else "/${vars.corpus}"
        assert all(own in output for output in command["outputs"])
        for dep in command["deps"]:
            of_corpus = dep.startswith("corpus/")  # made with --vars.corpus
            assert dep in written or "${" in dep or of_corpus or (ROOT / dep).exists(), dep
        written |= set(command["outputs"])


def test_commands_have_the_options_that_are_used():
    lines = [line for command in PROJECT["commands"] for line in command["script"]]
    calls = [line for line in lines if "-m spacy_bioel" in line]
    assert len(calls) == 14
    for line in calls:
        assert unknown_options(shlex.split(line)[3:]) == set(), line


def test_every_archive_has_an_address():
    addresses = {Path(asset["dest"]).name: asset["url"] for asset in PROJECT["assets"]}
    assert all(url.startswith("https://") for url in addresses.values())
    wanted = set()
    for corpus in srsly.read_yaml(ROOT / "training/corpora.yml").values():
        files = [file for split in corpus["splits"].values() for file in split]
        files += [file for choice in corpus["kb"]["choices"] for file in choice["files"]]
        wanted |= {file["archive"] for file in files if "archive" in file}
    assert sorted(wanted - set(addresses)) == []
    assert len(wanted) == 10

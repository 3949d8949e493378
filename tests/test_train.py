"""The step train takes every config and corpus, and goes on after a stop without any loss."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import configs
import pytest
import spacy
import srsly
import train
from projects import lines_of, prepare_tiny
from spacy.cli.debug_config import debug_config
from spacy.language import Language
from spacy.schemas import ConfigSchemaTraining
from spacy.util import load_config, registry
from tiny import is_installed, needs

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.registered import known_plugins
from spacy_bioel.types import Concept

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "training" / "configs"
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def chain(tmp_path) -> Path:
    """The last of three configs, each in its own folder."""
    texts = {
        "base/base.cfg": "[components]\n[components.bioel_linker]\na = 1\nb = 1\n[training]\n"
        "seed = 0\nc = 1\nd = 1\ne = 1\n[training.optimizer]\n"
        '@optimizers = "Adam.v1"\nbeta1 = 0.5',
        "middle.cfg": '[extends]\npath = "base/base.cfg"\n[training]\nd = 2\ne = 2',
        "last/last.cfg": '[extends]\npath = "../middle.cfg"\n[training]\ne = 3\n'
        "f = ${training.c}\n[components]\n[components.bioel_linker]\nb = 3",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "last" / "last.cfg"


def test_the_corpus_is_stronger_than_the_base_only(chain):
    settings = {"training.c": 9, "training.d": 9, "training.optimizer.beta1": 0.9}
    corpus = {"settings": settings, "label_types": {"Disease": ["C"]}}
    config = train.merge_config(chain, corpus)
    training = config["training"]
    assert (training["c"], training["d"], training["e"]) == (9, 2, 3)
    assert training["f"] == "${training.c}"
    assert config.interpolate()["training"]["f"] == 9
    assert training["optimizer"] == {"@optimizers": "Adam.v1", "beta1": 0.9}
    expected = {"a": 1, "b": 3, "label_types": {"Disease": ["C"]}}
    assert config["components"]["bioel_linker"] == expected
    assert "extends" not in config


def test_a_config_that_extends_what_is_not_there(tmp_path):
    (tmp_path / "a.cfg").write_text('[extends]\npath = "no.cfg"')
    with pytest.raises(BioelError, match=r"T009.*no\.cfg, which a\.cfg extends"):
        train.load_chain(tmp_path / "a.cfg")
    with pytest.raises(BioelError, match=r"T009.*b\.cfg"):
        train.load_chain(tmp_path / "b.cfg")


# Pre-training makes no pipeline. Files in folders `extends` are not complete.
PIPELINES = [
    path
    for path in sorted(CONFIGS.rglob("*.cfg"))
    if "pretrain" not in path.stem and path.parent.name != "extends"
]


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> str:
    """A pipeline to start from, untrained."""
    folder = tmp_path_factory.mktemp("start") / "start"
    build_kb([Concept("X:1", ("fever",))], folder.with_name("kb"))
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_mentions")
    nlp.add_pipe("bioel_linker", config={"kb": str(folder.with_name("kb"))})
    nlp.to_disk(folder)
    return str(folder)


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_spacy_train_accepts_every_config(path, start):
    """What `spacy train` does with it before it reads any data."""
    if not is_installed("spacy_bioel.plugins.contextual"):
        contextual = known_plugins()["contextual"]["spacy"]
        if any(name in path.read_text("utf8") for name in contextual):
            pytest.skip("needs the plugin contextual")
    overrides = {"paths.train": "no.spacy", "paths.dev": "no.spacy", "paths.kb": "no_kb"}
    overrides |= {"paths.start": start} if path.stem == "fine_tune" else {}
    config = load_config(path, overrides=overrides, interpolate=False)
    assert "extends" not in config
    nlp = spacy.util.load_model_from_config(config, auto_fill=True)
    assert nlp.pipe_names == config["nlp"]["pipeline"]
    interpolated = nlp.config.interpolate()
    training = registry.resolve(interpolated["training"], schema=ConfigSchemaTraining)
    assert training["max_steps"] == interpolated["training"]["max_steps"]
    corpora = registry.resolve(interpolated["corpora"])
    assert {"train", "dev"} <= corpora.keys()


def test_the_corpus_and_a_config_that_starts_from_a_pipeline():
    settings = {"training.max_steps": 9, "initialize.before_init.labels": {"Own": "Disease"}}
    corpus = {"settings": settings, "label_types": {"Own": ["C"]}}
    config = train.merge_config(CONFIGS / "fine_tune.cfg", corpus)
    assert config["training"]["max_steps"] != 9
    start = config["initialize"]["before_init"]
    assert (start["labels"], start["label_types"]) == ({"Own": "Disease"}, {"Own": ["C"]})
    config = train.merge_config(CONFIGS / "rescnn.cfg", corpus)
    assert config["training"]["max_steps"] == 9
    assert config["components"]["bioel_linker"]["label_types"] == {"Own": ["C"]}


@pytest.mark.parametrize(
    ("name", "start", "enough", "chosen"),
    [
        ("auto", "", 7, "fine_tune"),
        ("auto", "", 6, "rescnn"),
        ("auto", "starter", 6, "fine_tune"),
        ("small", "", 7, "small"),
    ],
)
def test_the_config_for_a_small_and_a_large_corpus(
    tmp_path, monkeypatch, name, start, enough, chosen
):
    monkeypatch.setattr(configs, "ENOUGH_DOCUMENTS", enough)
    prepare_tiny(tmp_path, (), every=1)
    path = CONFIGS / f"{name}.cfg"
    assert configs.choose_config(path, Path("corpus/tiny/train.spacy"), start=start).stem == chosen


def test_the_starter_is_saved_to_start_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train.find_start("starter", Path("models/tiny")) == str(Path("models/tiny/start"))
    assert (tmp_path / "models/tiny/start/config.cfg").is_file()
    (tmp_path / "starter").mkdir()
    assert train.find_start("starter", Path("models/tiny")) == "starter"
    with pytest.raises(BioelError, match=r"B071.*nowhere"):
        train.find_start("nowhere", Path("models/tiny"))


def test_a_config_that_takes_nothing_over(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "CORPORA", prepare_tiny(tmp_path, (), every=1), raising=False)
    monkeypatch.setattr("specs.CORPORA", tmp_path / "corpora.yml")
    with pytest.raises(BioelError, match=r"T040.*small\.cfg"):
        train.main("tiny", CONFIGS / "small.cfg", tmp_path / "out", start="starter")


def test_complete_configs_are_those_of_the_files_they_extend(tmp_path):
    sources = sorted(CONFIGS.rglob("extends/*.cfg"))
    assert len(sources) > 20
    for source in sources:
        text = (source.parents[1] / source.name).read_text("utf8")
        assert text == configs.complete_config(source), "run training/scripts/configs.py"


def test_a_complete_config_that_was_edited_is_not_overruled(tmp_path):
    shutil.copytree(CONFIGS, tmp_path / "configs")
    small = tmp_path / "configs" / "small.cfg"
    assert len(train.load_chain(small)) == 2
    small.write_text(small.read_text("utf8").replace("dropout = 0.4", "dropout = 0.1", 1))
    with pytest.raises(BioelError, match=r"T032.*small\.cfg differs from .*extends"):
        train.load_chain(small)
    small.rename(tmp_path / "configs" / "mine.cfg")
    assert len(train.load_chain(tmp_path / "configs" / "mine.cfg")) == 1


@pytest.mark.slow
def test_spacy_train_and_evaluate_as_in_a_shell(tmp_path):
    prepare_tiny(tmp_path, (), every=1)
    spacy_ = [sys.executable, "-m", "spacy"]
    paths = ["--paths.train", "corpus/tiny/train.spacy", "--paths.dev", "corpus/tiny/dev.spacy"]
    few = ["--training.max_steps", "2", "--training.eval_frequency", "1"]
    small = [*spacy_, "train", str(CONFIGS / "small.cfg"), "--output", "out"]
    run(*small, *paths, "--paths.kb", "kb/tiny", *few)
    printed = run(*spacy_, "evaluate", "out/model-best", "corpus/tiny/dev.spacy", "-o", "m.json")
    assert re.search(r"^mentions +[\d.]+ +[\d.]+ +[\d.]+ *$", printed, re.MULTILINE)
    assert re.search(r"^links +[\d.]+ +[\d.]+ +[\d.]+ *$", printed, re.MULTILINE)
    assert {"bioel_mention_f", "bioel_link_f", "bioel_link_acc"} <= srsly.read_json("m.json").keys()


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_whole_of_a_config_that_extends_another(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    train.main("embedded", CONFIGS / "small.cfg", Path("models/mine"), config_only=True)
    assert capsys.readouterr().out.endswith("small.cfg\nWrote models/mine/config.cfg.\n")
    config = load_config("models/mine/config.cfg", interpolate=False)
    assert config["training"]["max_steps"] == 200
    assert config["training"]["optimizer"]["learn_rate"]["total_steps"] == 200
    assert config["paths"]["train"] == "corpus/embedded/train.spacy"
    assert config["corpora"]["train"]["path"] == "${paths.train}"
    assert config["components"]["bioel_linker"]["coherence"] == 1.0  # a default
    debug_config("models/mine/config.cfg")
    assert "Config is valid" in capsys.readouterr().out


def test_a_package_in_place_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "PACKAGES", {MINILM: "held_by_a_package"})
    monkeypatch.delitem(sys.modules, "held_by_a_package", raising=False)
    assert train.find_transformer(MINILM) == MINILM  # not installed
    (tmp_path / "held_by_a_package.py").write_text(
        "from pathlib import Path\ndef get_model_path(): return Path('/where/it/is')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert train.find_transformer(MINILM) == "/where/it/is"
    assert train.find_transformer("owner/other") == "owner/other"
    assert train.find_transformer(str(tmp_path)) == str(tmp_path)


@needs("contextual")
@pytest.mark.parametrize(
    ("given", "in_config", "expected"),
    [("", "null", None), ("", '"own"', "own"), ("other", '"own"', "other")],
)
def test_the_option_is_stronger_than_the_config(tmp_path, monkeypatch, given, in_config, expected):
    trained = []
    monkeypatch.setattr(train, "train", lambda path, *_, **__: trained.append(path))
    monkeypatch.setattr("torch.set_num_threads", lambda n: None)
    srsly.write_yaml(
        tmp_path / "corpora.yml", {"tiny": {"settings": {}, "label_types": {"A": ["C"]}}}
    )
    monkeypatch.setattr("specs.CORPORA", tmp_path / "corpora.yml")
    base = CONFIGS / "transformer.cfg"
    (tmp_path / "mine.cfg").write_text(
        f'[extends]\npath = "{base}"\n[paths]\ntransformer = {in_config}\n'
    )
    train.main("tiny", tmp_path / "mine.cfg", tmp_path / "out", transformer=given, seed=7)
    assert trained == [tmp_path / "out" / "config.cfg"]
    config = load_config(trained[0], interpolate=True)
    page = {"@loggers": "spacy-bioel.TrainingPage.v1", "path": "metrics/tiny/training.html"}
    assert config["training"]["logger"] == page
    assert config["paths"]["transformer"] == expected
    assert config["paths"]["train"] == "corpus/tiny/train.spacy"
    assert config["components"]["tok2vec"]["model"]["path"] == expected
    assert config["system"]["seed"] == 7


# Training that was stopped.


def fill_disk(nlp: Language, path: Path, **_: Any) -> None:
    path.mkdir(exist_ok=True)
    (path / "meta.json").write_text("{")
    raise OSError("The disk is full")


def evaluated_at(path: str) -> list[int]:
    return [row["update"] for row in srsly.read_jsonl(path)]


@pytest.mark.slow
def test_going_on_after_a_stop(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # and back to where the tests run
    monkeypatch.setattr("specs.CORPORA", prepare_tiny(tmp_path, (2, 5), every=1))
    train.main("tiny", Path("2.cfg"), Path("out"))
    assert srsly.read_json("out/model-last/meta.json")["training_steps"] == 2
    assert evaluated_at("metrics/tiny/training.jsonl") == [0, 1, 2]
    meta = srsly.read_json("out/model-last/meta.json") | {
        "bioel": {"starts": {"Disease": "Disease"}}
    }
    srsly.write_json("out/model-last/meta.json", meta)
    config = Path("5.cfg").read_text()
    assert "total_steps = 5\n" in config
    Path("5.cfg").write_text(
        config.replace("total_steps = 5\n", "total_steps = ${training.max_steps}\n")
    )
    trained_with, train_on = [], train.train

    def remember(path: Path, *args: Any, **settings: Any) -> None:
        trained_with.append(load_config(path, interpolate=True))
        train_on(path, *args, **settings)

    monkeypatch.setattr(train, "train", remember)
    train.main("tiny", Path("5.cfg"), Path("out"), resume=True)
    assert "Resuming after 2 of 5 updates" in capsys.readouterr().out
    assert load_config("out/config.cfg")["training"]["max_steps"] == 5
    assert sorted(os.listdir("out")) == ["config.cfg", "model-best", "model-last"]
    assert evaluated_at("metrics/tiny/training.jsonl") == [0, 1, 2, 3, 4, 5]
    assert "Training has ended." in Path("metrics/tiny/training.html").read_text("utf8")
    (config,) = trained_with
    assert config["training"]["max_steps"] == 3
    assert config["training"]["optimizer"]["use_averages"] is False
    rate = config["training"]["optimizer"]["learn_rate"]
    assert (rate["initial_rate"], rate["warmup_steps"]) == (pytest.approx(0.00075), 0)
    assert rate["total_steps"] == 3
    meta = srsly.read_json("out/model-last/meta.json")
    assert meta["training_steps"] == 5
    assert meta["bioel"] == {"starts": {"Disease": "Disease"}}
    nlp = spacy.load("out/model-last")
    assert nlp.get_pipe("bioel_linker").alias_table.counts["acute kidney injury"]
    with monkeypatch.context() as full, pytest.raises(OSError, match="full"):
        full.setattr(Language, "to_disk", fill_disk)
        full.setattr(train, "remove_models", lambda *_: None)
        train.main("tiny", Path("2.cfg"), Path("out"))
    assert srsly.read_json("out/model-last/meta.json")["training_steps"] == 5
    with pytest.raises(BioelError, match=r"\[T008\] out/model-last .* has had 5 of 2 updates"):
        train.main("tiny", Path("2.cfg"), Path("out"), resume=True)
    # As versions that saved in place have left it when they were killed.
    Path("out/model-last/bioel_linker/alias_table.json").write_bytes(b"{")
    (Path("out/tmpabcd1234") / "model-last").mkdir(parents=True)
    with pytest.raises(BioelError, match=r"\[T008\] out/model-best .* has had 5 of 2 updates"):
        train.main("tiny", Path("2.cfg"), Path("out"), resume=True)
    assert "Resuming from out/model-best: [B466] out/model-last/" in capsys.readouterr().out
    Path("out/model-best/meta.json").unlink()
    with pytest.raises(BioelError, match=r"\[T033\] No pipeline in out can be loaded.*\[B466\]"):
        train.main("tiny", Path("2.cfg"), Path("out"), resume=True)
    assert not Path("out/tmpabcd1234").exists()


@pytest.mark.parametrize(
    ("saved_at", "expected"),
    [(0, 0), (1, 0), (19, 0), (20, 20), (39, 20), (50, "T008"), (60, "T008"), (None, "T034")],
)
def test_updates_to_resume_after(tmp_path, capsys, saved_at, expected):
    meta = {} if saved_at is None else {"training_steps": saved_at}
    srsly.write_json(tmp_path / "meta.json", meta)
    training = {"max_steps": 50, "eval_frequency": 20}
    if isinstance(expected, int):
        assert train.count_done(tmp_path, training) == expected
        assert ("Training from the start" in capsys.readouterr().out) == (expected == 0)
    else:
        with pytest.raises(BioelError, match=rf"^\[{expected}\] "):
            train.count_done(tmp_path, training)


@needs_fork
@pytest.mark.slow
def test_a_kill_while_training_leaves_whole_pipelines(tmp_path):
    """Training goes on from the last evaluation, or from the start before the second one."""
    points = lines_of("training_kills.py", tmp_path, 20)
    assert len(points) == 43
    left = ["config.cfg", "model-best", "model-last"]
    expected = {"killed": True, "again": 0, "left": left}
    assert points == [point | expected for point in points]
    for point in points:  # numbers of updates, and not what is wrong
        start, found = point["start"], point["whole"]
        assert not start or found.keys() == {"model-last", "model-best"}
        assert set(found.values()) <= {start, start + 2}
        assert point["after"]["model-last"] == start + 4
        assert point["same"] or found.get("model-last")
    first, second, third = points[-3:]
    assert first["whole"] == {}
    assert second["whole"] == third["whole"] == {"model-last": 0, "model-best": 0}


def test_one_line_and_status_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    run = [train.__file__, "bc5cdr", str(CONFIGS / "rescnn.cfg"), "out", "--gpu-id", "99"]
    monkeypatch.setattr(sys, "argv", run)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(train.__file__, run_name="__main__")
    said = capsys.readouterr()
    assert (ended.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("error: [B650] GPU 99 was not found: ")
    assert list(tmp_path.iterdir()) == []

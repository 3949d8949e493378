"""`training/scripts/train.py`: configs that extend others, sources of a transformer, and errors
without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
from projects import prepare_tiny
from spacy.cli.debug_config import debug_config
from spacy.language import Language
from spacy.util import load_config

from spacy_bioel.errors import BioelError

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "training" / "configs"
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module train.py."""
    from importlib import import_module

    monkeypatch.syspath_prepend(ROOT / "training" / "scripts")
    return import_module("train")


@pytest.fixture
def chain(tmp_path: Path) -> Path:
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


def test_a_chain_from_the_weakest_on(script: Any, chain: Path) -> None:
    found = script.load_chain(chain)
    assert [config["training"].get("e") for config in found] == [1, 2, 3]
    assert [config["training"].get("d") for config in found] == [1, 2, None]
    assert all("extends" not in config for config in found)
    (alone,) = script.load_chain(chain.parents[1] / "base" / "base.cfg")
    assert alone["training"]["c"] == 1


def test_the_corpus_is_stronger_than_the_base_only(script: Any, chain: Path) -> None:
    settings = {"training.c": 9, "training.d": 9, "training.optimizer.beta1": 0.9}
    corpus = {"settings": settings, "label_types": {"Disease": ["C"]}}
    config = script.merge_config(chain, corpus)
    training = config["training"]
    assert (training["c"], training["d"], training["e"]) == (9, 2, 3)
    assert training["f"] == "${training.c}"
    assert config.interpolate()["training"]["f"] == 9
    assert training["optimizer"] == {"@optimizers": "Adam.v1", "beta1": 0.9}
    expected = {"a": 1, "b": 3, "label_types": {"Disease": ["C"]}}
    assert config["components"]["bioel_linker"] == expected
    assert "extends" not in config


def test_a_config_that_extends_what_is_not_there(script: Any, tmp_path: Path) -> None:
    (tmp_path / "a.cfg").write_text('[extends]\npath = "no.cfg"')
    with pytest.raises(BioelError, match=r"T009.*no\.cfg, which a\.cfg extends.* are: a\. "):
        script.load_chain(tmp_path / "a.cfg")
    with pytest.raises(BioelError, match=r"T009.*b\.cfg\. "):
        script.load_chain(tmp_path / "b.cfg")


@pytest.mark.parametrize(
    "path", [p for p in CONFIGS.glob("*.cfg") if "pretrain" not in p.stem], ids=lambda p: p.stem
)
def test_every_config_makes_a_pipeline(script: Any, path: Path) -> None:
    """Without reading a corpus, a knowledge base or a checkpoint; pre-training makes none."""
    config = script.merge_config(path, {"settings": {}, "label_types": {"Disease": ["C"]}})
    config["paths"] |= {"train": "no.spacy", "dev": "no.spacy"}
    nlp = spacy.util.load_model_from_config(config.interpolate(), auto_fill=True)
    assert nlp.pipe_names == config["nlp"]["pipeline"]


def test_the_whole_of_a_config_that_extends_another(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script.main("embedded", CONFIGS / "small.cfg", Path("models/mine"), config_only=True)
    assert capsys.readouterr().out == "Wrote models/mine/config.cfg.\n"
    config = load_config("models/mine/config.cfg", interpolate=False)
    assert (
        config["training"]["max_steps"]
        == config["training"]["optimizer"]["learn_rate"]["total_steps"]
        == 200
    )
    assert config["paths"]["train"] == "corpus/embedded/train.spacy"
    assert config["corpora"]["train"]["path"] == "${paths.train}"
    assert config["components"]["bioel_linker"]["search_names"] == 32  # a default
    debug_config("models/mine/config.cfg")
    assert "Config is valid" in capsys.readouterr().out


def test_a_package_in_place_of_the_hub(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "PACKAGES", {MINILM: "held_by_a_package"})
    monkeypatch.delitem(sys.modules, "held_by_a_package", raising=False)
    assert script.find_transformer(MINILM) == MINILM  # not installed
    (tmp_path / "held_by_a_package.py").write_text(
        "from pathlib import Path\ndef get_model_path(): return Path('/where/it/is')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert script.find_transformer(MINILM) == "/where/it/is"
    assert script.find_transformer("owner/other") == "owner/other"
    assert script.find_transformer(str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize(
    ("given", "in_config", "expected"),
    [
        ("", "null", None),
        ("", '"own/model"', "own/model"),
        ("other/model", '"own/model"', "other/model"),
        ("other/model", "null", "other/model"),
    ],
)
def test_the_option_is_stronger_than_the_config(
    script: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    in_config: str,
    expected: str | None,
) -> None:
    trained = []
    monkeypatch.setattr(script, "train", lambda path, *_, **__: trained.append(path))
    monkeypatch.setattr(script.torch, "set_num_threads", lambda n: None)
    srsly.write_yaml(
        tmp_path / "corpora.yml", {"tiny": {"settings": {}, "label_types": {"A": ["C"]}}}
    )
    monkeypatch.setattr("specs.CORPORA", tmp_path / "corpora.yml")
    base = CONFIGS / "transformer.cfg"
    (tmp_path / "mine.cfg").write_text(
        f'[extends]\npath = "{base}"\n[paths]\ntransformer = {in_config}\n'
    )
    script.main("tiny", tmp_path / "mine.cfg", tmp_path / "out", transformer=given, seed=7)
    assert trained == [tmp_path / "out" / "config.cfg"]
    config = load_config(trained[0], interpolate=True)
    assert config["paths"]["transformer"] == expected
    assert config["paths"]["train"] == "corpus/tiny/train.spacy"
    assert config["components"]["tok2vec"]["model"]["path"] == expected
    assert config["components"]["bioel_mentions"]["model"]["tok2vec"]["tok2vec"]["width"] == 384
    assert config["system"]["seed"] == 7


# Training that was stopped.


def fill_disk(nlp: Language, path: Path, **_: Any) -> None:
    path.mkdir(exist_ok=True)
    (path / "meta.json").write_text("{")
    raise OSError("The disk is full")


def test_going_on_after_a_stop(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)  # and back to where the tests run
    monkeypatch.setattr("specs.CORPORA", prepare_tiny(tmp_path, (4, 10), every=2))
    script.main("tiny", Path("4.cfg"), Path("out"))
    assert srsly.read_json("out/model-last/meta.json")["training_steps"] == 4
    trained_with, train = [], script.train

    def remember(path: Path, *args: Any, **settings: Any) -> None:
        trained_with.append(load_config(path, interpolate=True))
        train(path, *args, **settings)

    monkeypatch.setattr(script, "train", remember)
    script.main("tiny", Path("10.cfg"), Path("out"), resume=True)
    assert "Going on after 4 of 10 updates" in capsys.readouterr().out
    assert load_config("out/config.cfg")["training"]["max_steps"] == 10
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "config.cfg",
        "model-best",
        "model-last",
    ]
    (config,) = trained_with
    assert config["training"]["max_steps"] == 6
    assert config["training"]["optimizer"]["use_averages"] is False
    rate = config["training"]["optimizer"]["learn_rate"]
    assert (rate["initial_rate"], rate["warmup_steps"]) == (pytest.approx(0.00075), 0)
    assert rate["total_steps"] == 6
    assert srsly.read_json("out/model-last/meta.json")["training_steps"] == 10
    nlp = spacy.load("out/model-last")
    assert nlp.get_pipe("bioel_linker").statistics.counts["acute kidney injury"]
    with monkeypatch.context() as full, pytest.raises(OSError, match="full"):
        full.setattr(Language, "to_disk", fill_disk)
        full.setattr(script, "remove_models", lambda *_: None)
        script.main("tiny", Path("4.cfg"), Path("out"))
    assert srsly.read_json("out/model-last/meta.json")["training_steps"] == 10
    with pytest.raises(BioelError, match=r"\[T008\] out/model-last .* has had 10 of 4 updates"):
        script.main("tiny", Path("4.cfg"), Path("out"), resume=True)
    # As versions that saved in place have left it when they were killed.
    Path("out/model-last/bioel_linker/memory.json").write_bytes(b"{")
    (Path("out/tmpabcd1234") / "model-last").mkdir(parents=True)
    with pytest.raises(BioelError, match=r"\[T008\] out/model-best .* has had 10 of 4 updates"):
        script.main("tiny", Path("4.cfg"), Path("out"), resume=True)
    assert "Going on from out/model-best: [B466] out/model-last/" in capsys.readouterr().out
    Path("out/model-best/meta.json").unlink()
    with pytest.raises(BioelError, match=r"\[T010\] No pipeline in out can be loaded.*\[B466\]"):
        script.main("tiny", Path("4.cfg"), Path("out"), resume=True)
    assert not Path("out/tmpabcd1234").exists()


def after_kills(folder: Path, n: int) -> list[dict[str, Any]]:
    """Lines that `training_kills` prints of n points."""
    run = [sys.executable, Path(__file__).with_name("training_kills.py"), folder, str(n)]
    path = os.pathsep.join([str(ROOT / "training" / "scripts"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(run, check=True, capture_output=True, text=True, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def assert_nothing_is_lost(points: list[dict[str, Any]]) -> None:
    left = ["config.cfg", "model-best", "model-last"]
    expected = {"killed": True, "again": 0, "left": left}
    assert points == [point | expected for point in points]
    for point in points:  # numbers of updates, and not what is wrong
        assert point["whole"].keys() == {"model-last", "model-best"}
        assert set(point["whole"].values()) <= {1, 2, 3}
        assert point["after"]["model-last"] == 9


@needs_fork
def test_a_kill_while_training_leaves_whole_pipelines(tmp_path: Path) -> None:
    points = after_kills(tmp_path, 1)
    assert len(points) == 1
    assert_nothing_is_lost(points)


@needs_fork
@pytest.mark.slow
def test_kills_at_many_points_of_a_training(tmp_path: Path) -> None:
    points = after_kills(tmp_path, 40)
    assert len(points) == 40
    assert_nothing_is_lost(points)


# The GPU that is asked for.

# What PyTorch and thinc say of a machine on which GPU 0 can be used.
GOOD: dict[str, Any] = {
    "torch.backends.cuda.is_built": lambda: True,
    "torch.cuda.device_count": lambda: 1,
    "torch.version.cuda": "12.8",
    "thinc.compat.has_cupy": True,
    "thinc.compat.has_cupy_gpu": True,
    "thinc.compat.has_torch_mps_gpu": False,
}
NO_GPU = {"torch.cuda.device_count": lambda: 0, "thinc.compat.has_cupy_gpu": False}
NO_CUDA = NO_GPU | {"torch.backends.cuda.is_built": lambda: False, "torch.version.cuda": None}
BLIND_CUPY = {"thinc.compat.has_cupy_gpu": False}
NO_CUPY = BLIND_CUPY | {"thinc.compat.has_cupy": False}
APPLE = NO_CUDA | NO_CUPY | {"thinc.compat.has_torch_mps_gpu": True}


@pytest.mark.parametrize(
    ("gpu_id", "machine", "said"),
    [
        (0, NO_CUDA, r"^\[T006\].* no GPU 0: PyTorch .* is built without CUDA\. Install a build"),
        (0, NO_GPU, r"^\[T006\].* no GPU 0: PyTorch .* finds 0, .*\. Check nvidia-smi and"),
        (1, {}, r"^\[T006\].* no GPU 1: PyTorch .* finds 1, counted from 0\. Check"),
        (0, NO_CUPY, r"^\[T007\].* GPU 0, but CuPy, .* cannot be imported\. .* CUDA 12\.8,"),
        (0, BLIND_CUPY, r"^\[T007\].* GPU 0, but CuPy, .* finds none\. .* CUDA 12\.8,"),
    ],
)
def test_a_gpu_that_cannot_be_used(
    script: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpu_id: int,
    machine: dict[str, Any],
    said: str,
) -> None:
    for name, value in (GOOD | machine).items():
        monkeypatch.setattr(name, value)
    monkeypatch.setattr(script, "train", lambda *_, **__: pytest.fail("was trained"))
    with pytest.raises(BioelError, match=said) as caught:
        script.main("bc5cdr", CONFIGS / "rescnn.cfg", tmp_path / "out", gpu_id=gpu_id)
    assert str(caught.value).endswith("or train on the CPU: --gpu-id -1 (--vars.gpu_id -1).")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("gpu_id", "machine"), [(-1, NO_CUDA), (0, {}), (0, APPLE)])
def test_what_is_asked_for_can_be_used(
    script: Any, monkeypatch: pytest.MonkeyPatch, gpu_id: int, machine: dict[str, Any]
) -> None:
    for name, value in (GOOD | machine).items():
        monkeypatch.setattr(name, value)
    script.require_gpu(gpu_id)


@pytest.mark.skipif(sys.platform == "darwin", reason="may have a GPU that no variable hides")
def test_one_line_and_status_2(tmp_path: Path) -> None:
    path = ROOT / "training" / "scripts" / "train.py"
    run = [str(path), "bc5cdr", str(CONFIGS / "rescnn.cfg"), "out", "--gpu-id", "99"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *run], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: [T006] There is no GPU 99: PyTorch ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

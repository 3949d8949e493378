"""Training and linking on a simulated GPU give the same links as on the CPU."""

import pickle
import re
import shutil
from collections.abc import Callable
from configparser import ConfigParser
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
import torch
from contextual_pipelines import OVERLAPS, generative_nlp, multitask_nlp, reranking_nlp
from gpu import GpuOps, GpuTensor, device, simulated_gpu
from pytest import approx
from spacy.language import Language
from thinc.api import NumpyOps, get_current_ops, set_current_ops
from threadpoolctl import threadpool_limits
from tiny import SPELLING_DETECTOR, dual_nlp, examples, light_nlp, step

import spacy_bioel
from spacy_bioel.doc import get_links
from spacy_bioel.errors import BioelError
from spacy_bioel.export.rows import link_texts
from spacy_bioel.linking.given import link_gold_mentions
from spacy_bioel.loading import UserCode, find_detector, find_linker
from spacy_bioel.parallel import gpu_in_use, require_gpu
from spacy_bioel.plugins.service import run
from spacy_bioel.types import AnnotatedText

device()  # before the first gradient of the process, whatever the order of the tests
DATA = Path(__file__).parents[1] / "data"
SETUP = Path(__file__).parents[2] / "setup.cfg"


def transformer_nlp(kb: Path, checkpoint: Path) -> Language:
    names = {"@architectures": "spacy-bioel.TransformerNames.v1", "path": str(checkpoint)}
    tagger = SPELLING_DETECTOR | {"@architectures": "spacy-bioel.BioTagger.v1"}
    del tagger["hidden"]
    return dual_nlp(kb, checkpoint, model={"names": names}, detector=tagger)


MAKE: dict[str, Callable[[Path, Path], Language]] = {
    "light": lambda kb, _: light_nlp(kb),
    "transformer": transformer_nlp,
    "multi-task": lambda kb, _: multitask_nlp(kb, hidden=8),
    "reranker": reranking_nlp,
    "generative": lambda kb, _: generative_nlp(kb),
}
SLOW = {"transformer", "multi-task"}


def architectures(config: Any) -> set[str]:
    """Return the names of this package's architectures in a config."""
    if not isinstance(config, dict):
        return set()
    own = {name for name in [config.get("@architectures", "")] if name.startswith("spacy-bioel.")}
    return own.union(*map(architectures, config.values()))


def test_all_registered_architectures_are_tried(kb_folder, checkpoint):
    parser = ConfigParser(delimiters=("=",))
    parser.read(SETUP, encoding="utf8")
    registered = parser["options.entry_points"]["spacy_architectures"]
    configs = [make(kb_folder, checkpoint).config for make in MAKE.values()]
    assert set().union(*map(architectures, configs)) == {*re.findall(r"(\S+) = ", registered)}


@pytest.mark.filterwarnings(f"ignore:{OVERLAPS}", r"ignore:\[W323\]")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MAKE]
)
def test_same_links_as_on_the_cpu(name, kb_folder, checkpoint, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(GpuTensor, "limit", GpuTensor.limit)
    with simulated_gpu(), threadpool_limits(2, "blas"):
        nlp = MAKE[name](kb_folder, checkpoint)
        optimizer = nlp.initialize(lambda: examples(nlp, texts))
        for _ in range(2):
            step(nlp, texts, optimizer)
        nlp.to_disk(tmp_path)
        nlp, again = spacy.load(tmp_path), spacy.load(tmp_path)
        GpuTensor.largest = GpuTensor.failures = 0
        links = links_of(nlp, texts)
        # Batches that do not fit into the memory of the GPU are halved.
        GpuTensor.limit = GpuTensor.largest - 1
        halved = links_of(again, texts)
        assert GpuTensor.failures
        GpuTensor.limit = float("inf")
        spans = spans_of(nlp, texts)
    nlp = spacy.load(tmp_path)
    assert links == halved == links_of(nlp, texts)
    assert spans == spans_of(nlp, texts)


def links_of(nlp: Language, texts: list[AnnotatedText]) -> list[Any]:
    """Return the candidates of all gold mentions, with their scores."""
    links = chain(*link_gold_mentions(nlp, find_linker(nlp), texts))
    return [[(c.id, approx(c.score, abs=2e-4)) for c in link.candidates] for link in links]


def spans_of(nlp: Language, texts: list[AnnotatedText]) -> list[Any]:
    """Link two batches of over 4,096 tokens, and return the spans that were considered in them."""
    docs = list(nlp.pipe(2 * ["  ".join(text.text for text in texts) * 30], batch_size=1))
    assert min(map(len, docs)) > 4096
    if (detector := find_detector(nlp)) is None:
        return []
    scored = chain(*detector.score_spans(docs, min_probability=0.01))
    return [(*span, approx(p, abs=1e-4)) for *span, p in scored]


@pytest.mark.parametrize(
    "mix",
    [
        lambda array, tensor: array + np.ones(2),
        lambda array, tensor: np.concatenate([np.ones(2), array]),
        lambda array, tensor: np.asarray(array),
        lambda array, tensor: array[np.arange(2)],
        lambda array, tensor: get_current_ops().scatter_add(array, array, np.ones(2)),
        lambda array, tensor: tensor + torch.ones(2),
        lambda array, tensor: tensor.numpy(),
    ],
)
def test_the_simulation_refuses_to_mix_devices(mix):
    with simulated_gpu(), pytest.raises((TypeError, RuntimeError)):
        mix(get_current_ops().asarray(np.ones(2)), torch.ones(2).to(device()))


NO_GPU = {"torch.cuda.device_count": lambda: 0}
NO_CUDA = NO_GPU | {"torch.backends.cuda.is_built": lambda: False}
CUDA_12: dict[str, Any] = {
    "torch.cuda.device_count": lambda: 1,
    "torch.backends.cuda.is_built": lambda: True,
    "torch.version.cuda": "12.8",
}


@pytest.mark.parametrize(
    ("gpu_id", "machine", "message"),
    [
        (0, NO_CUDA, r"\[B650\] GPU 0 .* is built without CUDA"),
        (0, NO_GPU, r"\[B650\] GPU 0 .* finds 0, .* nvidia-smi"),
        (1, {}, r"\[B650\] GPU 1 .* finds 1, "),
        (0, {"thinc.util.has_cupy": False}, r"\[B651\] .*CuPy is not .*'cupy-cuda12x\[ctk\]"),
        (0, {"thinc.util.has_cupy": True}, r"\[B651\] .*No GPU devices detected"),
        (0, {"gpu.GpuOps.alloc1f": lambda *_: 1 / 0}, r"\[B651\] .*division by zero"),
    ],
)
def test_a_gpu_that_cannot_be_used(gpu_id, machine, message, monkeypatch):
    if "gpu.GpuOps.alloc1f" in machine:  # CuPy compiles no kernel
        monkeypatch.setattr("thinc.api.require_gpu", lambda _: set_current_ops(GpuOps()))
    for name, value in (CUDA_12 | machine).items():
        monkeypatch.setattr(name, value)
    with pytest.raises(BioelError, match=message):
        require_gpu(gpu_id)
    assert gpu_in_use() == -1


def test_code_and_gpu_in_another_process():
    with simulated_gpu():
        sent = pickle.dumps(UserCode())
        set_current_ops(NumpyOps())
        pickle.loads(sent)
        assert gpu_in_use() == 0


@pytest.mark.parametrize(
    "command",
    [
        "link MODEL texts.txt",
        "evaluate MODEL DEV --prefix MESH",
        "tune MODEL DEV tuned --prefix MESH",
        "kb encode KB MODEL",
    ],
)
def test_commands_on_a_gpu(command, trained_folder, kb_folder, tmp_path, monkeypatch, bioel):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("Naloxone reversed the hypotension.")
    places = {"MODEL": trained_folder, "KB": shutil.copytree(kb_folder, tmp_path / "kb")}
    places["DEV"] = DATA / "six.PubTator.txt"
    arguments = [places.get(word, word) for word in command.split()]
    with simulated_gpu():
        set_current_ops(NumpyOps())
        GpuTensor.largest = 0
        bioel(*arguments, "--gpu-id", 0)
        assert GpuTensor.largest > 0
        set_current_ops(NumpyOps())


def test_forked_processes_cannot_use_the_gpu(trained, start_method):
    with simulated_gpu(), pytest.raises(BioelError, match=r"\[B652\] 2 processes .*--n-process"):
        next(link_texts(trained, [("Aspirin.", None)], n_process=2))


def test_too_little_memory_for_one_text(trained_folder, monkeypatch):
    with simulated_gpu():
        nlp = spacy.load(trained_folder)
        monkeypatch.setattr(GpuTensor, "limit", 1)
        (linked,) = link_texts(nlp, [("Naloxone and aspirin.", None)])
        assert linked.error.code == "B653"
        with pytest.raises(BioelError, match=r"\[B653\] .*--batch-size"):
            spacy.load(trained_folder)


@pytest.mark.parametrize(("options", "n_workers"), [([], 1), (["--workers", 2], 2)])
def test_workers_of_the_service_share_the_gpu(options, n_workers, bioel, monkeypatch):
    chosen: list[int] = []
    monkeypatch.setattr(run, "run_server", lambda *_, n_workers, **__: chosen.append(n_workers))
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (8e9, 16e9))
    with simulated_gpu():
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        said = bioel("serve", "--port", 0, "--gpu-id", 0, *options).words
    assert chosen == [n_workers]
    assert ("4.0 of its 8.0 free GB for each" in said) == (n_workers == 2)


def test_the_starter_on_a_gpu(kb_folder):
    def links() -> list[Any]:
        nlp = spacy_bioel.load()
        find_linker(nlp).cfg |= {"kb": str(kb_folder), "label_types": {}}
        doc = nlp("Aspirin caused acute kidney injury and hypotension in TP53-deficient mice.")
        return [(x.start, x.end, x.label, x.ids) for x in get_links(doc)]

    with simulated_gpu():
        GpuTensor.largest = 0
        found = links()
        assert GpuTensor.largest > 0
    assert found == links() and len(found) > 3

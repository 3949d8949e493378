"""Training and linking on a simulated GPU give the same links as on the CPU."""

import re
from collections.abc import Callable
from configparser import ConfigParser
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
import torch
from gpu import GpuTensor, device, simulated_gpu
from pytest import approx
from spacy.language import Language
from test_generative import generative_nlp
from test_multitask import OVERLAPS, multitask_nlp
from test_reranker import reranking_nlp
from thinc.api import get_current_ops
from threadpoolctl import threadpool_limits
from tiny import DETECTOR, LINKER, SPELLING_DETECTOR, blank, dual_nlp, examples, step

import spacy_bioel
from spacy_bioel.doc import get_links
from spacy_bioel.errors import BioelError
from spacy_bioel.evaluation.run import link_gold_mentions
from spacy_bioel.loading import find_detector, find_linker
from spacy_bioel.types import AnnotatedText

SETUP = Path(__file__).parents[2] / "setup.cfg"
LOADED_MODELS: dict[str, Callable[[Path, Path], Language]]


def light_nlp(kb: Path, checkpoint: Path) -> Language:
    nlp = blank()
    nlp.add_pipe("bioel_mentions", config=DETECTOR)
    nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(kb)})
    return nlp


def transformer_nlp(kb: Path, checkpoint: Path) -> Language:
    names = {"@architectures": "spacy-bioel.TransformerNames.v1", "path": str(checkpoint)}
    tagger = SPELLING_DETECTOR | {"@architectures": "spacy-bioel.BioTagger.v1"}
    del tagger["hidden"]
    return dual_nlp(kb, checkpoint, model={"names": names}, detector=tagger)


MAKE: dict[str, Callable[[Path, Path], Language]] = {
    "light": light_nlp,
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

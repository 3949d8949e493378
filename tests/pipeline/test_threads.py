"""A pipeline in eight threads gives the same results as in one, from the first document on."""

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import spacy
import torch
from spacy.language import Language
from spacy.tokens import Doc
from tiny import examples, needs, sharing_nlp, step

from spacy_bioel.doc import get_links

N_THREADS = 8
Found = list[list[tuple]]


def modules(pipe: Any) -> Iterator[torch.nn.Module]:
    """All torch modules of a pipe: the networks and their parts."""
    for layer in pipe.model.walk():
        for shim in layer.shims:
            yield from shim._model.modules()


def modes(nlp: Language) -> set[bool]:
    """Whether modules are in training mode."""
    return {module.training for _, pipe in nlp.pipeline for module in modules(pipe)}


def watch(nlp: Language) -> set[bool]:
    """Set of the modes in which modules are called."""
    seen: set[bool] = set()
    for _, pipe in nlp.pipeline:
        for module in modules(pipe):
            module.register_forward_pre_hook(lambda module, _: seen.add(module.training))
    return seen


def found_in(docs: Iterator[Doc]) -> Found:
    """Mentions with their probabilities, and links if there is a linker."""
    return [
        [
            *((span.start, span.end, span.label_) for span in doc.spans["bioel"]),
            *((score,) for score in doc.spans["bioel"].attrs["scores"]),
            *((link.start, link.end, link.ids, link.candidates) for link in get_links(doc)),
        ]
        for doc in docs
    ]


def find(nlp: Language, texts: list[str], *, one_by_one: bool = True) -> Found:
    return found_in(map(nlp, texts) if one_by_one else nlp.pipe(texts, batch_size=4))


def in_threads(job: Callable[[bool], Any]) -> list[Any]:
    """Results of a job that eight threads start at the same time, half of them in another way."""
    start = Barrier(N_THREADS, timeout=60)

    def begin(number: int) -> Any:
        start.wait()
        return job(number % 2 == 0)

    with ThreadPoolExecutor(N_THREADS) as pool:
        jobs = [pool.submit(begin, number) for number in range(N_THREADS)]
        return [job.result() for job in jobs]


@pytest.fixture(params=["trained_folder", "dual_folder"])
def folder(request) -> Path:
    """Detector and linker, each with its own networks, or with a shared transformer."""
    return request.getfixturevalue(request.param)


def test_mentions_and_links_are_those_of_one_thread(folder, texts):
    strings = [text.text for text in texts] * 2
    loaded, nlp = spacy.load(folder), spacy.load(folder)
    expected = {way: find(loaded, strings, one_by_one=way) for way in (True, False)}
    seen = watch(nlp)
    results = in_threads(lambda way: (way, find(nlp, strings, one_by_one=way)))
    assert all(found == expected[way] for way, found in results)
    assert not any(seen)
    assert sum(map(len, expected[True])) > 25


def test_loaded_networks_predict(folder):
    nlp = spacy.load(folder)
    assert not any(modes(nlp))
    again = spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert not any(modes(again))
    for _, pipe in nlp.pipeline:
        worker = pickle.loads(pickle.dumps(pipe))  # as a process gets it under spawn
        assert not any(module.training for module in modules(worker))


@needs("contextual")
def test_networks_learn_only_in_update_even_if_it_fails(checkpoint, texts):
    nlp = sharing_nlp(checkpoint)
    data = examples(nlp, texts)
    optimizer = nlp.initialize(lambda: data)
    assert not any(modes(nlp))
    seen = watch(nlp)
    step(nlp, texts, optimizer)
    assert seen == {True}
    assert modes(nlp) == {False}

    def fail(module: torch.nn.Module, _: Any) -> None:
        raise MemoryError

    network = next(modules(nlp.get_pipe("bioel_mentions")))
    network.register_forward_pre_hook(fail)
    with pytest.raises(MemoryError):
        nlp.update(examples(nlp, texts))
    assert modes(nlp) == {False}

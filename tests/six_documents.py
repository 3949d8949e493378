"""Fixtures: a knowledge base of forty concepts, six documents, and two pipes that overfit them."""

import multiprocessing
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import spacy
import torch
from spacy.language import Language
from tiny import dual_nlp, fleeting, learn, light_nlp, train

from spacy_bioel.io.jsonl import read_concepts_jsonl
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import AnnotatedText

DATA = Path(__file__).with_name("data")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: faster for tiny tensors, and needed by `nlp.pipe(n_process=2)` under fork."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def kb_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kb") / "mesh"
    build_kb(read_concepts_jsonl(DATA / "concepts.jsonl"), folder)
    return folder


@pytest.fixture(scope="session")
def kb(kb_folder) -> KnowledgeBase:
    return KnowledgeBase.open(kb_folder)


@pytest.fixture(scope="session")
def texts() -> list[AnnotatedText]:
    return list(read_pubtator(DATA / "six.PubTator.txt", prefix="MESH"))


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory, kb_folder, texts) -> Path:
    """Both pipes, trained together on the six documents and saved."""
    spacy.util.fix_random_seed(0)
    nlp = light_nlp(kb_folder)
    nlp.config["initialize"]["components"]["bioel_mentions"] = {"kb": str(kb_folder)}
    train(nlp, texts, updates=40)
    folder = tmp_path_factory.mktemp("model") / "trained"
    nlp.to_disk(folder)
    return folder


@pytest.fixture
def trained(trained_folder) -> Language:
    return spacy.load(trained_folder)


@pytest.fixture(scope="session")
def dual_folder(kb_folder, checkpoint, texts, tmp_path_factory) -> Path:
    """A saved detector and dual encoder that share a transformer.

    The checkpoint and the knowledge base of their training are deleted.
    """
    pytest.importorskip("spacy_bioel.plugins.contextual", reason="needs the plugin contextual")
    folder = tmp_path_factory.mktemp("dual")
    shutil.copytree(kb_folder, folder / "kb")
    with fleeting(checkpoint, folder) as bert:
        nlp = dual_nlp(folder / "kb", bert)
        learn(nlp, texts, updates=80)
        nlp.to_disk(folder / "trained")
    shutil.rmtree(folder / "kb")
    return folder / "trained"


@pytest.fixture(params=["fork"])
def start_method(request) -> Iterator[str]:
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method(request.param, force=True)
    yield request.param
    multiprocessing.set_start_method(before, force=True)

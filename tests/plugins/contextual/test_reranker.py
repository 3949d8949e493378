"""`bioel_linker` with a cross-encoder, which scores each candidate with the mention in context."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from test_generative import generative_nlp, given
from tiny import (
    LINKER,
    assert_same_links,
    blank,
    examples,
    fleeting,
    gold_links,
    links,
    train,
    with_linker,
)

from spacy_bioel.doc import get_links
from spacy_bioel.types import AnnotatedText

pytest.importorskip("transformers")


def reranking_nlp(kb: Path, checkpoint: Path, **settings: Any) -> Language:
    pairs = {
        "@architectures": "spacy-bioel.CrossEncoder.v1",
        "path": str(checkpoint),
        "max_pieces": 32,
        "learn_rate_scale": 0.1,
    }
    names = {"@architectures": "spacy-bioel.ResCNN.v1"} | LINKER["model"]
    model = {"@architectures": "spacy-bioel.Reranker.v1", "names": names, "pairs": pairs}
    training = {"candidates": 4, "mentions": 8}
    return with_linker(blank(), kb, model, training=training, **settings)


@pytest.fixture(scope="module")
def saved(kb_folder, checkpoint, texts, tmp_path_factory) -> Path:
    """A pipeline trained from a checkpoint that is deleted before the pipeline is loaded."""
    folder = tmp_path_factory.mktemp("reranker")
    with fleeting(checkpoint, folder) as bert:
        nlp = reranking_nlp(kb_folder, bert, coherence=0.0)
        train(nlp, texts, updates=40)
        nlp.to_disk(folder / "trained")
    return folder / "trained"


@pytest.fixture
def reranker(saved) -> Language:
    return spacy.load(saved)


def test_learns_by_heart(reranker, texts):
    docs = list(reranker.pipe(given(reranker, texts)))
    assert len(gold_links(texts) - {link for doc in docs for link in links(doc)}) <= 2
    spans = [span for doc in docs for span in doc.spans["bioel"] if len(span._.cuis) == 1]
    assert {span._.candidates[0].evidence.rpartition("+")[2] for span in spans} == {"contextual"}


def test_same_links_from_bytes_and_in_any_batch(reranker, texts):
    assert_same_links(reranker, lambda nlp: given(nlp, texts))
    assert [get_links(reranker(text)) for text in ("", "  ")] == [[], []]


@pytest.mark.parametrize("architecture", ["reranker", "generative"])
def test_the_name_encoder_is_not_trained(kb_folder, checkpoint, texts, architecture):
    is_reranker = architecture == "reranker"
    nlp = reranking_nlp(kb_folder, checkpoint) if is_reranker else generative_nlp(kb_folder)
    optimizer = nlp.initialize(lambda: examples(nlp, texts))
    linker = nlp.get_pipe("bioel_linker")
    before = linker.generator.encoder.encode(["renal failure"]).tolist()
    losses = nlp.update(examples(nlp, texts), sgd=optimizer)
    assert losses["bioel_linker"] > 0.1
    assert linker.generator.encoder.encode(["renal failure"]).tolist() == before
    without_gold = examples(nlp, [AnnotatedText("1", "Nothing here.", ())])
    assert nlp.update(without_gold, sgd=optimizer)["bioel_linker"] == 0.0

"""`bioel_linker` with a dual encoder that shares a transformer with the detector."""

from typing import Any

import numpy as np
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from tiny import (
    assert_same_links,
    dual_nlp,
    evidence_of,
    gold_links,
    learn,
    leave_evidence,
    links,
    transformer,
)

from spacy_bioel.doc import add_gold, get_links
from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.contextual.dual_encoder import encode_mentions
from spacy_bioel.types import AnnotatedText

pytest.importorskip("transformers")


@pytest.fixture
def dual(dual_folder) -> Language:
    return spacy.load(dual_folder)


def test_learns_both_by_heart(dual, texts):
    docs = list(dual.pipe(t.text for t in texts))
    found = {link for doc in docs for link in links(doc)}
    assert len(gold_links(texts) - found) <= 3
    # The parts of a composite are looked up by their strings.
    spans = [span for doc in docs for span in doc.spans["bioel"] if len(span._.cuis) == 1]
    assert {span._.candidates[0].evidence.rpartition("+")[2] for span in spans} == {"contextual"}


def test_same_links_from_bytes_in_any_batch_and_without_gold(dual, texts):
    inputs = [text.text for text in texts] + ["", "  ", "AKI"]
    assert_same_links(dual, lambda _: inputs, with_gold(dual, inputs, texts))


def with_gold(nlp: Language, inputs: list[str], texts: list[AnnotatedText]) -> list[Doc]:
    """Make documents; the first ones have gold mentions."""
    docs = [nlp.make_doc(text) for text in inputs]
    for doc, text in zip(docs, texts, strict=False):
        add_gold(doc, text)
    return docs


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["spawn"], indirect=True)
def test_two_processes_after_training(kb_folder, checkpoint, texts, start_method):
    spacy.util.fix_random_seed(0)
    nlp = dual_nlp(kb_folder, checkpoint)
    learn(nlp, texts, updates=20)
    nlp.get_pipe("bioel_mentions").cfg["threshold"] = 0.1
    inputs = [text.text for text in texts]
    found = [get_links(doc) for doc in nlp.pipe(inputs, n_process=2, batch_size=2)]
    assert sum(map(len, found)) > 10
    assert found == [get_links(doc) for doc in nlp.pipe(inputs)]


def test_contextual_evidence_alone(dual, texts):
    linker = dual.get_pipe("bioel_linker")
    leave_evidence(dual, "contextual")
    linker.cfg["nil_threshold"] = 0.0
    linker.set_kb(linker.kb)
    assert evidence_of([dual(texts[0].text)]) == {"contextual"}


def test_without_contextual_evidence(dual, texts):
    dual.get_pipe("bioel_linker").cfg["evidence"]["contextual"] = False
    found = evidence_of(dual.pipe(text.text for text in texts))
    assert {"dense", "exact+alias_table+dense"} < found
    assert not any("contextual" in evidence for evidence in found)


def test_documents_without_token_vectors(dual):
    doc = dual.make_doc("AKI")
    doc.spans["bioel"] = [doc.char_span(0, 3, label="Disease")]
    with pytest.raises(BioelError, match=r"\[B174\]"):
        dual.get_pipe("bioel_linker")(doc)


def mention_vectors(linker: Any, docs: list[Doc]) -> np.ndarray:
    return encode_mentions(linker.model, linker.generator, linker.ranking(docs).mentions)


def test_mentions_encoded_one_by_one(kb_folder, checkpoint, texts, tmp_path):
    """The linker has a separate transformer, which is saved with it."""
    nlp = dual_nlp(
        kb_folder, checkpoint, model={"collective": False, "tok2vec": transformer(checkpoint)}
    )
    losses = learn(nlp, texts, updates=25, name="bioel_linker")
    assert losses[-1] < max(losses) / 4  # the first negatives are easier
    nlp.to_disk(tmp_path / "trained")
    again = spacy.load(tmp_path / "trained")
    long = texts[0].text + " Nothing more is known." * 40
    inputs = [texts[1].text, long, ""]
    docs = [nlp.make_doc(text) for text in inputs]
    for doc in docs[:2]:
        doc.spans["bioel"] = [doc[2:4], doc[len(doc) // 2 : len(doc) // 2 + 1]]
    linker, copy = (pipe.get_pipe("bioel_linker") for pipe in (nlp, again))
    found = mention_vectors(linker, docs)
    assert found.shape == (4, 32)
    stored = mention_vectors(copy, docs)
    assert np.abs(stored - found).max() < 1e-5
    # Text beyond the context of a mention has no effect.
    doc = nlp.make_doc(texts[0].text + " Nothing more is known." * 39)
    doc.spans["bioel"] = [doc[2:4]]
    shorter = mention_vectors(linker, [doc])
    assert np.abs(shorter - found[2]).max() < 1e-5


def test_a_listener_cannot_encode_one_by_one(kb_folder, checkpoint):
    with pytest.raises(BioelError, match=r"\[B177\]"):
        dual_nlp(kb_folder, checkpoint, model={"collective": False})


def test_unknown_pooling(kb_folder, checkpoint):
    with pytest.raises(BioelError, match=r"\[B175\].*'last'"):
        dual_nlp(kb_folder, checkpoint, model={"pooling": "last"})

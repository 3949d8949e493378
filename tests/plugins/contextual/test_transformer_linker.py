"""`bioel_linker` with a transformer as name encoder: overfitted, saved and loaded."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import spacy
from spacy.language import Language
from tiny import blank, examples, fleeting, links, train, with_linker

from spacy_bioel.evaluation.run import link_gold_mentions
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import open_vectors

pytest.importorskip("transformers")
ARCHITECTURE = "spacy-bioel.TransformerNames.v1"


def transformer_nlp(kb_folder: Path, checkpoint: Path) -> Language:
    model = {"@architectures": ARCHITECTURE, "path": str(checkpoint), "pooling": "cls"}
    return with_linker(blank(), kb_folder, model)


@pytest.fixture(scope="module")
def saved(kb_folder, checkpoint, texts, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("transformer")
    with fleeting(checkpoint, folder, dropout=True) as copy:
        nlp = transformer_nlp(kb_folder, copy)
        train(nlp, texts, updates=12)
        nlp.to_disk(folder / "trained")
    return folder / "trained"


def test_training_changes_the_encoder(saved, checkpoint, kb_folder, texts):
    nlp = spacy.load(saved)
    linker = nlp.get_pipe("bioel_linker")
    untrained = transformer_nlp(kb_folder, checkpoint)
    untrained.initialize(lambda: examples(untrained, texts))
    synonyms = ["aspirin", "acetylsalicylic acid"]
    before, after = (
        float(np.prod(pipe.generator.encoder.encode(synonyms), axis=0).sum())
        for pipe in (untrained.get_pipe("bioel_linker"), linker)
    )
    assert after > before + 0.05
    assert linker.fingerprint != untrained.get_pipe("bioel_linker").fingerprint


def test_loads_without_the_checkpoint(saved, texts):
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= {
        path.name for path in (saved / "bioel_linker").iterdir()
    }
    nlp = spacy.load(saved)
    linker = nlp.get_pipe("bioel_linker")
    again = spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert again.get_pipe("bioel_linker").fingerprint == linker.fingerprint
    for first, second in zip(
        link_gold_mentions(nlp, linker, texts),
        link_gold_mentions(again, again.get_pipe("bioel_linker"), texts),
        strict=True,
    ):
        assert first == second


def test_links_use_its_vectors(saved, texts):
    nlp = spacy.load(saved)
    doc = nlp.make_doc("Aspirine.")
    doc.spans["bioel"] = [doc.char_span(0, 8, label="Chemical")]
    doc = nlp.get_pipe("bioel_linker")(doc)
    assert [cui for _, cui in links(doc)] == ["MESH:D001241"]
    assert "dense" in doc.spans["bioel"][0]._.candidates[0].evidence


def test_vectors_of_the_knowledge_base(saved, kb_folder, tmp_path):
    shutil.copytree(kb_folder, tmp_path / "kb")
    linker = spacy.load(saved).get_pipe("bioel_linker")
    linker.encode_kb(KnowledgeBase.open(tmp_path / "kb"))
    vectors = open_vectors(tmp_path / "kb", fingerprint=linker.fingerprint).take(slice(None))
    assert vectors.shape == (75, 32)
    linker.set_kb(tmp_path / "kb")
    assert np.abs(
        linker.generator.encoder.encode(["aspirin"])[0] @ vectors.T
    ).max() == pytest.approx(1.0, abs=0.01)

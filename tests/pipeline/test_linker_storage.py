"""Saving and loading `bioel_linker`: missing files, vectors of another encoder."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import spacy
from spacy.language import Language
from tiny import LINKER, VOCABULARY, blank, ents, examples, linking_nlp, links, with_entity

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking import searches
from spacy_bioel.linking.evidence import FEATURES, default_fusion
from spacy_bioel.types import AnnotatedText

WHEN = ("before", "after")


def test_saved_with_its_knowledge_base(kb_folder, tmp_path):
    shutil.copytree(kb_folder, tmp_path / "kb")
    nlp = linking_nlp(tmp_path / "kb", label_types={"Thing": ["Disease"]})
    nlp.to_disk(tmp_path / "saved")
    shutil.rmtree(tmp_path / "kb")
    (tmp_path / "saved").rename(tmp_path / "moved")

    def cui(nlp: Language) -> str:
        return nlp(with_entity(nlp, "a cold", "cold")).ents[0]._.cui

    moved = spacy.load(tmp_path / "moved")
    assert cui(moved) == "MESH:D003139"
    in_memory = spacy.util.load_model_from_config(moved.config).from_bytes(moved.to_bytes())
    shutil.rmtree(tmp_path / "moved")
    assert cui(in_memory) == "MESH:D003139"
    in_memory.to_disk(tmp_path / "again")
    assert cui(spacy.load(tmp_path / "again")) == "MESH:D003139"


def test_saved_without_its_knowledge_base(kb_folder, tmp_path):
    linking_nlp(kb_folder, ["aspirin"], include_kb=False).to_disk(tmp_path / "m")
    assert not (tmp_path / "m" / "bioel_linker" / "kb").exists()
    assert ents(spacy.load(tmp_path / "m")("aspirin")) == [("aspirin", "MESH:D001241")]


def test_the_same_is_saved_before_and_after_the_first_use(kb_folder, tmp_path):
    nlp = linking_nlp(kb_folder, ["aspirin"])
    nlp.to_disk(tmp_path / "before")
    before = nlp.get_pipe("bioel_linker").to_bytes()
    assert ents(nlp("aspirin")) == [("aspirin", "MESH:D001241")]
    nlp.to_disk(tmp_path / "after")
    assert nlp.get_pipe("bioel_linker").to_bytes() == before
    for when in WHEN:
        assert {path.name for path in (tmp_path / when / "bioel_linker").iterdir()} == {
            *["alias_table.json", "cfg.json", "embeddings.safetensors", "fusion.json", "kb"],
            *["manifest.json", "model.safetensors", "tokenizer.json"],
        }


def test_fitted_weights_are_saved(kb_folder, tmp_path):
    nlp = linking_nlp(kb_folder, ["aspirin"])
    linker = nlp.get_pipe("bioel_linker")
    assert ents(nlp("aspirin")) == [("aspirin", "MESH:D001241")]
    linker.fusion = replace(default_fusion(), bias=-99.0)
    assert ents(nlp("aspirin")) == [("aspirin", "NIL")]
    nlp.to_disk(tmp_path / "m")
    loaded = spacy.load(tmp_path / "m")
    assert loaded.get_pipe("bioel_linker").fusion.bias == -99.0
    assert ents(loaded("aspirin")) == [("aspirin", "NIL")]
    copied = spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert ents(copied(with_entity(copied, "aspirin", "aspirin"))) == [("aspirin", "NIL")]


@pytest.fixture
def encoded_folder(kb_folder, tmp_path, trained) -> Path:
    """The knowledge base with vectors of the trained pipeline's encoder."""
    shutil.copytree(kb_folder, tmp_path / "encoded")
    kb = KnowledgeBase.open(tmp_path / "encoded")
    seen: list[int] = []
    trained.get_pipe("bioel_linker").encode_kb(kb, progress=seen.append)
    assert sum(seen) == kb.n_names == 75
    return tmp_path / "encoded"


def test_vectors_of_the_same_encoder(trained, encoded_folder):
    text = "Dyskinesia under levodopa/carbidopa."
    before = links(trained(text))
    trained.get_pipe("bioel_linker").set_kb(encoded_folder)
    assert links(trained(text)) == before
    assert [cui for _, cui in before] == ["MESH:D004409", "MESH:D007980", "MESH:D002230"]


def test_vectors_of_another_encoder(kb_folder, encoded_folder, texts, trained, monkeypatch):
    nlp = blank()
    linker = nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(kb_folder)})
    nlp.config["initialize"]["components"]["bioel_linker"] = VOCABULARY
    data = examples(nlp, texts[:2])
    nlp.initialize(lambda: data)
    linker.set_kb(encoded_folder)
    doc = with_entity(nlp, "aspirin", "aspirin")
    with monkeypatch.context() as large:
        large.setattr(searches, "ENCODE_ON_LOAD", 1)
        with pytest.raises(BioelError, match=r"\[B031\].*bioel kb encode /.*/encoded MODEL"):
            nlp(doc)
        linker.encode_kb(KnowledgeBase.open(encoded_folder))
        for pipeline in (nlp, trained):  # the folder has vectors of both encoders
            pipe = pipeline.get_pipe("bioel_linker")
            pipe.set_kb(encoded_folder)
            vectors = pipe.generator.encoder.encode(["aspirin"])
            assert len(pipe.generator.names.search(vectors, 1)[0]) == 1


def test_the_fingerprint_is_that_of_the_encoder(trained, trained_folder):
    first = trained.get_pipe("bioel_linker").fingerprint
    assert len(first) == 16
    assert spacy.load(trained_folder).get_pipe("bioel_linker").fingerprint == first
    trained.get_pipe("bioel_linker").update(
        examples(trained, [AnnotatedText("1", "x")]), sgd=trained.create_optimizer()
    )
    assert trained.get_pipe("bioel_linker").fingerprint != first


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("alias_table.json", '{"aspirin": {"MESH:D001241": "x"}}', "B272"),
        ("alias_table.json", '{"aspirin": {"MESH:D001241": -5}}', "B272"),
        ("alias_table.json", '{"aspirin": {"MESH:D001241": 1e400}}', "B272"),
        ("alias_table.json", '{"aspirin": 1}', "B272"),
        ("alias_table.json", "null", "B272"),
        ("alias_table.json", "[]", "B272"),
        ("fusion.json", "[]", "B272"),
        ("fusion.json", "{}", "B272"),
        ("fusion.json", "bias NaN", "B058"),
        ("fusion.json", "no bias", "B272"),
        ("fusion.json", "short output", "B272"),
    ],
)
def test_edited_weights_and_alias_tables(kb_folder, tmp_path, file, text, code):
    nlp = linking_nlp(kb_folder)
    linker = nlp.get_pipe("bioel_linker")
    linker.fusion = default_fusion()
    nlp.to_disk(tmp_path / "m")
    edited = linker.fusion.to_json(FEATURES)
    if text == "bias NaN":
        text = json.dumps(edited | {"bias": float("nan")})
    elif text == "no bias":
        text = json.dumps({key: value for key, value in edited.items() if key != "bias"})
    elif text == "short output":
        text = json.dumps(edited | {"output": edited["output"][1:]})
    (tmp_path / "m" / "bioel_linker" / file).write_text(text)
    (tmp_path / "m" / "bioel_linker" / "manifest.json").unlink()
    with pytest.raises(BioelError, match=rf"\[{code}\]"):
        spacy.load(tmp_path / "m")


def test_weights_of_another_version_are_replaced(kb_folder, tmp_path, caplog):
    """The pipeline can be tuned, as the warning says, and saved."""
    nlp = linking_nlp(kb_folder)
    linker = nlp.get_pipe("bioel_linker")
    linker.fusion = default_fusion()
    nlp.to_disk(tmp_path / "m")
    edited = linker.fusion.to_json(FEATURES) | {"features": [*FEATURES[1:], "more"]}
    (tmp_path / "m" / "bioel_linker" / "fusion.json").write_text(json.dumps(edited))
    (tmp_path / "m" / "bioel_linker" / "manifest.json").unlink()
    nlp = spacy.load(tmp_path / "m")
    assert nlp.get_pipe("bioel_linker").fusion is None
    assert "[W062]" in caplog.text and "bioel tune MODEL DEV OUT" in caplog.text
    nlp.to_disk(tmp_path / "again")
    caplog.clear()
    spacy.load(tmp_path / "again")
    assert not caplog.text


def test_only_a_trained_linker_encodes_and_learns(kb, kb_folder, texts):
    nlp = linking_nlp(kb_folder, **LINKER)
    linker = nlp.get_pipe("bioel_linker")
    for act in (lambda: linker.encode_kb(kb), lambda: linker.update(examples(nlp, texts[:1]))):
        with pytest.raises(BioelError, match=r"\[B053\].*'bioel_linker'"):
            act()

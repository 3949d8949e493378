"""The bundled encoder, and the bundled knowledge bases that are built at first use."""

import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spacy
from cases import table
from kb_files import vectors_of, with_header
from spacy.language import Language
from tiny import LINKER, VOCABULARY, examples, linking_nlp, with_entity

import spacy_bioel
from spacy_bioel.errors import BioelError
from spacy_bioel.kb import bundled
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import add_concepts
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import has_vectors, write_vectors
from spacy_bioel.linking import searches, starter
from spacy_bioel.types import Candidate, Concept


def test_a_linker_with_no_settings_at_all():
    real = linking_nlp("")
    linker: Any = real.get_pipe("bioel_linker")
    mentions = ("heart attack", "acetylsalicylic acid", "no such thing xyz")
    found = [linked(real, mention) for mention in mentions]
    assert found == ["MESH:D009203", "MESH:D001241", "NIL"]
    assert linker.has_encoder and has_vectors(linker.kb)
    assert linker.kb.path.parent == bundled.cache_folder()
    assert linker.kb.meta["source"] == (
        "MeSH diseases, chemicals and supplementary records of diseases and chemicals; "
        "brands: UNII, FDA; more names of diseases: DOID, MONDO, HPO; rare diseases: OMIM, by MONDO"
    )
    assert 1_000 < len(linker.kb) < linker.kb.n_names


@table("the usual folder of a system")
def test_the_usual_folder_of_a_system(monkeypatch, platform, variable, value, expected):
    monkeypatch.delenv("SPACY_BIOEL_CACHE")
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/user"))
    assert bundled.cache_folder().as_posix() == expected


def test_the_first_use_says_what_it_builds_and_encodes(small_starter, capfd, caplog):
    for _ in range(2):
        nlp = linking_nlp("")
        assert linked(nlp, "heart attack") == "MESH:D009203"
    messages = [record.getMessage() for record in caplog.records]
    codes = [message[:6] for message in messages]
    assert codes == ["[W351]", "[W352]"] and "starter:mesh" in messages[0]
    assert "4 names" in messages[1]
    assert capfd.readouterr().out == ""


def test_built_once(small_starter, monkeypatch):
    kb = bundled.starter_kb()
    assert (len(kb), kb.n_names, kb.type_names) == (2, 4, ("C", "D"))
    assert kb.xrefs(kb.find("MESH:D009203")) == ("DOID:5844", "SCTID:22298006")
    monkeypatch.setattr(bundled, "merge_records", None)
    assert bundled.starter_kb().fingerprint == kb.fingerprint
    with monkeypatch.context() as later:
        later.setattr(bundled, "NORMALIZER_VERSION", 99)
        with pytest.raises(TypeError):  # it is built again
            bundled.starter_kb()


def test_loading_draws_no_random_numbers():
    nlp = spacy_bioel.load(exclude="bioel_linker")
    tok2vec = nlp.get_pipe("bioel_mentions").model.get_ref("tok2vec")
    hashes = [layer for layer in tok2vec.walk() if layer.name == "hashembed"]
    np.random.seed(1)
    spacy_bioel.load(exclude="bioel_linker")
    assert np.random.random() == 0.417022004702574
    hashes[0].initialize()  # to train again
    assert hashes[0].get_param("E").any() and np.random.random() != 0.7203244934421581


def test_training_strings_are_encoded_once(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("SPACY_BIOEL_CACHE", str(cache))
    encoder: Any = SimpleNamespace(fingerprint="abc", encode=lambda names: np.eye(2, 4))
    first = starter.string_vectors(encoder, ["asa", "mi"])
    [file] = cache.iterdir()
    encoder.encode = None
    again = starter.string_vectors(encoder, ["asa", "mi"])
    assert (again.take(slice(None)) == np.eye(2, 4, dtype=np.float32)).all()
    assert (again.scales == first.scales).all()
    # Damaged or other strings are encoded again, and only the last vectors are kept.
    encoder.encode = lambda names: np.eye(1, 4)
    file.write_bytes(file.read_bytes()[:-1])
    assert starter.string_vectors(encoder, ["asa", "mi"]).shape == (1, 4)
    assert starter.string_vectors(encoder, ["asa"]).shape == (1, 4)
    assert len(list(cache.iterdir())) == 1 and not file.exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_folder_that_cannot_be_written(small_starter, tmp_path, monkeypatch, is_there):
    """The message is not that of `bioel kb build`, which does not mention the cache."""

    def refuse(*args: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    if is_there:
        bundled.cache_folder().mkdir(parents=True)
        monkeypatch.setattr(bundled, "editing", refuse)
    else:
        (tmp_path / "file").write_text("in the way", encoding="utf8")
        monkeypatch.setenv("SPACY_BIOEL_CACHE", str(tmp_path / "file" / "cache"))
    where = "Permission denied" if is_there else "file/cache"
    nlp = linking_nlp("")
    with pytest.raises(BioelError, match=rf"\[B063\].*{where}.*SPACY_BIOEL_CACHE"):
        nlp(with_entity(nlp, "aspirin", "aspirin"))


def linked(nlp: Language, mention: str) -> str:
    """Return the id that a text, which is one mention, is linked to."""
    (entity,) = nlp(with_entity(nlp, mention, mention)).ents
    return entity.kb_id_


def test_the_cache_of_this_machine_is_not_stored(small_starter, texts, tmp_path, caplog):
    nlp = linking_nlp("", include_kb=False, **LINKER)
    nlp.config["initialize"]["components"]["bioel_linker"] = VOCABULARY
    linker: Any = nlp.get_pipe("bioel_linker")
    for is_trained in (False, True):
        if is_trained:
            nlp.initialize(lambda: examples(nlp, texts))
            assert "[W340]" in caplog.text  # it has few of the concepts
        assert linked(nlp, "aspirin") == "MESH:D001241"
        assert (linker.kb.path.parent, linker.cfg["kb"]) == (small_starter, "")
        nlp.to_disk(tmp_path / "m")
        stored = (tmp_path / "m" / "bioel_linker" / "cfg.json").read_text("utf8")
        assert str(small_starter) not in stored
        assert linked(spacy.load(tmp_path / "m"), "aspirin") == "MESH:D001241"


def test_a_saved_pipeline_has_a_copy(small_starter, tmp_path, monkeypatch):
    nlp = linking_nlp("")
    assert linked(nlp, "aspirin") == "MESH:D001241"
    nlp.to_disk(tmp_path / "m")
    monkeypatch.setattr(bundled, "starter_kb", None)
    again = spacy.load(tmp_path / "m")
    assert linked(again, "aspirin") == "MESH:D001241"
    assert has_vectors(again.get_pipe("bioel_linker").kb)


@pytest.mark.parametrize(("model", "expected"), [({}, True), ({"dim": 32}, False)])
def test_a_model_of_another_size_is_left_alone(kb_folder, model, expected):
    nlp = linking_nlp(kb_folder, model=model)
    assert linked(nlp, "aspirin") == "MESH:D001241"
    assert nlp.get_pipe("bioel_linker").has_encoder is expected


@pytest.fixture
def large(tmp_path, monkeypatch) -> Path:
    """A knowledge base that is too large to be encoded in memory, and not bundled."""
    build_kb([Concept("X:1", ("aspirin", "ASA"))], tmp_path / "large")
    monkeypatch.setattr(searches, "ENCODE_ON_LOAD", 1)
    monkeypatch.setattr(bundled, "starter_kb", None)
    return tmp_path / "large"


@pytest.mark.parametrize("has_others", [False, True])
def test_a_large_knowledge_base_without_vectors(large, has_others):
    """It is linked without the bundled encoder, with a warning."""
    if has_others:  # of another encoder
        kb = KnowledgeBase.open(large)
        write_vectors(kb, lambda names: np.ones((len(names), 2)), fingerprint="other", dim=2)
    nlp = linking_nlp(large)
    with pytest.warns(UserWarning, match=r"\[W064\].*large.* 2 names.*bioel kb encode"):
        assert linked(nlp, "asa") == "X:1"
    assert not nlp.get_pipe("bioel_linker").has_encoder


@table("vectors of what a knowledge base was")
def test_vectors_of_what_a_knowledge_base_was(large, monkeypatch, most, warning, has_encoder):
    monkeypatch.setattr(searches, "ENCODE_ON_LOAD", most)
    linker: Any = linking_nlp(large).get_pipe("bioel_linker")
    starter.read_starter_encoder(linker.model)
    linker.encode_kb(KnowledgeBase.open(large))
    add_concepts(large, [Concept("X:2", ("ibuprofen",))])
    nlp = linking_nlp(large)
    with pytest.warns(UserWarning, match=warning):
        assert linked(nlp, "ibuprofen") == "X:2"
    assert nlp.get_pipe("bioel_linker").has_encoder is has_encoder


def test_damaged_vectors_are_not_outdated_ones(large, monkeypatch):
    monkeypatch.setattr(searches, "ENCODE_ON_LOAD", 60_000)
    linker: Any = linking_nlp(large).get_pipe("bioel_linker")
    linker.encode_kb(KnowledgeBase.open(large))
    with_header(vectors_of(large), b"{")
    nlp = linking_nlp(large)
    with pytest.raises(BioelError, match=r"^\[B030\] vectors/\w+\.\w+\.safetensors"):
        nlp(with_entity(nlp, "aspirin", "aspirin"))


def test_encoding_a_large_knowledge_base_as_the_warning_says(large, tmp_path):
    nlp = linking_nlp(large)
    with pytest.warns(UserWarning, match=r"\[W064\]"):
        assert linked(nlp, "asa") == "X:1"
    nlp.to_disk(tmp_path / "m")
    again: Any = spacy.load(tmp_path / "m").get_pipe("bioel_linker")
    with pytest.warns(UserWarning, match=r"\[W064\]"):
        assert len(again.kb) == 1
    again.encode_kb(KnowledgeBase.open(large))
    other = linking_nlp(large)
    assert linked(other, "asa") == "X:1" and other.get_pipe("bioel_linker").has_encoder


def test_names_that_are_found_need_no_encoder_and_no_warning(large):
    nlp = linking_nlp(large, mentions="dictionary")
    with warnings.catch_warnings(action="error"):
        doc = nlp("He took aspirin.")
    (span,) = doc.spans["bioel"]
    assert (span.text, span.kb_id_) == ("aspirin", "X:1")


def test_reading_a_property_builds_no_knowledge_base(small_starter):
    nlp = linking_nlp("")
    candidate = Candidate("MESH:D001241", 0.5, "Aspirin", "exact", kb="0" * 32)
    with pytest.raises(BioelError, match=r"\[B320\]"):
        _ = candidate.concept
    assert not small_starter.exists()
    linker: Any = nlp.get_pipe("bioel_linker")
    known = replace(candidate, kb=linker.kb.fingerprint)
    assert known.concept.names[0] == known.preferred_name == "Aspirin"
    assert candidate.preferred_name == ""
    # Rules may take ids from elsewhere.
    pig = Candidate("NCBIGene:397208", 0.5, "LALBA", "exact", kb=linker.kb.fingerprint)
    assert pig.concept == Concept("NCBIGene:397208", ("LALBA",))
    assert pig.preferred_name == "LALBA" and pig.xrefs == ()

"""`bioel_linker` by itself: behind an entity ruler, without training."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span
from tiny import LINKER, VOCABULARY, blank, ents, examples, linking_nlp, links, with_entity

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.store import KnowledgeBase
from spacy_bioel.types import AnnotatedText


def test_three_lines_link_entities(kb_folder: Path) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "DISEASE", "pattern": "heart attack"}])
    nlp.add_pipe("bioel_linker", config={"kb": str(kb_folder)})
    (entity,) = nlp("He had a heart attack.").ents
    assert (entity.text, entity.label_, entity.kb_id_) == (
        "heart attack",
        "DISEASE",
        "MESH:D009203",
    )
    assert (entity._.cui, entity._.cuis) == ("MESH:D009203", ("MESH:D009203",))
    assert [(c.id, c.name, c.evidence) for c in entity._.candidates] == [
        ("MESH:D009203", "heart attack", "exact")
    ]


@pytest.mark.parametrize(
    ("mention", "cui"),
    [
        ("Heart  attack", "MESH:D009203"),
        ("heart attacks", "MESH:D009203"),
        ("anaemia", "MESH:D000740"),
        ("Parkinson's disease", "MESH:D010300"),
        ("17β-estradiol", "MESH:D004958"),
        ("cold", "MESH:D003080"),  # a homonym: at equal scores the lower id
        ("gizmo", None),
        ("+", None),
    ],
)
def test_mentions(kb_folder: Path, mention: str, cui: str | None) -> None:
    nlp = linking_nlp(kb_folder)
    (entity,) = nlp(with_entity(nlp, f"With {mention} now", mention)).ents
    assert (entity.text, entity._.cui, entity.kb_id_) == (mention, cui, cui or "NIL")


def test_a_homonym_keeps_both_candidates(kb_folder: Path) -> None:
    doc = linking_nlp(kb_folder, ["cold"])("a cold")
    first, second = doc.ents[0]._.candidates
    assert (first.id, second.id) == ("MESH:D003080", "MESH:D003139")
    assert first.score == second.score


def test_label_types_decide_between_homonyms(kb_folder: Path) -> None:
    nlp = linking_nlp(kb_folder, ["cold"], label_types={"Thing": ["Disease"]})
    doc = nlp("a cold")
    assert ents(doc) == [("cold", "MESH:D003139")]
    assert [c.id for c in doc.ents[0]._.candidates] == ["MESH:D003139"]


def test_label_types_of_other_labels(kb_folder: Path) -> None:
    nlp = linking_nlp(kb_folder, ["aspirin"], label_types={"Other": ["Disease"]})
    assert ents(nlp("an aspirin")) == [("aspirin", "MESH:D001241")]
    nlp = linking_nlp(kb_folder, ["aspirin"], label_types={"Thing": ["Disease"]})
    assert ents(nlp("an aspirin")) == [("aspirin", "NIL")]


@pytest.mark.parametrize(("threshold", "cui"), [(0.0, "MESH:D001241"), (0.9999, "NIL")])
def test_below_the_threshold_is_nil(kb_folder: Path, threshold: float, cui: str) -> None:
    doc = linking_nlp(kb_folder, ["aspirin"], nil_threshold=threshold)("an aspirin")
    assert ents(doc) == [("aspirin", cui)]
    assert doc.ents[0]._.candidates[0].id == "MESH:D001241"


def test_max_candidates_and_weights(kb_folder: Path) -> None:
    assert len(linking_nlp(kb_folder, ["cold"], max_candidates=1)("cold").ents[0]._.candidates) == 1
    doc = linking_nlp(kb_folder, ["cold"], weights={"bias": -99.0})("cold")
    assert doc.ents[0]._.cui is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Acute kidney injury (AKI). AKI again.",
            [("AKI", "MESH:D058186"), ("AKI", "MESH:D058186")],
        ),
        ("AKI (acute kidney injury).", [("AKI", "MESH:D058186")]),
        ("AKI without a definition.", [("AKI", "NIL")]),
    ],
)
def test_abbreviations_of_the_document(
    kb_folder: Path, text: str, expected: list[tuple[str, str]]
) -> None:
    assert ents(linking_nlp(kb_folder, ["AKI"])(text)) == expected


def test_abbreviations_can_be_left_alone(kb_folder: Path) -> None:
    nlp = linking_nlp(kb_folder, ["AKI"], abbreviations=False)
    assert ents(nlp("Acute kidney injury (AKI)."))[0] == ("AKI", "NIL")


@pytest.fixture
def scispacy_like() -> Iterator[None]:
    """The extensions that scispacy's abbreviation detector registers."""
    Doc.set_extension("abbreviations", default=[])
    Span.set_extension("long_form", default=None)
    yield
    Doc.remove_extension("abbreviations")
    Span.remove_extension("long_form")


def test_abbreviations_of_another_detector(kb_folder: Path, scispacy_like: None) -> None:
    nlp = linking_nlp(kb_folder, ["HF"])
    doc = nlp.make_doc("HF as in the title")
    doc[0:1]._.long_form = nlp.make_doc("heart failure")[:]
    doc._.abbreviations = [doc[0:1]]
    assert ents(nlp(doc)) == [("HF", "MESH:D006333")]
    # Without a finding of the other detector our own is asked.
    assert ents(nlp("Heart failure (HF)")) == [("HF", "MESH:D006333")]


def test_entities_keep_what_the_ruler_gave_them(kb_folder: Path) -> None:
    nlp = linking_nlp(kb_folder)
    ruler = nlp.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "Drug", "pattern": "aspirin", "id": "ASA"}])
    doc = nlp("aspirin or placebo")
    assert [(e.label_, e.ent_id_, e.kb_id_) for e in doc.ents] == [("Drug", "ASA", "MESH:D001241")]
    assert [t.ent_iob_ for t in doc] == ["B", "O", "O"]


@pytest.mark.parametrize("mentions", ["auto", "spans"])
def test_overlapping_spans_are_all_linked(kb_folder: Path, mentions: str) -> None:
    nlp = linking_nlp(kb_folder, mentions=mentions)
    doc = nlp.make_doc("acute kidney failure")
    doc.spans["bioel"] = [
        Span(doc, 0, 3, label="Disease"),
        Span(doc, 1, 3, label="Disease"),
        Span(doc, 1, 3, label="Sign"),
    ]
    nlp(doc)
    assert links(doc) == [
        ("acute kidney failure", "MESH:D058186"),
        ("kidney failure", "MESH:D051437"),
        ("kidney failure", "MESH:D051437"),
    ]
    assert doc.ents == ()


def test_other_span_groups(kb_folder: Path) -> None:
    nlp = linking_nlp(kb_folder, mentions="spans", spans_key="mine")
    doc = nlp.make_doc("an aspirin")
    doc.spans["mine"] = [Span(doc, 1, 2, label="Drug")]
    assert links(nlp(doc), "mine") == [("aspirin", "MESH:D001241")]
    assert "bioel" not in doc.spans


def test_entities_beside_a_detectors_spans(kb_folder: Path) -> None:
    nlp = linking_nlp(kb_folder, ["aspirin"], mentions="ents")
    doc = nlp.make_doc("aspirin or morphine")
    doc.spans["bioel"] = [Span(doc, 2, 3, label="Drug")]
    assert ents(nlp(doc)) == [("aspirin", "MESH:D001241")]
    assert links(doc) == [("aspirin", "MESH:D001241")]


@pytest.mark.parametrize("text", ["", "  \n", "x", "Nothing to see."])
def test_no_mentions(kb_folder: Path, text: str) -> None:
    doc = linking_nlp(kb_folder, ["aspirin"])(text)
    assert links(doc) == [] and doc.ents == () and "bioel" in doc.spans


def test_a_batch_gives_what_its_documents_give_alone(kb_folder: Path) -> None:
    nlp = linking_nlp(kb_folder, ["cold", "AKI", "anaemia"])
    texts = ["cold", "", "anaemia and AKI", "Acute kidney injury (AKI)", "cold cold"]
    assert [ents(doc) for doc in nlp.pipe(texts)] == [
        [("cold", "MESH:D003080")],
        [],
        [("anaemia", "MESH:D000740"), ("AKI", "NIL")],
        [("AKI", "MESH:D058186")],
        [("cold", "MESH:D003080"), ("cold", "MESH:D003080")],
    ]
    assert [ents(nlp(text)) for text in texts] == [ents(doc) for doc in nlp.pipe(texts)]


# -- Saving, and what can be wrong -----------------------------------------------------------------


def test_saved_with_its_knowledge_base(kb_folder: Path, tmp_path: Path) -> None:
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


def test_saved_without_its_knowledge_base(kb_folder: Path, tmp_path: Path) -> None:
    linking_nlp(kb_folder, ["aspirin"], include_kb=False).to_disk(tmp_path / "m")
    assert not (tmp_path / "m" / "bioel_linker" / "kb").exists()
    assert ents(spacy.load(tmp_path / "m")("aspirin")) == [("aspirin", "MESH:D001241")]


def test_saved_without_any_knowledge_base(tmp_path: Path) -> None:
    nlp = blank()
    nlp.add_pipe("bioel_linker")
    nlp.to_disk(tmp_path / "m")
    with pytest.raises(BioelError, match=r"\[B055\].*'bioel_linker'"):
        _ = spacy.load(tmp_path / "m").get_pipe("bioel_linker").kb


def test_the_knowledge_base_of_a_saved_pipeline_is_missing(kb_folder: Path, tmp_path: Path) -> None:
    linking_nlp(kb_folder).to_disk(tmp_path / "m")
    shutil.rmtree(tmp_path / "m" / "bioel_linker" / "kb")
    with pytest.raises(BioelError, match=r"\[B056\].*kb is missing"):
        spacy.load(tmp_path / "m")


@pytest.mark.parametrize("pipe", ["bioel_mentions", "bioel_linker"])
def test_a_file_of_a_saved_pipe_is_missing(trained_folder: Path, tmp_path: Path, pipe: str) -> None:
    shutil.copytree(trained_folder, tmp_path / "m")
    (tmp_path / "m" / pipe / "model.safetensors").unlink()
    with pytest.raises(BioelError, match=r"\[B042\].*model.safetensors is missing"):
        spacy.load(tmp_path / "m")


def test_no_knowledge_base() -> None:
    nlp = blank()
    nlp.add_pipe("bioel_linker", name="mine")
    doc = with_entity(nlp, "aspirin", "aspirin")
    with pytest.raises(BioelError, match=r"\[B055\].*'mine'.*bioel kb build"):
        nlp(doc)


def test_a_wrong_folder(tmp_path: Path) -> None:
    with pytest.raises(BioelError, match=r"\[B020\]"):
        linking_nlp(tmp_path, ["aspirin"])("aspirin")


def test_unknown_mentions(kb_folder: Path) -> None:
    with pytest.raises(BioelError, match=r"\[B054\].*'spams'"):
        linking_nlp(kb_folder, mentions="spams")


def test_settings_of_a_wrong_type_or_name(kb_folder: Path) -> None:
    with pytest.raises(ValueError, match="nil_threshold"):
        linking_nlp(kb_folder, nil_threshold="high")
    with pytest.raises(ValueError, match="extra fields|unexpected|not permitted|nil_treshold"):
        linking_nlp(kb_folder, nil_treshold=0.5)


# -- Vectors and encoders --------------------------------------------------------------------------


@pytest.fixture
def encoded_folder(kb_folder: Path, tmp_path: Path, trained: Language) -> Path:
    """The knowledge base with vectors of the trained pipeline's encoder."""
    shutil.copytree(kb_folder, tmp_path / "encoded")
    kb = KnowledgeBase.open(tmp_path / "encoded")
    seen: list[int] = []
    trained.get_pipe("bioel_linker").encode_kb(kb, progress=seen.append)
    assert sum(seen) == kb.n_names == 75
    return tmp_path / "encoded"


def test_vectors_of_the_same_encoder(trained: Language, encoded_folder: Path) -> None:
    text = "Dyskinesia under levodopa/carbidopa."
    before = links(trained(text))
    trained.get_pipe("bioel_linker").set_kb(encoded_folder)
    assert links(trained(text)) == before
    assert [cui for _, cui in before] == ["MESH:D004409", "MESH:D007980", "MESH:D002230"]


def test_vectors_of_another_encoder(
    kb_folder: Path, encoded_folder: Path, texts: list[AnnotatedText]
) -> None:
    nlp = blank()
    linker = nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(kb_folder)})
    nlp.config["initialize"]["components"]["bioel_linker"] = VOCABULARY
    data = examples(nlp, texts[:2])
    nlp.initialize(lambda: data)
    linker.set_kb(encoded_folder)
    doc = with_entity(nlp, "aspirin", "aspirin")
    with pytest.raises(BioelError, match=r"\[B031\].*bioel kb encode"):
        nlp(doc)


def test_only_a_trained_linker_encodes(kb: KnowledgeBase, kb_folder: Path) -> None:
    with pytest.raises(BioelError, match=r"\[B053\].*'bioel_linker'"):
        linking_nlp(kb_folder).get_pipe("bioel_linker").encode_kb(kb)


def test_only_an_initialized_linker_learns(kb_folder: Path, texts: list[AnnotatedText]) -> None:
    nlp = linking_nlp(kb_folder)
    with pytest.raises(BioelError, match=r"\[B053\]"):
        nlp.get_pipe("bioel_linker").update(examples(nlp, texts[:1]))


def test_the_fingerprint_is_that_of_the_encoder(trained: Language, trained_folder: Path) -> None:
    first = trained.get_pipe("bioel_linker").fingerprint
    assert len(first) == 16
    assert spacy.load(trained_folder).get_pipe("bioel_linker").fingerprint == first
    trained.get_pipe("bioel_linker").update(
        examples(trained, [AnnotatedText("1", "x")]), sgd=trained.create_optimizer()
    )
    assert trained.get_pipe("bioel_linker").fingerprint != first

"""`bioel_names` finds names by itself, for a linker without detector, and beside other mentions."""

import pickle
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from tiny import blank, needs

import spacy_bioel
from spacy_bioel.doc import get_links
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

CONCEPTS = (
    Concept("X:1", ("Seizure", "Convulsion"), ("Sign",)),
    Concept("X:2", ("Common cold", "cold"), ("Disease",)),
    Concept("X:3", ("Chill", "cold"), ("Sign",)),
    Concept("X:4", ("Femoral bowing",), ("Sign",)),
)
TEXT = "Convulsions, a common cold and femoral bowings (FB), then a seizur. FB again."
FOUND = ["Convulsions", "common cold", "femoral bowings", "FB", "seizur", "FB"]
OTHER = "TP53, a seizure and bowings."


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("names") / "kb"
    build_kb(CONCEPTS, folder)
    return str(folder)


def with_names(kb: str, **settings: Any) -> Language:
    """A pipeline that links names, and entities of a ruler."""
    nlp = blank()
    patterns = [{"label": "GENE", "pattern": "TP53"}, {"label": "Bone", "pattern": "bowings"}]
    nlp.add_pipe("entity_ruler").add_patterns(patterns)
    nlp.add_pipe("bioel_names", config=settings)
    nlp.add_pipe("bioel_linker", config={"kb": kb, "evidence": {"dense": False}})
    return nlp


def spans(doc: Doc) -> list[tuple[str, str, str]]:
    return [(span.text, span.label_, span.kb_id_) for span in doc.spans["bioel"]]


def test_alone(kb):
    nlp = blank()
    names = nlp.add_pipe("bioel_names", config={"kb": kb})
    doc = nlp(TEXT)
    assert spans(doc) == [(text, "", "") for text in FOUND]
    assert not doc.ents
    names.cfg["dictionary"]["typos"] = False
    assert [text for text, *_ in spans(nlp(TEXT))] == [text for text in FOUND if text != "seizur"]
    names.cfg["kb"] = "starter:species"
    assert [text for text, *_ in spans(nlp("A common cold in Mus musculus."))] == ["Mus musculus"]
    with pytest.raises(BioelError, match=r"\[B082\] The 'bioel_names' pipe has no knowledge base"):
        blank().add_pipe("bioel_names")(nlp.make_doc(TEXT))


def test_before_a_linker_as_its_dictionary(kb, tmp_path):
    inside = blank()
    inside.add_pipe("bioel_linker", config={"kb": kb, "mentions": "dictionary"})
    links = get_links(inside(TEXT))
    assert [link.ids for link in links] == [
        ("X:1",),
        ("X:2",),
        ("X:4",),
        ("X:4",),
        ("X:1",),
        ("X:4",),
    ]
    nlp = blank()
    nlp.add_pipe("bioel_names")
    nlp.add_pipe("bioel_linker", config={"kb": kb})
    assert get_links(nlp(TEXT)) == links
    nlp.to_disk(tmp_path)
    assert {path.name for path in tmp_path.glob("bioel_*")} == {"bioel_linker"}
    assert get_links(spacy.load(tmp_path)(TEXT)) == links
    report = spacy_bioel.explain(nlp, "A common cold.")
    assert [(c.text, c.name, c.is_mention) for c in report.considered][0] == (
        "common cold", "Common cold", True
    )  # fmt: skip


@pytest.mark.parametrize("set_ents", [True, "links"])
def test_beside_entities(kb, set_ents):
    nlp = with_names(kb)
    linker = nlp.get_pipe("bioel_linker")
    linker.cfg["set_ents"] = set_ents
    doc = nlp(OTHER)
    found, linked = [("TP53", "NIL"), ("bowings", "NIL")], ("seizure", "X:1")
    assert sorted((text, id) for text, _, id in spans(doc)) == sorted([*found, linked])
    in_ents = sorted((ent.text, ent.kb_id_) for ent in doc.ents)
    assert in_ents == sorted([*found, linked] if set_ents == "links" else found)
    links = get_links(doc)
    for again in (linker(doc), linker(doc.copy()), *([nlp(doc)] if set_ents is True else [])):
        assert get_links(again) == links
    alone = [get_links(nlp(text)) for text in (TEXT, OTHER)]
    assert [get_links(doc) for doc in nlp.pipe([TEXT, OTHER])] == alone


def test_other_spans_and_linkers(kb):
    nlp = with_names(kb, names="unambiguous")
    with pytest.raises(BioelError, match="B084"):
        nlp(TEXT)
    linker = nlp.get_pipe("bioel_linker")
    linker.cfg["label_types"] = {"Sign": ["Sign"], "Bone": []}
    assert [text for text, *_ in spans(nlp(OTHER))] == ["TP53", "seizure", "bowings"]
    nlp.add_pipe("bioel_names", name="late", config={"kb": kb})
    with pytest.raises(BioelError, match=r"\[B083\] The 'late' pipe comes after 'bioel_names'"):
        nlp(TEXT)
    nlp.get_pipe("late").cfg["spans_key"] = "late"
    nlp.add_pipe("bioel_linker", name="last", config={"kb": "starter:species", "spans_key": "late"})
    nlp.get_pipe("late").cfg["kb"] = ""
    doc = nlp("Seizures in Mus musculus.")
    assert [(s.text, s.kb_id_) for s in doc.spans["late"]] == [("Mus musculus", "NCBITaxon:10090")]


def test_taken_over_from_another_pipeline(kb):
    nlp = blank()
    nlp.add_pipe("bioel_names", source=with_names(kb))
    with pytest.raises(BioelError, match="B082"):
        nlp(TEXT)
    nlp.add_pipe("bioel_linker", config={"kb": kb})
    assert [link.ids for link in get_links(nlp(OTHER))] == [("X:1",)]
    nlp.get_pipe("bioel_names").cfg["names"] = "some"
    with pytest.raises(BioelError, match=r"names = 'some': expected"):
        nlp(TEXT)


def test_with_worker_processes(kb):
    nlp, texts = with_names(kb), [TEXT, OTHER, TEXT]
    # Processes that are spawned get the pipes as one pickle.
    names, linker = pickle.loads(pickle.dumps([pipe for _, pipe in nlp.pipeline[1:]]))
    assert names.linker is linker
    assert get_links(linker(names(nlp.make_doc("A seizure.")))) == get_links(nlp("A seizure."))
    linked = [get_links(doc) for doc in nlp.pipe(texts, n_process=2, batch_size=1)]
    assert linked == [get_links(doc) for doc in nlp.pipe(texts)]


@pytest.mark.parametrize("preset", ["", pytest.param("clinical", marks=needs("clinical"))])
def test_in_the_starter(preset):
    texts = [
        "SOB and HTN in patients with NSCLC. Radiocontrast nephropathy after cisplatin.",
        "KRAS G12C and TP53 in mice; metformin for T2DM, and acute kidney injury (AKI). AKI again.",
    ]
    inside, nlp = (spacy_bioel.load(preset=preset or None) for _ in range(2))
    nlp.add_pipe("bioel_names", before="bioel_linker", config={"names": "unambiguous"})
    nlp.get_pipe("bioel_linker").cfg["mentions"] = "spans"
    for doc, other in zip(inside.pipe(texts), nlp.pipe(texts), strict=True):
        assert get_links(other) == get_links(doc)
        assert other.spans["bioel"].attrs["scores"] == doc.spans["bioel"].attrs["scores"]

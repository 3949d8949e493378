"""A linker with several knowledge bases: labels, storage, training, equivalents."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
from cases import table
from kb_files import made_kb
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from tiny import LINKER, VOCABULARY, blank, linking_nlp, train

from spacy_bioel.doc import get_links
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.fusion import have_likelier_equivalents, rank
from spacy_bioel.types import AnnotatedText, Candidate, Concept, Mention

TEXT = "Fever, cough and malaria."
PATTERNS = {"fever": "Disease", "cough": "Sign", "malaria": "Thing"}
SMALL = {"dim": 16, "blocks": 1, "filters": 4}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("kbs")
    diseases = [
        Concept("D:1", ("Fever",), xrefs=("U:1",)),
        Concept("D:2", ("Cough disease", "Cough")),
        Concept("B:1", ("Malaria", "Paludism"), xrefs=("U:3",)),
    ]
    signs = [
        Concept("S:1", ("Fever", "Pyrexia")),
        Concept("S:2", ("Cough",), xrefs=("U:2",)),
        Concept("B:1", ("Malaria", "Ague"), xrefs=("N:3",)),
    ]
    build_kb(diseases, home / "diseases")
    build_kb(signs, home / "signs")
    return {"Disease": str(home / "diseases"), "Sign": str(home / "signs")}


def linking(kb: Any, patterns: dict[str, str] = PATTERNS, **settings: Any) -> Language:
    nlp = blank()
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns(
        [{"label": label, "pattern": [{"LOWER": word}]} for word, label in patterns.items()]
    )
    nlp.add_pipe("bioel_linker", config={"kb": kb, "model": SMALL} | settings)
    return nlp


def found(doc: Doc) -> list[tuple[str, list[str]]]:
    return [(ent.text, [c.id for c in ent._.candidates]) for ent in doc.ents]


def test_concepts_of_different_vocabularies_with_the_same_name_do_not_compete(folders):
    nlp = linking(list(folders.values()), {"fever": "Thing"}, evidence={"dense": False})
    (fever,) = nlp("Fever.").ents
    assert [c.id for c in fever._.candidates] == ["D:1", "S:1"]
    assert fever._.candidates[0].score == fever._.candidates[1].score
    assert fever.kb_id_ == "D:1"


EXPECTED = [("Fever", ["D:1"]), ("cough", ["S:2"]), ("malaria", ["B:1"])]


@pytest.mark.filterwarnings(r"ignore:\[W321\]")
def test_labels_have_the_candidates_of_their_knowledge_base_and_others_of_all(folders):
    assert found(linking(folders)(TEXT)) == EXPECTED
    of_all = linking(folders, dict.fromkeys(PATTERNS, "Thing"))(TEXT)
    listed = linking(list(folders.values()))(TEXT)
    for doc in (of_all, listed):
        assert [(text, set(ids)) for text, ids in found(doc)] == [
            ("Fever", {"D:1", "S:1"}),
            ("cough", {"D:2", "S:2"}),
            ("malaria", {"B:1"}),
        ]
        scores = [c.score for c in doc.ents[0]._.candidates]
        assert scores[0] == scores[1] < 0.5


def test_with_a_label_as_with_that_knowledge_base_alone(folders):
    joined, alone = linking(folders), linking(folders["Disease"])
    for text in ("Fever.", "Fevers and fever"):
        pairs = zip(joined(text).ents, alone(text).ents, strict=True)
        for ent, other in pairs:
            assert ent._.candidates == other._.candidates != ()


def test_an_id_in_both_is_linked_by_the_names_of_both(folders):
    nlp = linking(list(folders.values()), {"paludism": "Thing", "ague": "Thing"})
    doc = nlp("Ague or paludism")
    assert [ent._.cui for ent in doc.ents] == ["B:1", "B:1"]
    assert doc.ents[0]._.candidates[0].xrefs == ("U:3", "N:3")


def test_saved_and_loaded_with_all_of_them_or_with_their_folders(folders, tmp_path):
    linking(folders).to_disk(tmp_path / "saved")
    home = tmp_path / "saved" / "bioel_linker"
    assert sorted(path.name for path in home.glob("kb*")) == ["kb.0", "kb.1"]
    (tmp_path / "saved").rename(tmp_path / "moved")
    loaded = spacy.load(tmp_path / "moved")
    in_memory = linking("")
    in_memory.get_pipe("bioel_linker").from_bytes(loaded.get_pipe("bioel_linker").to_bytes())
    for number, nlp in enumerate((loaded, in_memory)):
        assert found(nlp(TEXT)) == EXPECTED
        nlp.to_disk(tmp_path / str(number))
        assert found(spacy.load(tmp_path / str(number))(TEXT)) == EXPECTED
    linking(folders, include_kb=False).to_disk(tmp_path / "without")
    loaded = spacy.load(tmp_path / "without")
    assert loaded.get_pipe("bioel_linker").cfg["kb"] == folders
    assert found(loaded(TEXT)) == EXPECTED
    assert list((tmp_path / "without").glob("**/kb*")) == []


def test_another_set_of_them(folders):
    nlp = linking(folders)
    linker = nlp.get_pipe("bioel_linker")
    linker.set_kb(folders["Sign"])
    assert found(nlp(TEXT))[0] == ("Fever", ["S:1"])
    linker.set_kb({"Disease": folders["Sign"], "Sign": folders["Disease"]})
    assert [ids for _, ids in found(nlp(TEXT))[:2]] == [["S:1"], ["D:2"]]
    parts = [KnowledgeBase.open(folder) for folder in folders.values()]
    linker.set_kb(JoinedKnowledgeBase(parts))
    assert linker.cfg["kb"] == list(folders.values())
    linker.set_kb({"Disease": folders["Sign"]})  # a single one is not joined
    assert linker.cfg["kb"] == {"Disease": folders["Sign"]}


def test_names_in_the_text_have_the_label_of_their_knowledge_base(folders):
    nlp = linking_nlp(folders, mentions="dictionary", model=SMALL)
    doc = nlp("Paludism and pyrexia")
    found = [(s.text, s.label_, s._.cui) for s in doc.spans["bioel"]]
    assert found == [("Paludism", "Disease", "B:1"), ("pyrexia", "Sign", "S:1")]


def test_names_of_several_knowledge_bases_do_not_compete(folders):
    def scores(kb: Any) -> list[tuple[str, float]]:
        nlp = linking_nlp(kb, mentions="dictionary", model=SMALL)
        doc = nlp("Fever, cough, malaria and fever.")
        return [(c.id, c.score) for c in doc.spans["bioel"][0]._.candidates]

    ((first, score),) = scores(folders["Disease"])
    assert first == "D:1" and score > 0.9
    both = scores(list(folders.values()))
    assert sorted(id for id, _ in both) == ["D:1", "S:1"]
    assert both[0][1] == both[1][1] > 0.9


@pytest.mark.parametrize("kb", [[], {}, ["a", 3], {"Disease": None}])
def test_settings_without_a_knowledge_base(kb, folders):
    linker = linking(folders).get_pipe("bioel_linker")
    with pytest.raises(BioelError, match=r"\[B321\] kb = "):
        linker.set_kb(kb)
    linker.cfg["kb"] = kb
    with pytest.raises(BioelError, match=r"\[B270\] .*\nkb = "):
        linker.from_bytes(linker.to_bytes(exclude=["kb"]))


def text(number: int) -> AnnotatedText:
    ids = {"fever": "D:1", "cough": "S:2", "malaria": "B:1"}
    mentions = tuple(
        Mention(at, at + len(word), PATTERNS[word], (ids[word],))
        for word in ids
        if (at := TEXT.lower().index(word)) >= 0
    )
    return AnnotatedText(str(number), TEXT, mentions)


@pytest.fixture
def joined_nlp(folders):
    nlp = blank()
    nlp.add_pipe("bioel_linker", config=LINKER | {"kb": folders})
    nlp.config["initialize"]["components"]["bioel_linker"] = VOCABULARY
    train(nlp, [text(1), text(2)], updates=7)
    return nlp


def test_tuned_as_any_other(joined_nlp):
    fit = pytest.importorskip("spacy_bioel.plugins.evaluation.fit")
    linker = joined_nlp.get_pipe("bioel_linker")
    development = fit.gather_development(linker, fit.gold_docs(joined_nlp, [text(1), text(2)]))
    assert sorted(zip(development.documents, development.strings, strict=True)) == [
        (number, word) for number in (0, 1) for word in ("cough", "fever", "malaria")
    ]
    assert all(right.any() for right in development.right)
    # Features are those of linking: a label is compared only with the names of its knowledge base.
    alone = linker.generator.parts[0].candidate_table(["fever"]).features
    of_fever = development.rows[development.strings.index("fever")]
    assert (development.features[of_fever] == alone).all()


def test_trained_as_any_other(joined_nlp, tmp_path):
    nlp = joined_nlp
    linker = nlp.get_pipe("bioel_linker")
    nlp.add_pipe("entity_ruler", first=True, source=linking(""))
    assert [ent._.cui for ent in nlp(TEXT).ents] == ["D:1", "S:2", "B:1"]
    encoded = linker.encode_kb(linker.kb)
    assert encoded.encoded + encoded.copied == sum(part.n_names for part in linker.kb.parts)
    nlp.to_disk(tmp_path / "trained")
    loaded = spacy.load(tmp_path / "trained")
    assert found(loaded(TEXT)) == found(nlp(TEXT))


def test_cross_references_are_read_where_the_knowledge_base_is(folders):
    nlp = linking(folders["Disease"])
    doc = nlp(TEXT)
    [fever] = pickle.loads(pickle.dumps(doc.ents[0]._.candidates))
    assert (fever.id, fever.xrefs) == ("D:1", ("U:1",))
    data = DocBin(docs=[doc], store_user_data=True).to_bytes()
    stored = next(DocBin().from_bytes(data).get_docs(nlp.vocab))
    assert [link.candidates[0].xrefs for link in get_links(stored)] == [("U:1",), (), ("U:3",)]
    assert Candidate("D:0", 1.0, kb=fever.kb).xrefs == ()
    with pytest.raises(BioelError, match=r"\[B320\] .*fingerprint 0123"):
        _ = Candidate("D:1", 1.0, kb="0123").xrefs
    with pytest.raises(BioelError, match=r"\[B320\] .*fingerprint unknown"):
        _ = Candidate("D:1", 1.0).xrefs


def test_a_second_linker_may_leave_the_entities_to_the_first(folders):
    nlp = linking(folders["Disease"])
    config = {"kb": folders["Sign"], "spans_key": "signs", "set_ents": False, "model": SMALL}
    nlp.add_pipe("bioel_linker", name="signs", config=config)
    doc = nlp(TEXT)
    assert [ent._.cui for ent in doc.ents] == ["D:1", "D:2", "B:1"]
    assert [ent._.candidates[0].xrefs for ent in doc.ents] == [("U:1",), (), ("U:3",)]
    signs = doc.spans["signs"]
    assert [span._.cui for span in signs] == ["S:1", "S:2", "B:1"]
    assert [span._.candidates[0].xrefs for span in signs] == [(), ("U:2",), ("N:3",)]


def test_a_knowledge_base_for_one_label_is_not_used_for_others(folders, tmp_path):
    """As a setting, assigned later, saved, as bytes, and in a worker process."""
    alone = {"Disease": folders["Disease"]}
    expected = [("Fever", ["D:1"]), ("cough", []), ("malaria", [])]
    nlp, other = linking(alone), linking(folders)
    other.get_pipe("bioel_linker").set_kb(alone)
    nlp.to_disk(tmp_path / "saved")
    loaded = spacy.load(tmp_path / "saved")
    copy = linking("")
    copy.get_pipe("bioel_linker").from_bytes(nlp.get_pipe("bioel_linker").to_bytes())
    pickled = linking("")
    pickled._components[-1] = pickle.loads(pickle.dumps(nlp._components[-1]))
    for each in (nlp, other, loaded, copy, pickled):
        assert found(each(TEXT)) == expected
    assert other.get_pipe("bioel_linker").cfg["kb"] == alone
    other.get_pipe("bioel_linker").set_kb(folders["Disease"])
    assert found(other(TEXT))[1:] == [("cough", ["D:2"]), ("malaria", ["B:1"])]


MALARIA = Concept("M:1", ("Malaria",), xrefs=("UMLS:C24530",))
OTHERS = [Concept(f"M:{i}", (name,)) for i, name in ((6, "Cough"), (7, "Fever"))]
# The same disease in another vocabulary, and another one of that name.
SAME = Concept("H:1", ("Malaria",), xrefs=("SCTID:61", "umls_cui:C24530"))
ANOTHER = Concept("H:1", ("Malaria",), xrefs=("UMLS:C999",))


def built(folder: Path, *concepts: Concept) -> str:
    build_kb(concepts, folder)
    return str(folder)


def candidates(kb: Any, mentions: str) -> list[tuple[str, float]]:
    doc = linking(kb, {"malaria": "Thing"}, mentions=mentions)("Cough, fever or malaria.")
    (span,) = [span for span in doc.spans["bioel"] if span.text == "malaria"]
    return [(c.id, c.score) for c in span._.candidates]


@pytest.mark.parametrize("mentions", ["ents", "dictionary"])
def test_their_scores_are_those_that_one_alone_has(mentions, tmp_path):
    mine = built(tmp_path / "mine", MALARIA, *OTHERS)
    ((_, alone),) = candidates(mine, mentions)
    joined = [mine, built(tmp_path / "same", SAME)]
    merged = built(tmp_path / "merged", MALARIA, *OTHERS, SAME)
    for both in (joined, merged):
        (first, one), (second, other) = candidates(both, mentions)
        assert {first, second} == {"M:1", "H:1"}
        assert one == other > 0.95 * alone > 0.85
    # The same id in two knowledge bases is one concept.
    ((_, twice),) = candidates([mine, built(tmp_path / "again", MALARIA)], mentions)
    assert twice > 0.95 * alone
    # Homonyms in one knowledge base compete.
    homonyms = candidates(built(tmp_path / "homonyms", MALARIA, *OTHERS, ANOTHER), mentions)
    assert [score < 0.5 for _, score in homonyms] == [True, True]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> KnowledgeBase:
    concepts = [
        Concept("A:1", ("a",), xrefs=("MSH:D1", "ICD:7")),
        Concept("A:2", ("b",), xrefs=("ICD:7",)),
        Concept("B:1", ("c",), xrefs=("icd:7",)),
        Concept("C0001", ("d",), xrefs=()),
        Concept("D:1", ("e",), xrefs=("UMLS:C0001",)),
        Concept("MESH:D1", ("f",), xrefs=()),
    ]
    return made_kb(tmp_path_factory.mktemp("kb"), concepts)


@table("equivalent concepts")
def test_which_concepts_are_equivalent(vocabulary, ids, expected):
    concepts = vocabulary.find_all(ids)
    shares = np.linspace(0.5, 0.1, len(ids))  # the first is the most probable
    groups = np.zeros(len(ids), dtype=np.int64)
    assert have_likelier_equivalents(vocabulary, concepts, shares, groups).tolist() == expected
    # In another group, or hardly likely, nothing is repeated.
    assert not have_likelier_equivalents(vocabulary, concepts, shares, np.arange(len(ids))).any()
    assert not have_likelier_equivalents(vocabulary, concepts, shares / 100, groups).any()


def test_only_the_most_probable_equivalent_counts(vocabulary):
    concepts = vocabulary.find_all(["A:1", "MESH:D1", "D:1", "A:1", "A:2"])
    scores = np.log([3.0, 1.0, 1.0, 3.0, 1.0])
    groups = np.array([0, 0, 0, 1, 1])
    shares = rank(vocabulary, concepts, scores, groups, top=9)[1]
    # Shares of 3 + 1 + 1 (NIL): the second is equivalent to the first. Same for the other group.
    assert shares.tolist() == pytest.approx([0.6, 0.2, 0.2, 0.6, 0.2])
    alone = rank(vocabulary, concepts[:3:2], scores[:3:2], groups[:3:2], top=9)[1]
    assert alone.tolist() == pytest.approx([0.6, 0.2])

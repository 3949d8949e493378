"""Names of a knowledge base are found in a text, as mentions of their own or beside a detector's.

What single texts are found to name is in cases.yml.
"""

from pathlib import Path

import pytest
from cases import Cases, ids_of, table
from kb_files import made_kb
from spacy.language import Language
from spacy.tokens import SpanGroup
from tiny import blank, linking_nlp, links

from spacy_bioel.dictionary.lookup import DictionaryLookup
from spacy_bioel.dictionary.written_forms import is_code_name
from spacy_bioel.doc import get_links
from spacy_bioel.explanation import Reasons, reason_of
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import add_concepts
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.report import explain
from spacy_bioel.settings import DictionarySettings
from spacy_bioel.text.normalize import are_forms_of_one_word
from spacy_bioel.text.sentences import expand_abbreviations, find_abbreviations, find_forms
from spacy_bioel.types import Concept

CASES = Cases(Path(__file__).with_name("cases.yml"))


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory) -> None:
    CASES.folder = tmp_path_factory.mktemp("dictionary")


@pytest.fixture(scope="module")
def lookup() -> DictionaryLookup:
    return DictionaryLookup(CASES.kb("names"))


@pytest.fixture
def adding() -> Language:
    """A linker that adds unambiguous names to the mentions of a detector."""
    return CASES.nlp("drugs")


def find(lookup: DictionaryLookup, text: str, **options: bool) -> list[tuple[str, str]]:
    doc = blank().make_doc(text)
    (found,) = lookup.find([doc], DictionarySettings(**options))
    return [(doc[start:end].text, found.names[start, end, ""]) for start, end, *_ in found.spans]


def test_names_of_many_words(tmp_path):
    long = " ".join(f"word{i}" for i in range(200))
    lookup = DictionaryLookup(made_kb(tmp_path / "kb", [Concept("X:1", (long,))]))
    assert find(lookup, f"The {long}, and") == [(long, long)]
    assert find(lookup, " ".join(long.split()[:199])) == []


@pytest.mark.parametrize("is_joined", [False, True])
def test_names_that_a_user_adds_are_found(tmp_path, is_joined):
    names = ("Fibrillation", "VT", "tension", "q")
    build_kb([Concept("X:1", names)], tmp_path / "kb", source="first")
    add_concepts(tmp_path / "kb", [Concept("X:2", ("AF", "drug", "z", "it"))], source="mine")
    kb = KnowledgeBase.open(tmp_path / "kb")
    lookup = DictionaryLookup(JoinedKnowledgeBase([kb, kb]) if is_joined else kb)
    text = "VT, AF, tension, drug, q, z, it"
    found = [name for _, name in find(lookup, text)]
    assert found == ["VT", "AF", "tension", "drug", "z", "it"]
    assert find(lookup, "vt, af, Q, Z, It") == []


def test_documents_do_not_depend_on_their_batch(lookup):
    texts = ["Seizure", "", "and palate. cleft", "cleft lip", "MS (multiple sclerosis)", "MS"]
    nlp = blank()
    docs = [nlp.make_doc(text) for text in texts]
    together = [(found.spans, found.names) for found in lookup.find(docs)]
    alone = [lookup.find([doc])[0] for doc in docs]
    assert together == [(found.spans, found.names) for found in alone]
    assert all(0.5 <= p <= 1 for spans, _ in together for *_, p in spans)
    assert lookup.find([]) == []


def test_the_pipe_finds_and_links(lookup):
    nlp = blank()
    linker = nlp.add_pipe(
        "bioel_linker", config={"kb": str(lookup.kb.path), "mentions": "dictionary"}
    )
    doc = nlp("Siezures and cleft lip and palate.")
    assert links(doc) == [
        ("Siezures", "X:00"),
        ("cleft lip", "X:09"),
        ("cleft lip and palate", "X:10"),
    ]
    assert [span.label_ for span in doc.spans["bioel"]] == ["names"] * 3
    linker.cfg["dictionary"] = {"typos": False}
    assert links(nlp("Siezures")) == []


@pytest.mark.parametrize(("n_below", "found"), [(101, []), (100, ["Cells"])])
def test_a_concept_above_most_others_is_not_a_mention(tmp_path, n_below, found):
    concepts = [Concept("X:0", ("cell",)), Concept("X:1", ("motile cell",), parents=("X:0",))]
    concepts += [Concept(f"X:1{i}", (f"a{i} cell",), parents=("X:1",)) for i in range(n_below - 1)]
    lookup = DictionaryLookup(made_kb(tmp_path / "kb", concepts))
    assert [text for text, _ in find(lookup, "Cells.")] == found
    assert [text for text, _ in find(lookup, "A motile cell.")] == ["motile cell"]


@table("reasons against names")
def test_reasons_against_names(lookup, text, reason):
    doc = blank().make_doc(text)
    (found,) = lookup.find([doc], DictionarySettings(exclude=("heart",)))
    (reasons := Reasons()).read(found)
    assert reason in {one.reason for one in reasons.considered(doc, found.spans)}


def test_names_found_with_an_ontology_have_a_label(tmp_path):
    """The type of the concept, or the name of the knowledge base: `doc.ents` takes them."""
    concepts = [Concept("X:1", ("aspirin",), ("Drug", "Thing")), Concept("X:2", ("fever",))]
    build_kb(concepts, tmp_path / "kb", source="mine.obo.gz")  # as within a pipeline
    build_kb([Concept("X:2", ("fever",))], tmp_path / "plain")
    for kb, expected in (("kb", ["Drug", "mine"]), ("plain", ["plain"])):
        nlp = linking_nlp(tmp_path / kb, mentions="dictionary")
        doc = nlp("Aspirin for fever.")
        doc.ents = list(doc.spans["bioel"])
        assert [ent.label_ for ent in doc.ents] == expected
        nlp.get_pipe("bioel_linker").cfg["nil_threshold"] = 1.0
        doc = nlp("Aspirin for fever.")
        assert [span.label_ for span in doc.spans["bioel"]] == expected


def test_a_name_of_two_concepts_is_nil_unless_the_document_uses_another_name_of_one(tmp_path):
    concepts = [Concept("X:1", ("Autism", "ASD")), Concept("X:2", ("Septal defect", "ASD"))]
    build_kb(concepts, tmp_path / "kb")
    nlp = linking_nlp(tmp_path / "kb", mentions="dictionary", evidence={"dense": False})
    assert get_links(nlp("ASD. Septal defect."))[0].ids == ("X:2",)
    link = get_links(nlp("ASD."))[0]
    assert link.ids == () and len({c.score for c in link.candidates}) == 1
    assert reason_of(link).startswith("NIL: ASD (X:1) and ASD (X:2) scored equally (0.")


@table("forms of one word")
def test_one_word_in_other_forms(pair, expected):
    assert are_forms_of_one_word(*pair.split()) is expected


def test_words_are_no_codes():
    words = ["Type 2 diabetes mellitus", "fever", "of", "Vector", "12", "a"]
    assert [word for word in words if is_code_name(word)] == []


@table("short forms that a text defines")
def test_short_forms_that_a_text_defines(text, expected):
    assert find_abbreviations(text) == expected


def test_where_short_forms_are():
    # A short form is not the end of another, and may be in the singular.
    assert find_forms("alpha-SMA, β-SMA, SMA and anti-SMA", ["SMA"]) == {
        "SMA": [(18, 21), (31, 34)]
    }
    forms = {"GCTs": "Giant cell tumors"}
    assert find_forms("GCTs or a GCT", forms) == {"GCTs": [(0, 4), (10, 13)]}
    assert expand_abbreviations("GCT", forms.get) == "Giant cell tumors"
    assert expand_abbreviations("GCT 3", forms.get) == "GCT 3"


def test_scores_of_the_detector_are_kept(adding):
    doc = CASES.doc("drugs", "Zorbanib and rubbish", {"rubbish": ["Chemical", 0.6]})
    assert adding(doc).spans["bioel"].attrs["scores"] == [1.0, 0.6]


def test_explain_says_why(adding):
    report = explain(adding, "Zorbanib, Quaxin, Zob; the disease.")
    reasons = {c.text: (c.is_mention, c.reason) for c in report.considered}
    assert reasons == {
        "Zorbanib": (True, "a name in the knowledge base that hardly ever means anything else"),
        "Quaxin": (False, "a name of Chemical and Disease"),
        "Zob": (False, "names of fewer than 4 characters have too many meanings"),
        "disease": (False, "annotators mark only 1% of such names as mentions"),
    }


def test_words_that_are_never_mentions(adding):
    doc = adding.make_doc("Zorbanib for blue lung\ndisease")
    attrs = {"scores": [], "exclude": ["zorbanib"]}  # as the detector writes them
    doc.spans["bioel"] = SpanGroup(doc, name="bioel", attrs=attrs)
    assert [(s.text, s.label_) for s in adding(doc).spans["bioel"]] == [
        ("blue lung\ndisease", "Disease")
    ]


def test_a_batch_gives_the_results_of_single_documents(adding):
    texts = ["Zorbanib.", "", "\n", "blue lung disease and Zorbanib", "blue", "lung disease"]

    assert [*map(ids_of, adding.pipe(texts))] == [ids_of(adding(text)) for text in texts]


def test_an_empty_knowledge_base(tmp_path):
    build_kb([Concept("X:1", ("Zorbanib",), ())], tmp_path / "kb")
    nlp = linking_nlp(tmp_path / "kb", mentions="spans+dictionary")
    with pytest.warns(UserWarning, match="W323"):
        assert not nlp("Zorbanib").spans["bioel"]  # no label is known

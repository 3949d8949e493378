"""Unambiguous names in a knowledge base become mentions, also where no pipe has found them."""

import pytest
from spacy.language import Language
from spacy.tokens import Doc, Span, SpanGroup
from tiny import blank, linking_nlp

from spacy_bioel.dictionary.unambiguous import annotation_rate
from spacy_bioel.kb.build import build_kb
from spacy_bioel.report import explain
from spacy_bioel.types import Concept

CONCEPTS = [
    Concept("X:1", ("Zorbanib", "Zorba-Ib mesylate"), ("Drug",)),
    Concept("X:2", ("blue lung disease",), ("Illness",)),
    Concept("X:3", ("Quaxin",), ("Drug",)),
    Concept("X:4", ("quaxin",), ("Illness",)),
    Concept("X:5", ("Zob",), ("Drug",)),
    Concept("X:6", ("disease",), ("Illness",)),
]

GENES = ["Zorbin", "flibber", "AIR", "Zorb7"]


@pytest.fixture(scope="module")
def nlp(tmp_path_factory) -> Language:
    folder = tmp_path_factory.mktemp("kb") / "kb"
    build_kb(CONCEPTS, folder)
    nlp = blank()
    config = {
        "kb": str(folder),
        "mentions": "spans+dictionary",
        "label_types": {"Chemical": ["Drug"], "Disease": ["Illness"]},
        "evidence": {"dense": False},
    }
    nlp.add_pipe("bioel_linker", config=config)
    return nlp


def found(nlp: Language, text: str, **given: str) -> list[tuple[str, str, str]]:
    """Link a text in which other pipes have found mentions: a label for each string."""
    doc = nlp.make_doc(text)
    places = [(text.index(words.replace("_", " ")), words) for words in given]
    spans = [doc.char_span(at, at + len(words), label=given[words]) for at, words in places]
    scores = [0.7] * len(spans)
    doc.spans["bioel"] = SpanGroup(doc, name="bioel", attrs={"scores": scores}, spans=spans)
    return [(s.text, s.label_, s._.cui or "") for s in nlp(doc).spans["bioel"]]


def test_a_missed_name_is_a_mention(nlp):
    text = "Zorbanib for blue lung disease."
    wanted = [("Zorbanib", "Chemical", "X:1"), ("blue lung disease", "Disease", "X:2")]
    assert found(nlp, text) == wanted
    assert found(nlp, text, Zorbanib="Chemical") == wanted
    assert found(nlp, text, lung="Disease") == wanted  # the longer name in its place
    assert found(nlp, text, Zorbanib="Disease") == wanted  # of another label


@pytest.mark.filterwarnings("ignore:.W323")  # where it is the first test
def test_a_name_with_other_meanings_is_not_a_mention(nlp):
    assert found(nlp, "Quaxin was given.") == []  # a name of both labels
    assert found(nlp, "Zob was given.") == []  # short
    assert found(nlp, "The disease was seen.") == []  # annotators rarely mark it
    assert found(nlp, "The zo rbanib. Blue\n\nlung disease.") == []
    assert found(nlp, "A zebra orb (Zorbanib) was seen; Zorbanib too.", zebra="Disease")[0] == (
        "zebra", "Disease", "",
    )  # fmt: skip


def test_a_mention_that_a_name_overlaps_in_part_stays(nlp):
    doc = nlp.make_doc("dark blue lung disease")
    doc.spans["bioel"] = [Span(doc, 0, 3, label="Disease")]
    assert [span.text for span in nlp(doc).spans["bioel"]] == ["dark blue lung"]


NOISE = "an odd remark that nobody made about"


@pytest.mark.parametrize(
    ("text", "label", "expected"),
    [
        (f"{NOISE} Zorbanib", "Chemical", [("Zorbanib", "Chemical", "X:1")]),
        (f"{NOISE} blue lung disease", "Disease", [("blue lung disease", "Disease", "X:2")]),
        (f"Zorbanib {NOISE} it", "Disease", [("Zorbanib", "Chemical", "X:1")]),
        (f"{NOISE}\nZorbanib it", "Disease", [("Zorbanib", "Chemical", "X:1")]),
        # What is before the end is not the kind of the mention; a part of a word is not a name.
        (f"Zorbanib {NOISE} it", "Chemical", None),
        (f"{NOISE} pre-Zorbanib", "Chemical", None),
        (f"{NOISE} Quaxin", "Chemical", None),  # a name of two labels
        (f"{NOISE} disease", "Disease", None),  # annotators rarely mark it
        (f"{NOISE} it", "Chemical", None),
    ],
)
def test_a_mention_without_a_concept_hides_no_name(nlp, text, label, expected):
    doc = nlp.make_doc(f"{text}.")
    doc.spans["bioel"] = [Span(doc, 0, len(doc) - 1, label=label)]
    links = [(s.text, s.label_, s._.cui or "") for s in nlp(doc).spans["bioel"]]
    assert links == (expected or [(text, label, "")])


def test_scores_of_the_detector_are_kept(nlp):
    doc = nlp.make_doc("Zorbanib and rubbish")
    spans = [Span(doc, 2, 3, label="Chemical")]
    doc.spans["bioel"] = SpanGroup(doc, name="bioel", attrs={"scores": [0.6]}, spans=spans)
    assert nlp(doc).spans["bioel"].attrs["scores"] == [1.0, 0.6]


def test_explain_says_why(nlp):
    report = explain(nlp, "Zorbanib, Quaxin, Zob; the disease.")
    reasons = {c.text: (c.is_mention, c.reason) for c in report.considered}
    assert reasons == {
        "Zorbanib": (True, "an unambiguous name in the knowledge base"),
        "Quaxin": (False, "a name of Chemical and Disease"),
        "Zob": (False, "names of fewer than 4 characters have too many meanings"),
        "disease": (False, "annotators mark only 1% of such names as mentions"),
    }


def test_words_that_are_never_mentions(nlp):
    doc = nlp.make_doc("Zorbanib for blue lung\ndisease")
    attrs = {"scores": [], "exclude": ["zorbanib"]}  # as the detector writes them
    doc.spans["bioel"] = SpanGroup(doc, name="bioel", attrs=attrs)
    assert [(s.text, s.label_) for s in nlp(doc).spans["bioel"]] == [
        ("blue lung\ndisease", "Disease")
    ]


def test_a_batch_gives_the_results_of_single_documents(nlp):
    texts = ["Zorbanib.", "", "\n", "blue lung disease and Zorbanib", "blue", "lung disease"]

    def places(doc: Doc) -> list[tuple[str, str]]:
        return [(span.text, span.label_) for span in doc.spans["bioel"]]

    assert list(map(places, nlp.pipe(texts))) == [places(nlp(text)) for text in texts]


def test_an_empty_knowledge_base(tmp_path):
    build_kb([Concept("X:1", ("Zorbanib",), ())], tmp_path / "kb")
    nlp = linking_nlp(tmp_path / "kb", mentions="spans+dictionary")
    with pytest.warns(UserWarning, match="W323"):
        assert found(nlp, "Zorbanib") == []  # no label is known


def test_annotation_rate_depends_on_the_string_first():
    assert annotation_rate("disease", "Disease", ["Disease"]) < 0.1
    assert annotation_rate("zorbanib", "Unknown", ["Unknown"]) == 1.0


def test_a_gene_that_is_spelled_like_a_word_needs_a_detector(tmp_path):
    genes = [Concept(f"G:{n}", (name,), ("Gene",)) for n, name in enumerate(GENES)]
    build_kb([*genes, Concept("C:1", ("A-rest",), ("Drug",))], tmp_path / "kb")
    nlp = blank()
    label_types = {"Gene": ["Gene"], "Chemical": ["Drug"]}
    config = {
        "kb": str(tmp_path / "kb"),
        "mentions": "spans+dictionary",
        "label_types": label_types,
    }
    nlp.add_pipe("bioel_linker", config={**config, "evidence": {"dense": False}})
    # "AIR" in capitals is a common word too; the chemical begins with an article.
    text = "Zorbin, flibber, Flibber and the AIR at rest; HAD A REST; Zorb7."
    assert found(nlp, text) == [("Zorb7", "Gene", "G:3")]
    assert found(nlp, text, flibber="Gene")[0] == ("flibber", "Gene", "G:1")


def test_a_word_is_not_a_gene_in_a_text_that_is_not_about_genes(tmp_path):
    concepts = [
        Concept("G:1", ("CAT",), ("Gene",)),
        Concept("G:2", ("PTEN",), ("Gene",)),
        Concept("C:1", ("Zorbanib",), ("Drug",)),
    ]
    build_kb(concepts, tmp_path / "kb")
    nlp = blank()
    label_types = {"Gene": ["Gene"], "Chemical": ["Drug"]}
    config = {
        "kb": str(tmp_path / "kb"),
        "mentions": "spans+dictionary",
        "label_types": label_types,
    }
    nlp.add_pipe("bioel_linker", config={**config, "evidence": {"dense": False}})

    def genes(text: str, score: float = 0.7) -> list[str]:
        doc = nlp.make_doc(text)
        spans = [
            Span(doc, t.i, t.i + 1, "Gene") for t in doc if t.text in ("cat", "CAT", "Zb7", "Pten")
        ]
        scores = [score] * len(spans)
        doc.spans["bioel"] = SpanGroup(doc, name="bioel", attrs={"scores": scores}, spans=spans)
        return [span.text for span in nlp(doc).spans["bioel"] if span.label_ == "Gene"]

    assert genes("The cat had Zorbanib.") == []
    assert genes("The CAT had Zorbanib.") == ["CAT"]
    assert genes("Loss of Pten did not change Zorbanib.") == ["Pten"]
    assert genes("Activity of cat and Zb7.") == ["cat", "Zb7"]
    assert genes("Expression of cat.") == ["cat"]
    assert genes("The cat had Zorbanib.", score=1.0) == ["cat"]  # by the word list `include`

"""The interface of entity rules: what they can do in both pipes, help for them, their errors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import registry
from tiny import blank, linking_nlp, links, needs

import spacy_bioel
from spacy_bioel.entities import Batch, EntityRules, Query
from spacy_bioel.entities.rule_set import RuleSet, reserved_facts
from spacy_bioel.errors import BioelError
from spacy_bioel.explanation import Reasons, extension_getters
from spacy_bioel.export.html import columns_of
from spacy_bioel.export.rows import link_texts, to_row
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Candidate, Concept, Link, best_first

WHY = "an antibody by its ending"


class Antibodies(EntityRules):
    """Finds words that end in "mab", returns their ending, and proposes one concept for all."""

    fact_names = ("ending",)

    def __init__(self, label: str, *, proposes: str, score: float) -> None:
        self.labels = (label,)
        self._proposes, self._score = proposes, score

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> None:
        for doc, of_doc in zip(docs, spans, strict=True):
            for token in doc:
                if token.text.endswith("mab"):
                    of_doc.add((token.i, token.i + 1, self.labels[0], 0.9), WHY)

    def rescore(self, batch: Batch) -> list[tuple[Candidate, ...]]:
        if not self._proposes:
            return list(batch.candidates)
        more = Candidate(self._proposes, self._score, "proposed", "rule")
        return best_first([*found, more] for found in batch.candidates)

    def facts(self, batch: Batch) -> list[Mapping[str, Any]]:
        endings = ("mab" if span.text.endswith("mab") else None for span in batch.spans)
        return [{"ending": ending} for ending in endings]


@registry.misc("tests.Antibodies.v1")
def create_antibodies(
    label: str = "Chemical", proposes: str = "", score: float = 0.5
) -> Antibodies:
    return Antibodies(label, proposes=proposes, score=score)


ANTIBODIES = {"@misc": "tests.Antibodies.v1"}
TEXT = "Rituximab and fever"


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("contract") / "kb"
    concepts = [
        Concept("X:1", ("Rituximab",), ("Chemical",)),
        Concept("X:2", ("Fever",), ("Disease",)),
    ]
    build_kb(concepts, folder)
    return folder


def made(kb: Path, **options: Any) -> Language:
    """Return a linker that finds names, and antibodies if it has their label."""
    settings = options.pop("settings", {"label_types": {"Chemical": ["Chemical"]}})
    rules = {"antibodies": ANTIBODIES | options}
    return linking_nlp(
        kb, mentions="dictionary", evidence={"dense": False}, entities=rules, **settings
    )


def labelled(nlp: Language, text: str = TEXT) -> list[tuple[str, str, str | None]]:
    doc = nlp(text)
    return [(span.text, span.label_, span._.ending) for span in doc.spans["bioel"]]


FOUND = [("Rituximab", "Chemical", "mab"), ("fever", "Disease", None)]


def test_rules_add_spans_and_facts(kb):
    nlp = made(kb)
    assert labelled(nlp) == FOUND
    assert labelled(nlp, "zumab") == [("zumab", "Chemical", "mab")]
    (linked,) = link_texts(nlp, [(TEXT, None)])
    endings = [row.get("ending") for row in to_row(linked)["links"]]
    assert endings == ["mab", None]
    considered = spacy_bioel.explain(nlp, TEXT).considered
    assert WHY in {c.reason for c in considered if c.is_mention}


def test_rules_run_whatever_their_label_and_can_be_switched_off(kb):
    assert labelled(made(kb, label="Other"), "A zumab") == [("zumab", "Other", "mab")]
    assert labelled(made(kb, settings={}), "A zumab") == [("zumab", "Chemical", "mab")]
    off = linking_nlp(kb, mentions="dictionary", entities={"notes": None, "genes": None})
    rules = set(off.get_pipe("bioel_linker").entities.rules)
    assert rules == {"variants", "composites", "chemicals"}
    assert off.config["components"]["bioel_linker"]["entities"]["genes"] is None


def test_two_rule_sets_cannot_return_the_same_fact(kb):
    both = {"one": ANTIBODIES, "two": ANTIBODIES}
    with pytest.raises(BioelError, match=r"\[B499\] The rules one and two .* 'ending'"):
        linking_nlp(kb, entities=both)


@pytest.mark.parametrize(
    "returned",
    [
        None, "X:1", ["X:1"], [("X:1", 0.9)], Candidate("X:1", 0.9), [Candidate("", 1.0)],
        [Candidate("X:1|X:2", 1.0)], [Candidate("X:1", "0.5")], [Candidate("X:1", float("nan"))],
        [Candidate("X:1", 2.0)], [Candidate("X:1", -0.1)], [Candidate(None, 1.0)],
    ],
)  # fmt: skip
def test_what_is_not_a_candidate_is_refused(returned):
    message = r"\[B497\] The rules mine \(Rules\) failed in rescore: .* is not a list of Candidates"
    with pytest.raises(BioelError, match=message):
        rescored([returned])


def test_candidates_of_rules_are_sorted_and_have_scores_of_one_type():
    (found,) = rescored([[Candidate(f"X:{x}", x) for x in (np.float32(0.25), 1, 0.5)]])
    assert [(c.id, c.score) for c in found] == [("X:1", 1.0), ("X:0.5", 0.5), ("X:0.25", 0.25)]
    assert {type(c.score) for c in found} == {float}


@pytest.mark.parametrize("returned", [None, (c for c in ()), 5])
def test_a_result_that_has_no_length_is_refused(returned):
    with pytest.raises(BioelError, match=rf"\[B503\].* {type(returned).__name__} results"):
        rescored(returned)


def rescored(returned: Any) -> Any:
    rules = type("Rules", (EntityRules,), {"rescore": lambda self, batch: returned})()
    doc = spacy.blank("en")("Stain.")
    batch = Batch([doc], [doc[:1]], [Query("stain")], [0], candidates=[()])
    return RuleSet({"mine": rules}).rescore(batch).candidates


def test_candidates_must_be_in_the_knowledge_base(kb):
    nlp = made(kb, proposes="Y:9")
    with pytest.raises(BioelError, match=r"\[B500\] .*\(Antibodies\).* 'Y:9', .* 'Chemical'"):
        nlp("Rituximab")
    # A concept of the knowledge base, and one of another vocabulary.
    assert links(made(kb, proposes="X:2", score=0.99)("zumab")) == [("zumab", "X:2")]
    assert links(made(kb, proposes="Y:9", score=1.0)("zumab")) == [("zumab", "Y:9")]


def test_rules_are_saved_with_a_pipeline(kb, tmp_path):
    nlp = made(kb)
    nlp.to_disk(tmp_path / "saved")
    assert labelled(spacy.load(tmp_path / "saved")) == FOUND
    assert labelled(made(kb).from_bytes(nlp.to_bytes())) == FOUND


def test_rules_run_in_other_processes(kb):
    docs = list(made(kb).pipe([TEXT, "zumab", ""], n_process=2, batch_size=1))
    endings = [[span._.ending for span in doc.spans["bioel"]] for doc in docs]
    assert endings == [["mab", None], ["mab"], []]


class Accessions(EntityRules):
    """Words of digits, whose ids they are themselves."""

    labels = ("Accession",)
    outside_ids = True

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> None:
        for doc, of_doc in zip(docs, spans, strict=True):
            places = [(t.idx, t.idx + len(t)) for t in doc if t.text.isdigit()]
            of_doc.add_places(places, "Accession")

    def rescore(self, batch: Batch) -> Any:
        pairs = list(zip(batch.candidates, batch.labels, strict=True))
        is_searched = any(found for found, label in pairs if label == "Accession")
        assert not is_searched or batch.probabilities  # except by the dictionary
        return [
            (Candidate(f"ACC:{span.text}", 0.9),) if span.label_ == "Accession" else found
            for span, found in zip(batch.spans, batch.candidates, strict=True)
        ]


@registry.misc("tests.Accessions.v1")
def create_accessions() -> Accessions:
    return Accessions()


@pytest.mark.parametrize("labels", [("Thing",), ("Thing", "Other")])
@pytest.mark.parametrize("mentions", ["dictionary", "spans+dictionary"])
def test_a_label_whose_ids_come_from_rules(kb, tmp_path, labels, mentions):
    """No knowledge base is searched for it, and none is needed."""
    build_kb([Concept("N:1", ("1234567",))], tmp_path / "other")
    kbs = {label: str(kb if label == "Thing" else tmp_path / "other") for label in labels}
    nlp = blank()
    if mentions != "dictionary":
        ruler = nlp.add_pipe("span_ruler", config={"spans_key": "bioel"})
        ruler.add_patterns([{"label": "Thing", "pattern": "fever"}])
    rules = {"accessions": {"@misc": "tests.Accessions.v1"}}
    config = {"kb": kbs, "mentions": mentions, "evidence": {"dense": False}, "entities": rules}
    nlp.add_pipe("bioel_linker", config=config)
    assert links(nlp("fever of 1234567 and 1234568")) == [
        *[("fever", "X:2"), ("1234567", "ACC:1234567"), ("1234568", "ACC:1234568")]
    ]
    (explained,) = spacy_bioel.explain(nlp, "fever of 1234567", mention="1234567").mentions
    assert explained.reason.startswith("Linked: ACC:1234567, an id from your rules, scored highest")
    assert "not a name of this concept" not in explained.reason


def test_a_detector_runs_rules_for_its_labels():
    config = {"entities": {"antibodies": ANTIBODIES}}
    detector: Any = blank().add_pipe("bioel_mentions", config=config)
    found = {}
    for label in ("Chemical", "Variant"):
        detector.cfg["labels"] = [label]
        found[label] = set(detector.rules.rules)
    assert found == {
        "Chemical": {"antibodies", "composites"},
        "Variant": {"antibodies", "variants", "composites"},
    }


class Careless(EntityRules):
    """Returns what it was made with in documents about dogs, and nothing in others."""

    def __init__(self, facts: Any = None, span: Any = None, queries: Any = None) -> None:
        self.fact_names = ("color",) if facts is not None else ()
        self.labels = ("Chemical",) if span is not None else ()
        self._facts, self._span, self._queries = facts, span, queries

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> Any:
        for doc, of_doc in zip(docs, spans, strict=True):
            if self._span == "return" and "Dogs" in doc.text:
                return [(0, 1, "Chemical", 0.9)]
            if self._span == "fail" and "Dogs" in doc.text:
                raise ValueError("no such span")
            if self._span and "Dogs" in doc.text:
                of_doc.add(self._span)

    def prepare(self, batch: Batch) -> Any:
        is_about_dogs = any("Dogs" in doc.text for doc in batch.docs)
        return self._queries if self._queries is not None and is_about_dogs else batch.queries

    def facts(self, batch: Batch) -> Any:
        about = ("Dogs" in span.doc.text for span in batch.spans)
        return [self._facts if self._facts is not None and dogs else {} for dogs in about]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"facts": {"color": {"red"}}}, "B507", "The rules mine (Careless)"),
    ({"facts": {"color": np.float32(2.5)}}, "B507", "The rules mine (Careless)"),
    ({"facts": ["red"]}, "B507", "The rules mine (Careless)"),
    ({"facts": {"form": "long"}}, "B504", "returned a fact 'form' that is missing"),
    (
        {"span": "fail"},
        "B497",
        "failed in propose: ValueError: no such span (test_contract.py:",
    ),
    ({"span": "return"}, "B497", "has to change `spans[i]`, and return None"),
    ({"span": (0, 1, "Chemical")}, "B498", "The rules mine (Careless)"),
    ({"span": (0, 1, "Chemical", 7.0)}, "B498", "The rules mine (Careless)"),
    ({"span": (0, 1, None, 0.9)}, "B498", "The rules mine (Careless)"),
    ({"span": (1, 9, "Chemical", 0.9)}, "B498", "added the span (1, 9, 'Chemical', 0.9)"),
    ({"queries": ["fever"]}, "B497", "The rules mine (Careless)"),
    ({"queries": []}, "B503", "returned 0 results from `prepare`, expected 1"),
    ({"facts": {"color": ["red", 1, None]}}, "", ""),
]


@registry.misc("tests.Careless.v1")
def create_careless(number: int) -> Careless:
    return Careless(**WRONG[number][0])


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_document_is_not_linked_if_rules_fail_on_it_but_others_are(kb, number):
    given, code, message = WRONG[number]
    rules = {"mine": {"@misc": "tests.Careless.v1", "number": number}, "others": ANTIBODIES}
    settings = {"mentions": "dictionary"} if "span" in given else {}
    label_types = {"Chemical": ["Chemical"]}
    nlp = linking_nlp(kb, ["fever"], entities=rules, label_types=label_types, **settings)
    texts = [(text, None) for text in (TEXT, "Dogs with fever", TEXT)]
    good, bad, last = link_texts(nlp, texts, batch_size=3)
    assert good.links and good.links == last.links
    if code:
        assert bad.error is not None and bad.error.code == code
        assert message in bad.error.message
    else:
        assert [link.facts["color"][0] for link in bad.links] == ["red"]


OF_CONTEXT = [pytest.param(name, marks=needs("clinical")) for name in ("context", "negated")]


@pytest.mark.parametrize("fact", ["start", "id", "label", "cui", *OF_CONTEXT])
def test_facts_do_not_take_the_names_of_fields(kb, fact):
    class Rules(EntityRules):
        fact_names = (fact,)

    with pytest.raises(BioelError, match=rf"\[B506\] The rules mine \(Rules\) .* '{fact}'"):
        RuleSet({"mine": Rules()})


@pytest.mark.parametrize(
    ("former", "new"),
    [
        ("queries", "prepare(batch)"), ("rewrite", "prepare(batch)"),
        ("wants_all", "prepare(batch)"), ("find", "propose(docs, spans)"),
    ],
)  # fmt: skip
def test_a_former_function_is_refused_with_the_name_of_the_new_one(former, new):
    rules = type("Rules", (EntityRules,), {former: lambda self, *_: ()})()
    message = rf"\[B508\] The rules mine \(Rules\) define `{former}`.* `{re.escape(new)}`"
    with pytest.raises(BioelError, match=message):
        RuleSet({"mine": rules})


@pytest.mark.parametrize("field", ["labels", "fact_names"])
def test_one_string_is_not_a_tuple_of_labels_or_facts(field):
    rules = type("Rules", (EntityRules,), {field: "Gene"})()
    with pytest.raises(BioelError, match=rf"\[B509\] .* {field} = 'Gene', .* \('Gene',\)"):
        RuleSet({"mine": rules})


def test_fields_of_links_and_extensions_are_reserved():
    keys = {field.name for field in fields(Link)}
    assert {*columns_of(())} | keys | set(extension_getters()) <= reserved_facts()


STAIN = "Stain of Abcam ab7260 and sc-8017."
ALL, NUMBER, OTHER = (9, 21), (15, 21), (26, 33)


@pytest.mark.parametrize(
    ("places", "given", "expected"),
    [
        ([NUMBER, ALL], [], ["Abcam ab7260"]),  # the longest wins
        ([(16, 20)], [], ["ab7260"]),  # widened to whole tokens
        ([ALL], [("Gene", 0.9)], ["Abcam ab7260"]),
        ([ALL], [("Gene", 1)], ["ab7260"]),  # forced by a user
        ([ALL], [("Antibody", 1)], ["Abcam ab7260"]),
        ([OTHER], [("Gene", 0.9)], ["ab7260", "sc-8017"]),
    ],
)
def test_added_spans_replace_others(places, given, expected):
    doc = blank().make_doc(STAIN)
    token = doc.char_span(*NUMBER)
    before = [(token.start, token.end, *label_and_score) for label_and_score in given]
    found = FoundSpans(doc, before)
    found.add_places(places, "Antibody")
    assert [doc[start:end].text for start, end, *_ in found.spans] == expected


def test_a_query_is_normalised():
    query = Query.of("Abcam AB-7260")
    assert (query.whole, query.text) == ("abcam ab 7260", "Abcam AB-7260")


class Numbers(EntityRules):
    """Adds a span."""

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> None:
        for of_doc in spans:
            of_doc.add_places([OTHER], "Antibody")


class Explained(EntityRules):
    """Says why."""

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> None:
        for of_doc in spans:
            of_doc.add_places([OTHER], "Antibody", why="a number")


@pytest.mark.parametrize(
    ("rules", "reason"), [(Numbers(), "by the rules mine"), (Explained(), "a number")]
)
def test_an_explanation_names_rules_that_do_not_give_a_reason(rules, reason):
    doc = blank().make_doc(STAIN)
    place = doc.char_span(*OTHER)
    found = FoundSpans(doc, [(place.start, place.end, "Gene", 0.5)])
    RuleSet({"mine": rules}).propose([found])
    (reasons := Reasons()).read(found)
    considered = [(c.label, c.is_mention, c.reason) for c in reasons.considered(doc, found.spans)]
    assert considered == [("Antibody", True, reason), ("Gene", False, reason)]

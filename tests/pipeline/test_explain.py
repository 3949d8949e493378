"""Explanations of links, of texts and on the command line agree with what a pipeline decides."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from tiny import blank, learn, linking_nlp, needs

import spacy_bioel
from spacy_bioel.doc import get_links
from spacy_bioel.entities import EntityRules
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.errors import BioelError
from spacy_bioel.explanation import Explanation, Reasons, features_text
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.build import build_kb
from spacy_bioel.mentions.find import find, steps_of_detector
from spacy_bioel.types import Concept, Link

CONCEPTS = (
    Concept("X:1", ("Seizure", "Convulsion"), ("Sign",)),
    Concept("X:2", ("Cold", "common cold"), ("Disease",)),
    Concept("X:3", ("Chill", "cold"), ("Sign",)),
    Concept("X:4", ("Femoral bowing",), ("Sign",)),
)
CFG = {
    "threshold": 0.5,
    "document_smoothing": 0.0,
    "include": {},
    "exclude": ["cold"],
    "allow_overlap": False,
    "abbreviations": True,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("explain") / "mine"
    build_kb(CONCEPTS, folder, source="signs", release="2026-11", licence="CC0")
    return folder


@pytest.fixture
def nlp(folder) -> Language:
    return linking_nlp(folder, ["cold", "convulsions", "zzzz"], evidence={"dense": False})


def test_why_a_mention_is_linked(nlp, folder):
    (kb,) = (report := spacy_bioel.explain(nlp, "No convulsions.")).kbs
    about = (kb.name, kb.source, kb.release, kb.licence, kb.concepts)
    assert about == ("mine", "signs", "2026-11", "CC0", 4)
    assert kb.fingerprint == nlp.get_pipe("bioel_linker").kb.fingerprint
    assert report.finds == "Mentions are found by other components: entity_ruler."
    assert report.considered == ()
    (mention,) = report.mentions
    assert (mention.text, mention.ids, mention.is_mention) == ("convulsions", ("X:1",), True)
    assert mention.strings == ("convulsions",)
    best = mention.candidates[0]
    assert (best.id, best.name, best.preferred) == ("X:1", "Convulsion", "Seizure")
    assert features_text(best.features) == "spelling variant of one of its names"
    assert mention.reason.startswith("Linked: Convulsion (X:1) scored highest (0.")


def test_why_a_mention_is_not_linked(nlp):
    (mention,) = spacy_bioel.explain(nlp, "The zzzz.").mentions
    assert (mention.ids, mention.candidates) == ((), ())
    assert mention.reason == "NIL: the knowledge base has no similar name for this mention."
    linker = nlp.get_pipe("bioel_linker")
    linker.cfg["nil_threshold"] = 0.99
    (mention,) = spacy_bioel.explain(nlp, "A cold.").mentions
    assert mention.ids == () and len(mention.candidates) == 2
    assert mention.reason.startswith("NIL: Cold (X:2) scored highest (0.")
    assert mention.reason.endswith("below nil_threshold (0.99).")


def test_concepts_that_a_label_excludes(folder):
    nlp = linking_nlp(
        folder, ["seizure"], evidence={"dense": False}, label_types={"Thing": ["Disease"]}
    )
    (mention,) = spacy_bioel.explain(nlp, "A seizure.").mentions
    assert mention.candidates == ()
    (excluded,) = mention.excluded
    assert (excluded.id, excluded.evidence) == ("X:1", "Sign")
    nlp.get_pipe("bioel_linker").cfg["label_types"] = {"Thing": []}
    (mention,) = spacy_bioel.explain(nlp, "A seizure.").mentions
    assert mention.reason == "NIL: the label_types or kb setting excludes mentions of Thing."


def test_a_variant_without_a_dbsnp_number(folder):
    cfg: Any = {"evidence": {"dense": False}, "label_types": {"Variant": []}}
    nlp = linking_nlp(folder, ["zzzz"], **cfg)
    patterns = [{"label": "Variant", "pattern": text} for text in ("V600E", "T790M")]
    nlp.get_pipe("entity_ruler").add_patterns(patterns)  # type: ignore[attr-defined]
    unknown, known = spacy_bioel.explain(nlp, "V600E; T790M (rs113488022).").mentions
    assert unknown.reason.startswith("NIL: neither the text nor a knowledge base")
    assert known.ids == ("dbSNP:rs113488022",)
    assert known.reason.endswith("Linked: the text has its dbSNP number.")


def test_words_that_are_not_a_mention(nlp):
    (mention,) = spacy_bioel.explain(nlp, "Femoral bowing and a cold.", "femoral bowing").mentions
    assert (mention.text, mention.is_mention, mention.ids) == ("Femoral bowing", False, ("X:4",))
    (mention,) = spacy_bioel.explain(nlp, "Femoral bowing and a cold.", "cold").mentions
    assert (mention.label, mention.is_mention) == ("Thing", True)
    with pytest.raises(BioelError, match=r"\[B338\] The text does not contain 'bow tie'"):
        spacy_bioel.explain(nlp, "Femoral bowing.", "bow tie")
    with pytest.raises(BioelError, match=r"\[B339\] 'owing' begins .* Use 'bowing'\."):
        spacy_bioel.explain(nlp, "Femoral bowing.", "owing")


def test_names_of_a_knowledge_base(folder):
    nlp = linking_nlp(folder, mentions="dictionary")
    (mention,) = spacy_bioel.explain(nlp, "The bowing.", "bowing").mentions
    assert (mention.ids, mention.candidates) == ((), ())
    assert mention.near == ("Femoral bowing (X:4)",)
    report = spacy_bioel.explain(nlp, "A common cold, but no femur bowing")
    assert report.finds == "Mentions are names of the knowledge base."
    found = [(c.text, c.name, c.is_mention, c.reason) for c in report.considered]
    assert found == [
        ("common cold", "common cold", True, ""),
        ("cold", "Cold", False, "overlaps a longer or likelier name"),
    ]
    assert [(m.text, m.ids) for m in report.mentions] == [("common cold", ("X:2",))]


def test_every_span_has_a_reason():
    doc = blank().make_doc("Acute kidney injury (AKI) and a cold. AKI was (mild.")
    spans = [(0, 3, "D", 0.9), (1, 3, "D", 0.6), (4, 5, "D", 0.4), (8, 9, "D", 0.8)]
    spans += [(10, 14, "D", 0.9)]
    (chosen,) = find([FoundSpans(doc, spans)], steps_of_detector(CFG, RuleSet({})))
    (reasons := Reasons()).read(chosen)
    assert [(c.text, c.is_mention, c.reason) for c in reasons.considered(doc, chosen.spans)] == [
        ("Acute kidney injury", True, ""),
        ("kidney injury", False, "overlaps mentions with a greater total weight"),
        ("AKI", True, "by a short form that the document defines"),
        ("AKI", False, "below the threshold of 0.5"),
        ("cold", False, "by the word list `exclude`"),
        ("AKI", True, "by a short form that the document defines"),
        ("AKI was (mild", False, "contains an unmatched bracket"),
    ]
    assert [span[:2] for span in chosen.spans] == [(0, 3), (4, 5), (10, 11)]


def test_what_rules_add_is_dropped_for_the_reason_that_is_true():
    class Names(EntityRules):
        def propose(self, docs, spans):
            spans[0].add((0, 1, "D", 0.3))
            spans[0].add((1, 2, "D", 0.9))
            spans[0].drop([(2, 3, "D", 0.1)])  # whatever its probability

    doc = blank().make_doc("fever cold cough")
    found = [FoundSpans(doc, [(2, 3, "D", 0.8)])]
    (chosen,) = find(found, steps_of_detector(CFG, RuleSet({"names": Names()})))
    (reasons := Reasons()).read(chosen)
    assert [(c.text, c.reason) for c in reasons.considered(doc, chosen.spans)] == [
        ("fever", "below the threshold of 0.5"),
        ("cold", "by the word list `exclude`"),
        ("cough", "by the rules names"),
    ]


def test_a_stored_document_explains_itself(nlp, folder):
    doc = nlp("A cold.")
    again = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    (span,) = again.spans["bioel"]
    about = span._.explanation
    assert (about.text, about.ids, about.nil_threshold) == ("cold", ("X:2",), 0.25)
    assert [(c.id, c.preferred, c.name) for c in about.candidates] == [
        ("X:2", "Cold", "Cold"),
        ("X:3", "Chill", "Cold"),
    ]
    assert [kb.release for kb in about.kbs] == ["2026-11"]
    assert str(about).splitlines()[0] == "'cold' Thing -> X:2"
    assert str(about).splitlines()[-1].startswith("Knowledge base: signs, release 2026-11, 4 con")
    assert again[0:1]._.explanation is None


def test_command(bioel, folder, tmp_path):
    text = "A common cold."
    report = bioel("explain", folder, text, "--json", "-").json
    assert [mention["ids"] for mention in report["mentions"]] == [["X:2"]]
    assert report["kbs"][0]["release"] == "2026-11"
    out = bioel("explain", folder, text, "--mention", "cold").out
    assert out.startswith("A common cold.\n")
    assert "Knowledge base: signs, release 2026-11, 4 concepts" in out
    assert "The pipeline does not find this mention. If it were a mention:" in out
    assert "overlaps a longer or likelier name" in out
    bioel("explain", folder, "A common cold & <b>.", "--html", tmp_path / "why.html")
    html = (tmp_path / "why.html").read_text("utf8")
    assert ">common cold</mark></a>" in html and "&amp; &lt;b&gt;.</p>" in html
    assert (
        "<h2><bdi>common cold</bdi> Disease: X:2</h2><p>Linked: common cold (X:2) scored highest"
        in html
    )
    assert "<li>signs, release 2026-11, 4 concepts, fingerprint " in html
    report = spacy_bioel.explain(spacy_bioel.load(folder), "A common cold & <b>.")
    assert spacy_bioel.render(report, page=True, jupyter=False) == html
    part = spacy_bioel.render(report, jupyter=False)
    assert part.startswith("<style>") and "<body" not in part
    assert part.partition("<section")[2].removesuffix("</div>") in html
    assert "[B338]" in bioel("explain", folder, text, "--mention", "flu", status=2).err
    said = bioel("explain", folder, "A", "common", "cold.", status=2).err
    assert "[B440] Expected [MODEL] TEXT" in said


# With coherence, and a threshold that makes many mentions NIL.
DECIDING: dict[str, Any] = {"coherence": 1.0, "nil_threshold": 0.6}
Decision = tuple[int, int, str, tuple[str, ...], list[tuple[str, float]]]
CONTEXTUAL = pytest.param("contextual", marks=needs("contextual"))


@pytest.fixture(scope="module", params=["light", "dictionary", CONTEXTUAL])
def deciding(request, kb_folder, trained_folder, texts) -> Language:
    if request.param == "dictionary":
        nlp = linking_nlp(kb_folder, mentions="dictionary")
    elif request.param == "light":
        nlp = spacy.load(trained_folder)
    else:
        from contextual_pipelines import multitask_nlp

        spacy.util.fix_random_seed(0)
        nlp = multitask_nlp(kb_folder, hidden=0, one_task=False)
        learn(nlp, texts, updates=60, name="bioel_linker")
    nlp.get_pipe("bioel_linker").cfg.update(DECIDING)  # type: ignore[attr-defined]
    return nlp


def decided(link: Link | Explanation) -> Decision:
    candidates = [(c.id, c.score) for c in link.candidates]
    return (link.start, link.end, link.label, link.ids, candidates)


@pytest.mark.filterwarnings("ignore:.*W300")
def test_explanations_are_what_was_decided(deciding, texts):
    """Of whole texts, and of each mention alone."""
    n_links = n_nil = 0
    for text in texts:
        doc = deciding(text.text)
        report = spacy_bioel.explain(deciding, text.text)
        links = list(map(decided, get_links(doc)))
        assert list(map(decided, report.mentions)) == links
        assert [decided(span._.explanation) for span in doc.spans["bioel"]] == links
        assert all(mention.is_mention for mention in report.mentions)
        if (scores := doc.spans["bioel"].attrs.get("scores")) is not None:
            assert [mention.probability for mention in report.mentions] == scores
        found = {(c.start, c.end) for c in report.considered if c.is_mention}
        assert not report.considered or found == {link[:2] for link in links}
        for mention in report.mentions:
            assert mention.reason.startswith("Linked: " if mention.ids else "NIL: ")
        at = {link[:2]: link for link in links}
        for span in doc.spans["bioel"]:
            report = spacy_bioel.explain(deciding, text.text, span.text)
            here = [decided(mention) for mention in report.mentions if mention.is_mention]
            assert decided(span._.explanation) in here
            assert here == [at[link[:2]] for link in here]
        n_links += len(links)
        n_nil += sum(not ids for *_, ids, _ in links)
    assert n_nil < n_links > 20

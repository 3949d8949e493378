"""The decision: composites, NIL and ties; and the queries of a mention."""

from collections.abc import Sequence

import spacy
from spacy.tokens import Doc
from tiny import decide_by, linking_nlp

from spacy_bioel.batch import Batch, Query
from spacy_bioel.doc import get_links
from spacy_bioel.entities.composites import Composites
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.kb.build import build_kb
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.types import Concept

COMPOSITES = RuleSet({"composites": Composites()})
QUERY = Query(
    "breast and ovarian cancer", (("breast cancer", "ovarian cancer"), ("breast", "ovarian cancer"))
)


def test_the_candidates_of_parts_come_first():
    scores = {
        QUERY.whole: {"X:2": 0.4, "X:3": 0.3},
        "breast cancer": {"X:1": 0.9, "X:9": 0.1},
        "ovarian cancer": {"X:2": 0.8},
    }
    link = decide_by(scores, QUERY, nil_threshold=0.3)
    assert (link.start, link.end, link.label, link.ids) == (0, 25, "Disease", ("X:1", "X:2"))
    # Then the other candidates of the whole.
    assert [(c.id, c.score) for c in link.candidates] == [("X:1", 0.9), ("X:2", 0.8), ("X:3", 0.3)]


def queries(
    doc: Doc, *, abbreviations: bool = True, rules: RuleSet = COMPOSITES
) -> Sequence[Query]:
    mentions = Batch.of([doc], [list(doc.ents)], LinkerSettings(abbreviations=abbreviations))
    return rules.prepare(mentions).queries


def doc_with(*mentions: str) -> Doc:
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "Disease", "pattern": mention} for mention in mentions])
    return nlp("Acute kidney injury (AKI). Fever and Cough. AKI again.")


def test_what_is_looked_up():
    """Abbreviations and composites can be turned off."""
    doc = doc_with("Fever and Cough", "AKI")
    acute, fever, again = queries(doc)
    assert acute.whole == again.whole == "acute kidney injury" and acute.readings == ()
    assert fever.whole == "fever and cough" and ("fever", "cough") in fever.readings
    parts = Query("fever and cough", (("fever", "cough"), ("fever cough", "cough"))).parts
    assert parts == ["fever", "cough", "fever cough"]
    aki = Query("aki", text="AKI")
    found = queries(doc, abbreviations=False, rules=RuleSet({}))
    assert found == [aki, Query("fever and cough", text="Fever and Cough"), aki]
    assert COMPOSITES.prepare(Batch.of([], [], LinkerSettings())).queries == []


def test_ties_are_not_linked_in_any_batch(tmp_path):
    ids = [f"X:{number}" for number in (7, 2, 9, 1, 8, 3)]
    build_kb([Concept(id, ("Cold",)) for id in ids], tmp_path / "kb")
    settings = {"dense": False}, {"dense": False, "exact": False}
    for evidence in settings:
        nlp = linking_nlp(tmp_path / "kb", ["cold", "colds"], evidence=evidence, coherence=1.0)
        texts = ["A cold.", "Two colds and a cold.", *["Some cold, no colds."] * 5]
        alone = [get_links(nlp(text)) for text in texts]
        assert [get_links(doc) for doc in nlp.pipe(texts, batch_size=7)] == alone
        found = {tuple(c.id for c in link.candidates) for links in alone for link in links}
        assert found == {("X:1", "X:2", "X:3", "X:7", "X:8")}
        assert {link.ids for links in alone for link in links} == {()}

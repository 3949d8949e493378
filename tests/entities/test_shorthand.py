"""Clinical shorthand in all kinds of text."""

from pathlib import Path
from typing import Any

import pytest
from tiny import blank, links

from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

NAMES = (
    ("Hypertension", "High blood pressure"),
    ("Dyspnea", "Shortness of breath"),
    ("Nausea and vomiting",),
    ("Myocardial infarction",),
    ("Mitral insufficiency",),
    ("Coronary artery disease",),
    ("Carbamoyl dehydratase", "CAD"),
    ("Weight loss",),
)


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shorthand") / "kb"
    build_kb([Concept(f"X:{i}", names) for i, names in enumerate(NAMES)], folder)
    return folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HTN, SOB and N/V.", [("HTN", "X:0"), ("SOB", "X:1"), ("N/V", "X:2")]),
        ("No wt loss", [("wt loss", "X:7")]),
        ("Prior MI.", [("MI", "X:3")]),
        (
            "a mitral insufficiency (MI), no MI",
            [(NAMES[4][0].lower(), "X:4")] + [("MI", "X:4")] * 2,
        ),
        ("The CAD gene", [("CAD", "X:6")]),  # a name of this knowledge base
        ("sobbing, HTNx, mi and sob", []),
    ],
)
def test_shorthand_is_found(kb, text, expected):
    nlp = blank()
    linker: Any = nlp.add_pipe("bioel_linker", config={"kb": str(kb), "mentions": "dictionary"})
    assert links(nlp(text)) == expected
    linker.entities = RuleSet({})
    assert ("HTN", "X:0") not in links(nlp(text))


def test_shorthand_is_linked(kb):
    nlp = blank()
    ruler = nlp.add_pipe("entity_ruler")
    mentions = ["HTN", "severe HTN", "CAD", "n/v"]
    ruler.add_patterns([{"label": "MENTION", "pattern": mention} for mention in mentions])
    config = {"kb": str(kb), "nil_threshold": 0.0}
    linker: Any = nlp.add_pipe("bioel_linker", config=config)

    def first(text: str) -> list[str]:
        return [span._.candidates[0].id for span in nlp(text).ents]

    assert first("severe HTN, CAD, n/v and HTN") == ["X:0", "X:6", "X:2", "X:0"]
    before = [c.score for c in nlp("HTN").ents[0]._.candidates]
    linker.entities = RuleSet({})
    after = [c.score for c in nlp("HTN").ents[0]._.candidates]
    assert before[0] > 0.9
    assert max(after, default=0) < before[0]

"""Each kind of cue has a reading, an example and a counterexample, which are its tests; and doubt
is a status."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from tiny import blank

from spacy_bioel.doc import get_links
from spacy_bioel.plugins.clinical.note_nlp import _cells_of_context
from spacy_bioel.plugins.clinical.status import CONTEXT_FACT, Context
from spacy_bioel.plugins.clinical.tables import cue_tables

ROWS = cue_tables()["cues"]
LINES = Path(__file__).parents[3] / "benchmarks" / "structure_lines.jsonl"


@pytest.fixture(scope="module")
def nlp() -> Language:
    nlp = blank()
    nlp.add_pipe("bioel_context")
    return nlp


def contexts(nlp: Language, text: str, places: list[tuple[int, int]]) -> list[Context]:
    doc = nlp.make_doc(text)
    spans = [doc.char_span(*place, alignment_mode="expand") for place in places]
    doc.spans["bioel"] = spans
    found = [Context.of(link) for link in get_links(nlp.get_pipe("bioel_context")(doc))]  # type: ignore[operator]
    return [context for context in found if context]


def context_of(nlp: Language, text: str) -> Context:
    """Return the context of the mention in brackets."""
    before, mention, after = re.split(r"[\[\]]", text)
    place = len(before), len(before) + len(mention)
    return contexts(nlp, before + mention + after, [place])[0]


def has(context: Context, status: str) -> bool:
    return (
        context.experiencer == status if status in ("family", "other") else getattr(context, status)
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['kind']}: {row['words'][0]}")
def test_the_example_and_the_counterexample_of_a_cue(nlp, row):
    plain = row.get("says", "")
    status = (row.get("negated", "negated") if plain in ("", "+") else plain).split()[0]
    assert row["reading"]
    if row["example"]:
        assert has(context_of(nlp, row["example"]), status)
    assert not has(context_of(nlp, row["counterexample"]), status)


def test_the_data_is_small():
    assert sum(len(row["words"]) for row in ROWS) <= 300
    assert len({words for row in ROWS for words in row["words"]}) > 280


def test_lines_in_which_a_changed_word_used_to_turn_the_status(nlp):
    for row in map(json.loads, LINES.read_text("utf8").splitlines()):
        found = contexts(nlp, row["text"], [(m["start"], m["end"]) for m in row["mentions"]])
        assert [c.assertion for c in found] == [m["is"] for m in row["mentions"]], row["text"]


def test_a_text_about_patients_has_neither_relatives_nor_a_past(nlp):
    text = "Ten patients had a family history of stroke; none of the controls had [ataxia]."
    assert context_of(nlp, text).assertion == "absent"
    text = "In patients with a family history of [stroke], the dose was reduced."
    assert context_of(nlp, text).assertion == "present"
    text = "She has a family history of [stroke]."
    assert context_of(nlp, text).assertion == "family"


def test_doubt_is_a_status(nlp):
    text = "It is not that she has no [pain]."
    context = context_of(nlp, text)
    assert (context.assertion, context.negated, context.hypothetical) == ("unknown", None, None)
    assert _cells_of_context(context) == ("", "", "")
    fact = json.loads(json.dumps(context.to_fact()))
    assert fact["negated"] is None and [cue["says"] for cue in fact["cues"]] == ["unknown"]
    assert CONTEXT_FACT.columns["assertion"](fact) == "unknown"
    assert CONTEXT_FACT.css_class and CONTEXT_FACT.css_class(fact) == "other"


def test_a_sentence_without_an_end_costs_linear_time(nlp):
    text = "could not be ruled out and no " * 3300
    assert contexts(nlp, text + "fever", [(len(text), len(text) + 5)])[0].negated


def test_workers(nlp):
    texts: list[Any] = ["No fever.", "Fever."]
    assert [doc.text for doc in nlp.pipe(texts, n_process=2)] == texts
    assert isinstance(spacy.blank("en").add_pipe("bioel_context").to_bytes(), bytes)  # type: ignore[attr-defined]

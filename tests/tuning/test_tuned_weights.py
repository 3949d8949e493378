"""Weights: from which mentions, by which offsets, and with which figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_bioel.pipeline.contextual.weighing import READ_FEATURES, Reading
from spacy_bioel.pipeline.gold import add_gold
from spacy_bioel.pipeline.linker.queries import Mentions
from spacy_bioel.scoring.evaluation import evaluate
from spacy_bioel.tuning import development
from spacy_bioel.tuning.choosing import document_folds
from spacy_bioel.tuning.development import gather_development, gather_reading, gold_docs
from spacy_bioel.tuning.run import tune_weights
from spacy_bioel.types import AnnotatedText, Link, Mention

MakeLinker = Callable[..., Language]
TEXTS = [
    AnnotatedText("1", "alpha fever.", (Mention(0, 11, "D", ("X:A",)),)),
    AnnotatedText("2", "No beta-fever.", (Mention(3, 13, "D", ("X:B",)), Mention(0, 2, "D"))),
    AnnotatedText("3", "gamma ache", (Mention(0, 10, "D", ("X:OLD",)),)),
]


def test_evidence_by_document_and_string(make_linker: MakeLinker) -> None:
    nlp = make_linker()
    found = gather_development(nlp.get_pipe("bioel_linker"), gold_docs(nlp, TEXTS))
    assert found.strings == ["alpha fever", "beta fever", "no", "gamma ache"]
    assert found.documents == [0, 1, 1, 2]
    # One right candidate each, by the current id of the retired one; none of what has no id.
    assert [int(right.sum()) for right in found.right] == [1, 1, 0, 1]


def test_gold_is_looked_for_where_the_setting_says(make_linker: MakeLinker) -> None:
    nlp = make_linker(gold_key="truth")
    docs = gold_docs(nlp, TEXTS)
    assert all(list(doc.spans) == ["truth"] for doc in docs)
    linker: Any = nlp.get_pipe("bioel_linker")
    assert len(gather_development(linker, docs)) == 4
    elsewhere = nlp.make_doc("alpha fever")
    add_gold(elsewhere, TEXTS[0])
    assert len(gather_development(linker, [elsewhere])) == 0


def test_mentions_are_found_by_characters(
    make_linker: MakeLinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of documents that came with other tokens than the pipeline makes."""
    nlp = make_linker()
    linker: Any = nlp.get_pipe("bioel_linker")
    # Two tokens here, "No" and "beta-fever."; the pipeline makes five of them.
    doc = Doc(Vocab(), ["No", "beta-fever."], spaces=[True, False])
    doc.spans["bioel_gold"] = [doc.char_span(3, 14, label="D", kb_id="X:B")]
    seen: list[str] = []

    def read(model: Any, generator: Any, mentions: Mentions, given: Any) -> Reading:
        seen.extend(span.text for span in mentions.spans)
        n = len(mentions)
        rows = np.arange(n, dtype=np.int64)
        concept = linker.kb.find_all(["X:B"] * n)
        features = np.zeros((n, len(READ_FEATURES)), "f")
        return Reading(linker.kb, given, rows, concept, features, "context", np.ones(n, bool))

    monkeypatch.setattr(development, "read_mentions", read)
    found = gather_reading(nlp, [nlp.make_doc("None here"), doc])
    assert seen == ["beta-fever."]
    assert [right.tolist() for right in found.right] == [[True]]
    assert list(found.documents) == [1]


def test_weights_with_both_figures(make_linker: MakeLinker) -> None:
    nlp = make_linker()
    linker: Any = nlp.get_pipe("bioel_linker")
    tuned = tune_weights(nlp, TEXTS, folds=document_folds(3))
    assert tuned is not None and linker.fusion is not None
    assert linker.state.fusion is linker.fusion
    saved = linker.fusion.to_json()
    assert saved["direct"] == linker.fusion.direct.tolist()  # measured as rounded as it is saved
    assert tuned.chosen == {"weights": "fusion", "mentions": 4}
    assert (tuned.protocol, tuned.metric) == ("gold", "accuracy@1_nil_ignored")
    assert (tuned.fitted, tuned.cross_fitted) == (100.0, 100.0)


def test_the_figure_is_that_of_evaluate(
    make_linker: MakeLinker, answering: Callable[..., Any]
) -> None:
    nlp = make_linker()
    # Right, wrong, and a mention without an id, which counts nowhere; the last was not predicted.
    answers = {
        "alpha fever.": [Link(0, 11, "D", ("X:A",))],
        "No beta-fever.": [Link(3, 13, "D", ("X:A",)), Link(0, 2, "D", ("X:A",))],
        "gamma ache": [],
    }
    linker = answering(nlp.get_pipe("bioel_linker"), answers)
    tuned = tune_weights(nlp, TEXTS, folds=[])
    rows = evaluate(TEXTS, list(answers.values()), protocols=["gold"], per_label=False)
    (expected,) = (row.value for row in rows if row.metric == "accuracy@1_nil_ignored")
    assert tuned is not None and tuned.fitted == pytest.approx(expected) == pytest.approx(100 / 3)
    assert tuned.cross_fitted is None and linker.fusion is not None

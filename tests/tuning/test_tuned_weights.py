"""Weights: from which mentions, by which offsets, and with which figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spacy.language import Language

from spacy_bioel.pipeline.gold import add_gold
from spacy_bioel.tuning.choosing import document_folds
from spacy_bioel.tuning.development import gather_development, gold_docs
from spacy_bioel.tuning.run import tune_weights
from spacy_bioel.types import AnnotatedText, Mention

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

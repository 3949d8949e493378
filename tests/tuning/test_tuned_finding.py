"""Finding with the knowledge base: which spans are right, and what is chosen and saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language

from spacy_bioel.tuning.choosing import document_folds
from spacy_bioel.tuning.run import tune, tune_finding
from spacy_bioel.types import AnnotatedText, Mention

MakeLinker = Callable[..., Language]


def right(number: int) -> AnnotatedText:
    return AnnotatedText(str(number), "No alpha fever.", (Mention(3, 14, "D", ("X:A",)),))


def untouched(number: int) -> AnnotatedText:
    """Plurals are no mentions here, as in a corpus whose guidelines leave groups out."""
    return AnnotatedText(str(number), "Beta fevers are a group.", ())


def found(nlp: Language, text: str) -> list[str]:
    doc = nlp(text)
    return [span.text for span in doc.spans["bioel"]]


def test_it_stays_as_it_is_where_nothing_is_gained(make_linker: MakeLinker) -> None:
    nlp = make_linker()
    linker: Any = nlp.get_pipe("bioel_linker")
    tuned = tune_finding(nlp, [right(i) for i in range(4)], folds=document_folds(4))
    assert tuned is not None
    assert tuned.chosen == {"refitted": False, "threshold": 0.5}
    assert (tuned.protocol, tuned.metric) == ("end_to_end", "f1")
    assert (tuned.fitted, tuned.cross_fitted) == (100.0, 100.0)
    assert linker.finding is None


def test_a_corpus_without_plurals_is_learned_and_saved(
    make_linker: MakeLinker, tmp_path: Path
) -> None:
    nlp = make_linker()
    linker: Any = nlp.get_pipe("bioel_linker")
    assert found(nlp, "Beta fevers are a group.") == ["Beta fevers"]
    texts = [make(i) for i in range(40) for make in (right, untouched)]
    tuned = tune_finding(nlp, texts, folds=document_folds(len(texts)))
    assert tuned is not None and tuned.chosen["refitted"] is True
    assert (tuned.fitted, tuned.cross_fitted) == (100.0, 100.0)
    assert linker.state.finding is linker.finding
    for once_more in (nlp, _saved(nlp, tmp_path), _packed(nlp)):
        assert found(once_more, "Beta fevers are a group.") == []
        assert found(once_more, "No alpha fever.") == ["alpha fever"]


def _saved(nlp: Language, folder: Path) -> Language:
    nlp.to_disk(folder / "saved")
    return spacy.load(folder / "saved")


def _packed(nlp: Language) -> Language:
    other = spacy.blank("en", config={"nlp": {"tokenizer": nlp.config["nlp"]["tokenizer"]}})
    config = {"mentions": "kb", "model": {"dim": 16}}
    other.add_pipe("bioel_linker", config=config)
    return other.from_bytes(nlp.to_bytes())


def test_nothing_that_is_like_a_name(make_linker: MakeLinker) -> None:
    texts = [AnnotatedText(str(i), "None.", (Mention(0, 4, "D", ("X:A",)),)) for i in range(3)]
    assert tune_finding(make_linker(), texts, folds=document_folds(3)) is None
    report = tune(make_linker(), texts)
    assert "finding is unchanged: no span that is like a name is right" in report.notes

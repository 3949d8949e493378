"""Explanations agree with the decisions of the pipeline, for whole texts and for words."""

from typing import Any

import pytest
import spacy
from spacy.language import Language
from tiny import learn, linking_nlp, needs

from spacy_bioel.doc import get_links
from spacy_bioel.explanation import Explanation
from spacy_bioel.report import explain
from spacy_bioel.types import Link

pytestmark = pytest.mark.filterwarnings("ignore:.*W300")
# With coherence, and a threshold that makes many mentions NIL.
DECIDING: dict[str, Any] = {"coherence": 1.0, "nil_threshold": 0.6}
Decision = tuple[int, int, str, tuple[str, ...], list[tuple[str, float]]]


CONTEXTUAL = pytest.param("contextual", marks=needs("contextual"))


@pytest.fixture(scope="module", params=["light", "dictionary", CONTEXTUAL])
def nlp(request, kb_folder, trained_folder, texts) -> Language:
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


def test_of_whole_texts(nlp, texts):
    n_links = n_nil = 0
    for text in texts:
        doc = nlp(text.text)
        report = explain(nlp, text.text)
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
        n_links += len(links)
        n_nil += sum(not ids for *_, ids, _ in links)
    assert n_links > 20
    assert n_nil < n_links


def test_of_given_words(nlp, texts):
    for text in texts:
        doc = nlp(text.text)
        links = {link[:2]: link for link in map(decided, get_links(doc))}
        for span in doc.spans["bioel"]:
            report = explain(nlp, text.text, span.text)
            here = [decided(m) for m in report.mentions if m.is_mention]
            assert decided(span._.explanation) in here
            assert here == [links[link[:2]] for link in here]

"""`bioel_mentions` with other models than the default one: linear span scores, and tags."""

from typing import Any

import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example
from tiny import DETECTOR, TOK2VEC, blank, examples

from spacy_bioel.mentions import model as detector_models
from spacy_bioel.mentions.pipe import MentionDetector
from spacy_bioel.types import AnnotatedText, Mention

SPANS = DETECTOR["model"] | {"hidden": 0}
TAGS = {"@architectures": "spacy-bioel.BioTagger.v1", "max_width": 6, "tok2vec": TOK2VEC}
KINDS: dict[str, dict[str, Any]] = {
    "linear": SPANS,
    "bio": TAGS,
}


def make_detector(kind: str) -> MentionDetector:
    return blank().add_pipe("bioel_mentions", config={"model": KINDS[kind]})  # type: ignore[return-value]


def train(detector: MentionDetector, data: list[Example], **settings: Any) -> list[float]:
    """Initialise a detector and train it; return the loss of each update."""
    detector.initialize(lambda: data, **settings)
    optimizer = blank().create_optimizer()
    optimizer.learn_rate = 0.01
    return [detector.update(data, sgd=optimizer)[detector.name] for _ in range(60)]


def tokenised(text: str) -> Doc:
    return blank().make_doc(text)


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def detector(kind, kb, texts) -> MentionDetector:
    """A detector that knows the six documents by heart."""
    spacy.util.fix_random_seed(0)
    detector = make_detector(kind)
    data = examples(blank(), texts)
    losses = train(detector, data, kb=kb)
    assert 0 < losses[-1] < 0.1 * losses[0]
    return detector


def test_the_documents_are_found_again(detector, texts):
    is_spans = detector.model.name == "span_enumerator"
    for example in examples(blank(), texts):
        gold = {(s.start, s.end, s.label_) for s in example.reference.spans["bioel_gold"]}
        (found,) = detector.predict([example.predicted])
        missed = gold - {span[:3] for span in found}
        # Tags cannot express a mention inside another.
        assert all(any(s <= start and end <= e for s, e, *_ in found) for start, end, _ in missed)
        assert not (missed and is_spans) and len(found) + len(missed) == len(gold)


@pytest.mark.parametrize("n_tokens", [1, 25, 4096])  # that are scored together
def test_a_document_is_the_same_alone_and_in_any_batch(detector, texts, n_tokens, monkeypatch):
    docs = [tokenised(text) for text in ("", *(text.text for text in texts), "", "Aspirin")]
    alone = [detector.predict([doc])[0] for doc in docs]
    assert sum(map(len, alone)) > 10
    monkeypatch.setattr(detector_models, "_TOKENS_PER_PART", n_tokens)
    for step in (1, -1):
        together = detector.predict(docs[::step])
        for spans, expected in zip(together, alone[::step], strict=True):
            assert [span[:3] for span in spans] == [span[:3] for span in expected]
            assert [p for *_, p in spans] == pytest.approx([p for *_, p in expected], abs=1e-5)


def test_tags_learn_the_longest_of_nested_mentions_and_spans_both():
    nested = (Mention(0, 25, "Disease"), Mention(11, 25, "Disease"))
    text = AnnotatedText("1", "Breast and ovarian cancer in families.", nested)
    found = {}
    for kind in ("linear", "bio"):
        spacy.util.fix_random_seed(0)
        detector = make_detector(kind)
        train(detector, examples(blank(), [text]))
        found[kind] = [span[:2] for span in detector.predict([tokenised(text.text)])[0]]
    assert found == {"linear": [(0, 4), (2, 4)], "bio": [(0, 4)]}

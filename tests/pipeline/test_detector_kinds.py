"""`bioel_mentions` with other models than the default one: linear span scores, and tags."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.ml.models.tok2vec import MaxoutWindowEncoder, MultiHashEmbed, build_Tok2Vec_model
from spacy.tokens import Doc
from spacy.training import Example
from tiny import blank, examples

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.models import detector as detector_models
from spacy_bioel.models.bio_tagger import build_bio_tagger_v1
from spacy_bioel.models.detector import MentionModel
from spacy_bioel.models.span_enumerator import build_span_enumerator_v1
from spacy_bioel.pipeline.mentions.detector import MentionDetector
from spacy_bioel.types import AnnotatedText, Mention

KINDS: dict[str, Callable[..., MentionModel]] = {
    "linear": partial(build_span_enumerator_v1, max_width=6, hidden=0),
    "bio": partial(build_bio_tagger_v1, max_width=6),
    "bio_context": partial(build_bio_tagger_v1, max_width=6, context=4),
}


def make_detector(kind: str) -> MentionDetector:
    attrs: list[int | str] = ["NORM", "PREFIX", "SUFFIX", "SHAPE"]
    rows = [300, 100, 100, 100]
    embed = MultiHashEmbed(width=32, attrs=attrs, rows=rows, include_static_vectors=False)
    encode = MaxoutWindowEncoder(width=32, window_size=1, maxout_pieces=2, depth=1)
    model = KINDS[kind](build_Tok2Vec_model(embed, encode))
    nlp = blank()
    cfg = nlp.add_pipe("bioel_mentions").cfg  # type: ignore[attr-defined]
    return MentionDetector(nlp.vocab, model, "bioel_mentions", settings=cfg)


def train(detector: MentionDetector, data: list[Example], **settings: Any) -> list[float]:
    """Initialise a detector and train it; return the loss of each update."""
    detector.initialize(lambda: data, **settings)
    optimizer = blank().create_optimizer()
    optimizer.learn_rate = 0.01
    return [detector.update(data, sgd=optimizer)[detector.name] for _ in range(60)]


def tokenised(text: str) -> Doc:
    return blank().make_doc(text)


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def detector(kind: str, kb: KnowledgeBase, texts: list[AnnotatedText]) -> MentionDetector:
    """A detector that knows the six documents by heart."""
    spacy.util.fix_random_seed(0)
    detector = make_detector(kind)
    data = examples(blank(), texts)
    losses = train(detector, data, kb=kb)
    assert 0 < losses[-1] < 0.1 * losses[0]
    return detector


def test_the_documents_are_found_again(
    detector: MentionDetector, texts: list[AnnotatedText]
) -> None:
    is_spans = detector.model.name == "span_enumerator"
    for example in examples(blank(), texts):
        gold = {(s.start, s.end, s.label_) for s in example.reference.spans["bioel_gold"]}
        (found,) = detector.predict([example.predicted])
        missed = gold - {span[:3] for span in found}
        # Tags cannot express a mention inside another.
        assert all(any(s <= start and end <= e for s, e, *_ in found) for start, end, _ in missed)
        assert not (missed and is_spans) and len(found) + len(missed) == len(gold)


@pytest.mark.parametrize("n_tokens", [1, 25, 4096])  # that are scored together
def test_a_document_is_the_same_alone_and_in_any_batch(
    detector: MentionDetector,
    texts: list[AnnotatedText],
    n_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    docs = [tokenised(text) for text in ("", *(text.text for text in texts), "", "Aspirin")]
    alone = [detector.predict([doc])[0] for doc in docs]
    assert sum(map(len, alone)) > 10
    monkeypatch.setattr(detector_models, "_TOKENS", n_tokens)
    for step in (1, -1):
        together = detector.predict(docs[::step])
        for spans, expected in zip(together, alone[::step], strict=True):
            assert [span[:3] for span in spans] == [span[:3] for span in expected]
            assert [p for *_, p in spans] == pytest.approx([p for *_, p in expected], abs=1e-5)


def test_empty_documents(detector: MentionDetector) -> None:
    assert detector.predict([]) == []
    assert detector.predict([tokenised(""), tokenised("")]) == [[], []]
    assert len(detector(tokenised("")).spans["bioel"]) == 0
    empty = Example(tokenised(""), tokenised(""))
    assert detector.update([empty]) == {"bioel_mentions": 0.0}


def test_the_threshold_leaves_out_what_is_less_sure(
    detector: MentionDetector, texts: list[AnnotatedText]
) -> None:
    docs = [tokenised(text.text) for text in texts]
    all_found = [span for spans in detector.predict(docs) for span in spans]
    middle = sorted(p for *_, p in all_found)[len(all_found) // 2]
    copy = pickle.loads(pickle.dumps(detector))
    copy.threshold = middle
    expected = [span for span in all_found if span[3] >= middle]
    assert [span for spans in copy.predict(docs) for span in spans] == expected
    assert 0 < len(expected) < len(all_found)


@pytest.mark.parametrize("way", ["disk", "bytes", "pickle"])
def test_round_trip(
    kind: str, detector: MentionDetector, texts: list[AnnotatedText], way: str, tmp_path: Path
) -> None:
    docs = [tokenised(text.text) for text in texts]
    loaded = pickle.loads(pickle.dumps(detector)) if way == "pickle" else make_detector(kind)
    if way == "disk":
        detector.to_disk(tmp_path / "d")
        loaded.from_disk(tmp_path / "d")
    elif way == "bytes":
        loaded.from_bytes(detector.to_bytes())
    assert loaded.labels == detector.labels
    assert loaded.predict(docs) == detector.predict(docs)


def test_tags_learn_the_longest_of_nested_mentions_and_spans_both() -> None:
    nested = (Mention(0, 25, "Disease"), Mention(11, 25, "Disease"))
    text = AnnotatedText("1", "Breast and ovarian cancer in families.", nested)
    found = {}
    for kind in ("linear", "bio"):
        spacy.util.fix_random_seed(0)
        detector = make_detector(kind)
        train(detector, examples(blank(), [text]))
        found[kind] = [span[:2] for span in detector.predict([tokenised(text.text)])[0]]
    assert found == {"linear": [(0, 4), (2, 4)], "bio": [(0, 4)]}

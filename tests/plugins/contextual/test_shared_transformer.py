"""A detector that listens to a transformer in the pipe `tok2vec`: learnt by heart and stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from tiny import (
    LISTENING_DETECTOR,
    SPELLING_DETECTOR,
    blank,
    examples,
    fleeting,
    learn,
    sharing_nlp,
    step,
    transformer,
)

from spacy_bioel.errors import BioelError
from spacy_bioel.types import AnnotatedText

pytest.importorskip("transformers")

ODD_TEXTS = ["", "  \n ", "Headache", "🙂👩‍⚕️ cafe\u0301 🙂", "+", "\x07", "Nothing. " * 60]
Mentions = list[tuple[int, int, str]]


def mentions(doc: Doc) -> Mentions:
    return [(span.start_char, span.end_char, span.label_) for span in doc.spans["bioel"]]


def gold(text: AnnotatedText) -> Mentions:
    return sorted((mention.start, mention.end, mention.label) for mention in text.mentions)


def embeddings(nlp: Language) -> np.ndarray:
    network = nlp.get_pipe("tok2vec").model.shims[0]._model
    return network.backbone.embeddings.word_embeddings.weight.detach().numpy().copy()


@pytest.fixture(scope="module")
def run(checkpoint, texts, tmp_path_factory) -> tuple[Path, list[float]]:
    """A trained pipeline whose checkpoint is gone, and the losses of its training."""
    folder = tmp_path_factory.mktemp("shared")
    with fleeting(checkpoint, folder) as copy:
        nlp = sharing_nlp(copy, detector=SPELLING_DETECTOR)
        losses = learn(nlp, texts, updates=80)
        nlp.to_disk(folder / "trained")
    return folder / "trained", losses


@pytest.fixture
def shared(run) -> Language:
    return spacy.load(run[0])


@pytest.fixture
def inputs(texts) -> list[str]:
    return [text.text for text in texts] + ODD_TEXTS


def test_six_documents_by_heart(shared, run, texts):
    losses = run[1]
    assert np.mean(losses[-5:]) < 0.1 * np.mean(losses[:5])
    found = [sorted(mentions(shared(text.text))) for text in texts]
    assert sum(map(len, found)) == 36
    assert found == [gold(text) for text in texts]


def test_training_reaches_the_transformer(shared, checkpoint):
    from transformers import AutoModel

    before = AutoModel.from_pretrained(checkpoint).embeddings.word_embeddings.weight
    change = np.abs(embeddings(shared) - before.detach().numpy()).max(axis=1)
    assert change[2] > 4e-3  # [CLS]
    assert change[4] < 1e-3  # [MASK], which no text has: only its weights decay


def test_a_frozen_transformer_is_not_changed(checkpoint, texts):
    nlp = sharing_nlp(checkpoint)
    data = examples(nlp, texts)
    optimizer = nlp.initialize(lambda: data)
    optimizer.learn_rate = 0.02
    before = embeddings(nlp)
    losses = [step(nlp, texts, optimizer, frozen=["tok2vec"]) for _ in range(10)]
    seen = [loss["bioel_mentions"] for loss in losses]
    assert np.array_equal(embeddings(nlp), before)
    assert seen[-1] < 0.9 * seen[0]


@contextmanager
def reads_of(nlp: Language) -> Iterator[list[int]]:
    """Note the number of tokens each time that the transformer reads."""
    n_tokens: list[int] = []
    network = nlp.get_pipe("tok2vec").model.shims[0]._model
    handle = network.register_forward_pre_hook(lambda _, args: n_tokens.append(args[-1]))
    yield n_tokens
    handle.remove()


def test_each_document_is_read_once_by_two_listeners_that_learn(shared, texts):
    with reads_of(shared) as n_tokens:
        lengths = [len(d) for d in shared.pipe([text.text for text in texts], batch_size=2)]
    assert n_tokens == [sum(lengths[i : i + 2]) for i in (0, 2, 4)]
    config = {"model": LISTENING_DETECTOR, "spans_key": "other"}
    shared.add_pipe("bioel_mentions", name="others", config=config)
    data = examples(shared, texts)
    shared.get_pipe("others").initialize(lambda: data, nlp=shared)
    assert len(shared.get_pipe("tok2vec").listeners) == 2
    before = embeddings(shared)
    optimizer = shared.resume_training()
    optimizer.learn_rate = 0.02
    with reads_of(shared) as n_tokens:
        losses = step(shared, texts, optimizer)
    assert len(n_tokens) == 1
    assert losses["others"] > losses["bioel_mentions"] > 0
    assert np.abs(embeddings(shared) - before).max() > 0


def test_a_pipe_of_its_own_is_demanded(checkpoint):
    model = LISTENING_DETECTOR | {"tok2vec": transformer(checkpoint)}
    found = r'\[B173\].*tok2vec pipe.*spacy.Tok2VecListener.v1.*upstream = "tok2vec"'
    with pytest.raises(BioelError, match=found):
        blank().add_pipe("bioel_mentions", config={"model": model})

"""Probing: shuffled word pieces, restricted attention, and the accuracy that is measured."""

from typing import Any

import numpy as np
import pytest
import spacy
from spacy.language import Language
from tiny import LINKER, VOCABULARY, blank, examples

from benchmarks.probing import (
    PERTURBATIONS,
    attention_layers,
    gold_queries,
    probe,
    restricted_attention,
    shuffle_blocks,
    window_mask,
)
from spacy_bioel.models.name_encoder import encode_names, get_network
from spacy_bioel.types import AnnotatedText, Mention

PIECES = [7, 7, 3, 9, 4, 1, 8]


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def test_shuffling_single_pieces_keeps_the_pieces():
    draws = [shuffle_blocks(PIECES, block=1, generator=g) for g in [generator()] for _ in range(50)]
    assert all(sorted(draw) == [1, 3, 4, 7, 7, 8, 9] for draw in draws)
    assert len({tuple(draw) for draw in draws}) > 40
    assert shuffle_blocks(PIECES, block=1, generator=generator()) == draws[0]  # the same seed
    for block in (7, 100):
        assert shuffle_blocks(PIECES, block=block, generator=generator()) == PIECES
    assert shuffle_blocks([], block=2, generator=generator()) == []


def test_blocks_stay_whole_and_the_last_may_be_shorter():
    draw = generator()
    for _ in range(20):
        rest, seen = shuffle_blocks(PIECES, block=3, generator=draw), set()
        while rest:
            size = 1 if rest[0] == 8 else 3
            seen.add(tuple(rest[:size]))
            rest = rest[size:]
        assert seen == {(7, 7, 3), (9, 4, 1), (8,)}


def test_window_of_the_papers_text():
    """All layers are cut; in the last, [CLS] attends to all."""
    band = [
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1],
    ]
    inner = window_mask(5, False, window=3, cls_open=False)
    assert inner.astype(int).tolist() == band
    last = window_mask(5, True, window=3, cls_open=False)
    assert last.astype(int).tolist() == [[1, 1, 1, 1, 1], *band[1:]]


@pytest.mark.parametrize("last", [False, True])
def test_window_of_the_papers_code(last):
    """[CLS] attends to all and is attended to by all, in every layer."""
    assert window_mask(6, last, window=5, cls_open=True).astype(int).tolist() == [
        [1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 1],
        [1, 0, 1, 1, 1, 1],
        [1, 0, 0, 1, 1, 1],
    ]


@pytest.fixture(scope="module")
def transformer(kb_folder, checkpoint, texts) -> Language:
    """With random weights: probing is of any encoder."""
    pytest.importorskip("spacy_bioel.plugins.contextual", reason="needs the plugin contextual")
    nlp = blank()
    model = {"@architectures": "spacy-bioel.TransformerNames.v1", "path": str(checkpoint)}
    nlp.add_pipe("bioel_linker", config={"kb": str(kb_folder), "model": model})
    nlp.initialize(lambda: examples(nlp, texts))
    return nlp


NAMES = ["heart attack of the kidney", "renal failure", "a", ""]


@pytest.mark.parametrize("cls_open", [False, True])
def test_windows_of_a_network(transformer, cls_open):
    model = transformer.get_pipe("bioel_linker").model
    free = encode_names(model, NAMES)

    def encode(window: int) -> np.ndarray:
        def attention(length: int, last: bool) -> np.ndarray:
            return window_mask(length, last, window=window, cls_open=cls_open)

        with restricted_attention(get_network(model), attention):
            return encode_names(model, NAMES)

    assert np.abs(encode(49) - free).max() < 1e-5  # 2 * 25 - 1
    narrow = np.abs(encode(3) - free).max(axis=1)
    assert narrow[0] > 1e-3
    assert narrow[3] < 1e-5  # [CLS] [SEP] have all of each other
    assert np.array_equal(encode_names(model, NAMES), free)


def accuracies(nlp: Language, texts: list[AnnotatedText], seed: int = 0) -> list[float]:
    linker: Any = nlp.get_pipe("bioel_linker")
    return list(probe(linker, *gold_queries(nlp, linker, texts), seed=seed).values())


def test_probing_a_transformer(transformer, texts):
    found = accuracies(transformer, texts, seed=1)
    assert len(found) == len(PERTURBATIONS) == 8
    assert all(0 <= value <= 100 for value in found)
    # Random weights know a string by its pieces in their order, and nothing else.
    assert found[0] > found[1]
    assert accuracies(transformer, texts, seed=1) == found
    assert accuracies(transformer, texts, seed=2)[1:4] != found[1:4]


def test_probing_a_rescnn_has_no_windows(kb_folder, texts):
    spacy.util.fix_random_seed(0)
    nlp = blank()
    linker: Any = nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(kb_folder)})
    nlp.config["initialize"]["components"]["bioel_linker"] = VOCABULARY
    nlp.initialize(lambda: examples(nlp, texts))
    assert attention_layers(get_network(linker.model)) == []
    found = accuracies(nlp, texts)
    assert len(found) == 4 and found[0] > 50.0


def test_what_is_right(transformer):
    """Four mentions with ids, two of them linked to the nearest name."""
    text = AnnotatedText(
        "1",
        "Aspirin, levodopa, levodopa and rats. Also aspirin.",
        (
            Mention(0, 7, "Chemical", ("MESH:D001241",)),  # a name of it
            Mention(9, 17, "Chemical", ("MESH:D001241", "MESH:D007980")),  # of one of two
            Mention(19, 27, "Chemical", ("MESH:D001241",)),  # of another concept
            Mention(32, 36, "Species"),  # no id: not counted
            Mention(43, 50, "Chemical", ("MESH:D999999",)),  # of none that is known
        ),
    )
    linker: Any = transformer.get_pipe("bioel_linker")
    queries, gold = gold_queries(transformer, linker, [text])
    assert queries == ["aspirin", "levodopa", "levodopa", "aspirin"]
    assert [len(rows) for rows in gold] == [1, 2, 1, 0]
    assert probe(linker, queries, gold, seed=0)["unperturbed"] == 50.0

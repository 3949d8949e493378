"""The encoder-decoder: word pieces of mentions and names, the loss, and the beam search."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tables import cases
from thinc.api import Adam

from spacy_bioel.errors import BioelError
from spacy_bioel.models.name_encoder import EncoderSource, add_encoder, get_network
from spacy_bioel.models.vocabulary import train_vocabulary
from spacy_bioel.plugins.contextual.constrained_decoding import NameTrie, generate_names, trie_of
from spacy_bioel.plugins.contextual.generative import (
    MarkedMention,
    MarkedPieces,
    build_seq2seq_v1,
    new_backbone,
)

pytest.importorskip("transformers")
NAMES = ["renal failure", "renal", "failure of the kidney", "kidney is", "heart attack", "heart"]
TEXT = "the patient has a failure of the kidney and is in need of dialysis"


class Source(EncoderSource):
    """A source of names and a text without a knowledge base."""

    names = NAMES * 2  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(None, (), None, 0, 0, lambda: [TEXT] * 2)  # type: ignore[arg-type]


def make(**settings: Any) -> Any:
    torch.manual_seed(0)
    settings = {"layers": 1, "width": 32, "vocabulary": 120, "max_pieces": 16} | settings
    model = build_seq2seq_v1(**settings)
    add_encoder(model, Source())
    return model


@pytest.fixture(scope="module")
def model() -> Any:
    return make()


def words(pieces: MarkedPieces, ids: Sequence[int]) -> str:
    tokens = [pieces.tokenizer.id_to_token(int(i)) for i in ids]
    return "".join(f" {t}" if t[0] == "[" else t for t in tokens).replace("▁", " ").strip()


# Word pieces.


def rows_of(pieces: MarkedPieces, mentions: Sequence[MarkedMention]) -> list[str]:
    found = pieces.sources(mentions)
    ends = np.cumsum(found.lengths)
    return [words(pieces, found.flat[a:b]) for a, b in zip(ends - found.lengths, ends, strict=True)]


@pytest.mark.parametrize("max_pieces", [7, 5])
def test_a_mention_is_marked_and_its_context_or_its_end_is_cut(max_pieces):
    """The pieces are two markers, the mention, and as many words as there is room for."""
    pieces = make(max_pieces=max_pieces, vocabulary=400).attrs["pieces"]
    mentions, expected = zip(*cases(__file__, "marked_mentions")[max_pieces], strict=True)
    marked = [MarkedMention(*parts) for parts in mentions]
    assert rows_of(pieces, marked) == [*expected]
    assert pieces.are_cut(marked).tolist() == [max_pieces == 5] + [False] * (len(marked) - 1)
    if max_pieces == 5:
        prompts = [words(pieces, prompt) for prompt in pieces.prompts(marked)]
        assert prompts == ["[SEP] failure of the is", "[SEP] renal is"]


def test_prompts(model):
    """The prompt of a mention that contains its last word, and no prompt."""
    without = make(prompt=False).attrs["pieces"]
    assert without.prompts([MarkedMention("", "renal", "")]) == [[without.start]]
    pieces = model.attrs["pieces"]
    mentions = [MarkedMention("", "kidney is", ""), MarkedMention("", "renal", "")]
    targets, given = pieces.targets(mentions, ["kidney is", "renal failure"])
    first = int(targets.lengths[0])
    assert words(pieces, targets.flat[: given[0]]) == "[SEP] kidney is is"
    assert words(pieces, targets.flat[given[0] : first]) == "kidney is [SEP]"
    assert words(pieces, targets.flat[first : first + given[1]]) == "[SEP] renal is"


def test_names_that_can_be_generated(model):
    pieces = model.attrs["pieces"]
    found = pieces.for_names(["renal", "", "腎", "renal " * 300])
    assert [row is None for row in found] == [False, True, True, True]
    assert words(pieces, found[0]) == "renal [SEP]"


def test_fingerprints_tell_word_pieces_apart(model):
    assert model.attrs["pieces"].fingerprint == make().attrs["pieces"].fingerprint
    other = make(vocabulary=50).attrs["pieces"].fingerprint
    assert other != model.attrs["pieces"].fingerprint
    assert len(other) == 16


# Loss.


def test_loss_of_a_name_is_that_of_its_pieces_alone(model):
    pieces: MarkedPieces = model.attrs["pieces"]
    mentions = [MarkedMention("the", "renal failure", "is"), MarkedMention("", "heart", "and")]
    names = ["renal", "heart attack"]
    losses = model.predict((mentions, names))
    backbone = get_network(model).backbone
    for mention, name, loss in zip(mentions, names, losses, strict=True):
        source = torch.from_numpy(pieces.sources([mention]).flat)[None]
        (prompt,), (ids,) = pieces.prompts([mention]), [pieces.targets([mention], [name])[0].flat]
        ids, name_ids = torch.from_numpy(ids)[None], ids[len(prompt) :].tolist()
        logits = backbone(input_ids=source, decoder_input_ids=ids[:, :-1]).logits[0]
        logs = torch.log_softmax(logits, dim=-1)[len(prompt) - 1 :]
        expected = -logs[torch.arange(len(name_ids)), torch.tensor(name_ids)].mean()
        assert float(loss) == pytest.approx(expected.item(), abs=1e-5)


def test_a_loss_does_not_depend_on_its_batch(model):
    mentions = [MarkedMention(TEXT, "renal failure", TEXT), MarkedMention("", "heart", "")]
    together = model.predict((mentions, ["renal", "failure of the kidney"]))
    alone = model.predict((mentions[1:], ["failure of the kidney"]))
    assert float(together[1]) == pytest.approx(float(alone[0]), abs=1e-5)
    assert model.predict(([], [])).shape == (0,)


def test_it_learns_with_smoothed_labels():
    model = make()
    mentions = [MarkedMention("", name, "") for name in NAMES]
    before = float(model.predict((mentions, NAMES)).mean())
    optimizer = Adam(0.01)
    for _ in range(15):
        losses, backprop = model.begin_update((mentions, NAMES))
        backprop(losses * 0 + 1 / len(NAMES))
        model.finish_update(optimizer)
    after = float(model.predict((mentions, NAMES)).mean())
    assert after < 1.5 < 3 < before


# Beam search.


@pytest.fixture(scope="module")
def trie(model) -> NameTrie:
    rows = model.attrs["pieces"].for_names(NAMES)
    flat = np.array([i for row in rows for i in row])
    return trie_of(flat, np.array([len(row) for row in rows]), np.arange(len(NAMES)))


MENTIONS = [
    MarkedMention("the patient has", "renal failure", "and is"),
    MarkedMention("", "heart", ""),
    MarkedMention(TEXT, "kidney is", TEXT),
    MarkedMention("the patient has", "renal failure", "and is"),
]


@pytest.mark.parametrize("beams", [1, 2, len(NAMES)])
def test_beam_search_equals_the_textbook(trie, beams):
    model = make(beams=beams)
    pieces: MarkedPieces = model.attrs["pieces"]
    rows = [tuple(row) for row in pieces.for_names(NAMES) if row]
    backbone = get_network(model).backbone
    generated, n_cut = generate_names(model, trie, MENTIONS)
    assert n_cut == 0
    for number, mention in enumerate(MENTIONS):
        source = torch.from_numpy(pieces.sources([mention]).flat)[None]
        (prompt,) = pieces.prompts([mention])

        def after(beginning: tuple[int, ...]) -> Any:
            ids = torch.tensor([[*prompt, *beginning]])  # noqa: B023
            made = backbone(input_ids=source, decoder_input_ids=ids)  # noqa: B023
            return torch.log_softmax(made.logits[0, -1], dim=-1)

        live: dict[tuple[int, ...], float] = {(): 0.0}
        done: dict[tuple[int, ...], float] = {}
        while live:
            longer = {}
            for beginning, total in live.items():
                logs, n = after(beginning), len(beginning)
                for piece in {row[n] for row in rows if row[:n] == beginning and row[n:]}:
                    longer[*beginning, piece] = total + logs[piece].item()
            kept = sorted(longer, key=lambda row: -longer[row])[: beams - len(done)]
            done |= {row: longer[row] / len(row) for row in kept if row in rows}
            live = {row: longer[row] for row in kept if row not in rows}
        is_own = generated.mention == number
        names = trie.names_of(generated.leaf[is_own])[1].tolist()
        expected = sorted(done, key=lambda row: -done[row])
        assert [rows[name] for name in names] == expected
        assert generated.score[is_own].tolist() == pytest.approx(
            [done[row] for row in expected], abs=1e-5
        )


def test_the_same_alone_and_in_any_order(model, trie):
    together, _ = generate_names(model, trie, MENTIONS)
    assert generate_names(model, trie, [])[0].mention.tolist() == []
    for numbers in ([0], [1], [2, 0, 1]):
        found, _ = generate_names(model, trie, [MENTIONS[i] for i in numbers])
        for place, number in enumerate(numbers):
            single, batch = found.mention == place, together.mention == number
            assert found.leaf[single].tolist() == together.leaf[batch].tolist()
            assert found.score[single] == pytest.approx(together.score[batch], abs=1e-5)


# Files.


def test_tied_weights_are_stored_once(model):
    network = get_network(model)
    n = sum(tensor.numel() for tensor in network.state_dict().values())
    parameters = sum(p.numel() for p in network.parameters())
    buffers = sum(b.numel() for b in network.buffers())
    assert n == parameters + buffers


def test_a_checkpoint_without_markers_gets_them(tmp_path):
    tokenizer = train_vocabulary([*NAMES, "is"] * 2, size=100)
    tokenizer.add_special_tokens(["[PAD]", "[SEP]"])
    new_backbone(tokenizer, layers=1, width=16).save_pretrained(tmp_path)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    n = tokenizer.get_vocab_size()
    model = build_seq2seq_v1(path=str(tmp_path), max_pieces=16)
    add_encoder(model, Source())
    assert model.attrs["pieces"].markers == (n, n + 1)
    assert model.predict((MENTIONS, ["renal"] * 4)).shape == (4,)


def test_an_encoder_alone_and_too_little_room_are_refused(checkpoint):
    model = build_seq2seq_v1(path=str(checkpoint), max_pieces=16)
    with pytest.raises(BioelError, match=r"\[B280\].*'bert'.*encoder-decoder"):
        add_encoder(model, Source())
    with pytest.raises(BioelError, match=r"\[B154\]"):
        make(max_pieces=3)

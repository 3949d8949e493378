"""Transformer for spaCy's `tok2vec` pipe, applied to overlapping windows of long texts.

The detector and the linker listen to this pipe, so each document is encoded only once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import srsly
from safetensors import SafetensorError
from safetensors.numpy import load, save
from spacy.tokens import Doc
from thinc.api import Model, concatenate, get_torch_default_device
from thinc.types import Floats2d
from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.inference import Tok2Vec
from spacy_bioel.models.torch_io import AveragingShim, arrays_of, run_network, set_arrays
from spacy_bioel.plugins.contextual.errors import ContextualErrors
from spacy_bioel.plugins.contextual.transformers import (
    backbone_from_json,
    config_to_json,
    misfit,
    read_checkpoint,
    special_pieces,
)
from spacy_bioel.text.sentences import begins_sentence
from spacy_bioel.types import IntArray

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Kinds of boundary before a word piece; the higher the number, the better the place to cut.
INSIDE, TOKEN, SENTENCE = 0, 1, 2


class Window(NamedTuple):
    """Window of word pieces: [start, end) is encoded; only vectors in [first, last) are used."""

    start: int
    end: int
    first: int
    last: int


def split_windows(borders: Sequence[int], *, size: int, overlap: int) -> list[Window]:
    """Split pieces into windows of at most `size` pieces; each vector comes from one window.

    A window ends at the last sentence boundary in its second half, or else at the last token
    boundary, or else when it is full. The next window starts up to `overlap` pieces earlier, so
    that all pieces have context on both sides. The vectors for each half of the overlap come from
    the window whose edge is farther away.

    borders (Sequence[int]): Boundary before each piece: INSIDE, TOKEN or SENTENCE.
    size (int): Maximum number of pieces, at least 2.
    overlap (int): Maximum number of shared pieces, at most half of `size`.
    RETURNS (list[Window]): Windows from left to right; empty if there are no pieces.
    """
    windows: list[Window] = []
    n, start, first = len(borders), 0, 0
    while start + size < n:
        end = _best_cut(borders, start + size // 2 + 1, start + size, latest=True)
        next_start = _best_cut(borders, end - overlap, end - overlap // 2, latest=False)
        middle = (next_start + end) // 2
        windows.append(Window(start, end, first, middle))
        start, first = next_start, middle
    return [*windows, Window(start, n, first, n)] if n else []


def _best_cut(borders: Sequence[int], low: int, high: int, *, latest: bool) -> int:
    """Return the best cut in [low, high]; ties go to the first cut or, if `latest`, to the last."""
    positions = range(high, low - 1, -1) if latest else range(low, high + 1)
    return max(positions, key=lambda i: borders[i])


DocumentEncoder = Model[list[Doc], list[Floats2d]]


def build_transformer_v1(
    *,
    path: str | None = None,
    width: int = 768,
    max_pieces: int = 512,
    overlap: int = 128,
    learn_rate_scale: float = 1.0,
    mixed_precision: bool = False,
) -> DocumentEncoder:
    """Registered as `spacy-bioel.Transformer.v1`: a model for a `tok2vec` pipe.

    A document that exceeds the transformer's maximum length is cut into overlapping windows,
    preferably at sentence boundaries (see `split_windows`). A token's vector is the mean of its
    word pieces' vectors, or zero if it has no pieces, as for white space.

    path (str | None): Folder of a Hugging Face checkpoint with safetensors weights, or its id on
        the hub. `initialize` loads it.
    width (int): Size of the token vectors, which listeners need to know.
    max_pieces (int): Maximum number of word pieces in a window, including special ones.
    overlap (int): Number of word pieces shared by adjacent windows.
    learn_rate_scale (float): Factor on `training.optimizer.learn_rate`: pretrained weights need
        smaller steps than new ones.
    mixed_precision (bool): Train with bfloat16 autocast on a GPU, or on a CPU that supports it.
    RAISES BioelError: [B170] if windows are too short for their overlap.
    """
    if overlap < 0 or max_pieces < max(8, 4 * overlap):
        raise BioelError(ContextualErrors.B170.format(max_pieces=max_pieces, overlap=overlap))
    settings = {"learn_rate_scale": learn_rate_scale, "mixed_precision": mixed_precision}
    return Model(
        "document_transformer",
        _transformer_forward,
        init=_load_if_new,
        attrs={"extra": "transformers", "path": path, "max_pieces": max_pieces, "overlap": overlap},
        dims={"nO": width},
        shims=[_TransformerShim(None, config=settings)],
    )


class _TransformerShim(AveragingShim):
    """Shim that holds the network and its tokenizer, and serialises them without pickle."""

    tokenizer: Tokenizer
    prefix: list[int]
    suffix: list[int]
    config: str  # backbone configuration as JSON

    def set_backbone(self, tokenizer: Tokenizer, backbone: PreTrainedModel, config: str) -> None:
        from spacy_bioel.plugins.contextual.networks import DocumentTransformer

        self.prefix, self.suffix = special_pieces(tokenizer)
        self.tokenizer, self.config = tokenizer, config
        network = DocumentTransformer(backbone, **self.cfg)
        self._model = network.to(get_torch_default_device()).eval()

    def to_bytes(self) -> bytes:
        if self._model is None:
            return b""
        weights = save(arrays_of(self._model))
        parts = {"config": self.config, "tokenizer": self.tokenizer.to_str()}
        return srsly.msgpack_dumps(parts | {"cfg": self.cfg, "weights": weights})

    def from_bytes(self, bytes_data: bytes) -> _TransformerShim:
        """Load the output of `to_bytes`. RAISES BioelError: [B041] if the weights do not fit."""
        if bytes_data:
            parts = srsly.msgpack_loads(bytes_data)
            self.cfg = parts["cfg"]
            backbone = backbone_from_json(parts["config"])
            self.set_backbone(Tokenizer.from_str(parts["tokenizer"]), backbone, parts["config"])
            try:
                set_arrays(self._model, load(parts["weights"]))
            except (SafetensorError, RuntimeError) as error:
                raise BioelError(Errors.B041.format(reason=str(error)[:500])) from error
        return self


def _load_if_new(model: DocumentEncoder, X: object = None, Y: object = None) -> None:
    """Load the checkpoint, unless the network was loaded with a saved pipeline.

    RAISES BioelError: [B171] if no path is given, [B154] if the width differs; the same errors as
        `read_checkpoint`.
    """
    shim: Any = model.shims[0]
    if shim._model is not None:
        return
    if not model.attrs["path"]:
        raise BioelError(ContextualErrors.B171)
    folder, backbone, tokenizer = read_checkpoint(
        model.attrs["path"], max_pieces=model.attrs["max_pieces"]
    )
    width, expected = backbone.config.hidden_size, model.get_dim("nO")
    if width != expected:
        raise misfit(folder, f"vectors of {width} numbers", f"the width setting, {expected}")
    shim.set_backbone(tokenizer, backbone, config_to_json(backbone.config))


def _transformer_forward(
    model: DocumentEncoder, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
    shim: Any = model.shims[0]
    if shim._model is None:
        raise BioelError(ContextualErrors.B172)
    arrays = _windows(docs, shim, size=model.attrs["max_pieces"], overlap=model.attrs["overlap"])
    lengths: Any = [len(doc) for doc in docs]
    vectors, backprop = run_network(model, (*arrays, sum(lengths)), is_train)

    def backprop_docs(d_vectors: list[Floats2d]) -> list[Doc]:
        d_flat = model.ops.flatten(d_vectors)
        if d_flat.any():  # all zeros if no listener computed a loss on these documents
            backprop(d_flat)
        return []

    return model.ops.unflatten(vectors, lengths), backprop_docs


def _windows(
    docs: Sequence[Doc], shim: _TransformerShim, *, size: int, overlap: int
) -> list[IntArray]:
    """Build the arguments of `DocumentTransformer.forward`, except for the number of tokens."""
    prefix, suffix = shim.prefix, shim.suffix
    encodings = shim.tokenizer.encode_batch([doc.text for doc in docs], add_special_tokens=False)
    room = size - len(prefix) - len(suffix)
    empty = np.zeros(0, dtype=np.int64)
    ids: list[int] = []
    lengths, used, pieces, tokens = [], [empty], [empty], [empty]
    n_pieces = n_tokens = 0
    for doc, encoding in zip(docs, encodings, strict=True):
        piece, token = align(doc, encoding.offsets)
        pieces.append(piece + n_pieces)
        tokens.append(token + n_tokens)
        n_pieces += len(encoding.ids)
        n_tokens += len(doc)
        borders = _borders(doc, piece, token, len(encoding.ids))
        for window in split_windows(borders, size=room, overlap=overlap):
            # Piece i of the document is ids[origin + i].
            origin = len(ids) + len(prefix) - window.start
            used.append(np.arange(window.first, window.last) + origin)
            ids += [*prefix, *encoding.ids[window.start : window.end], *suffix]
            lengths.append(window.end - window.start + len(prefix) + len(suffix))
    flat = (np.array(numbers, dtype=np.int64) for numbers in (ids, lengths))
    return [*flat, *map(np.concatenate, (used, pieces, tokens))]


def align(doc: Doc, offsets: Sequence[tuple[int, int]]) -> tuple[IntArray, IntArray]:
    """Align word pieces and tokens that share characters.

    spaCy tokens and word pieces are independent of each other: a piece can overlap several tokens,
    and a token can have no piece.

    offsets (Sequence): Character offsets (start, end) of each piece.
    RETURNS (tuple[IntArray, IntArray]): Piece and token of each aligned pair, in the order of the
        pieces. Shape (n_pairs,).
    """
    starts, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
    token_starts = np.array([token.idx for token in doc], dtype=np.int64)
    token_ends = token_starts + np.array([len(token) for token in doc], dtype=np.int64)
    first = np.searchsorted(token_ends, starts, side="right")
    last = np.searchsorted(token_starts, ends, side="left")
    n_tokens = np.maximum(last - first, 0)
    piece = np.repeat(np.arange(len(starts)), n_tokens)
    within = np.arange(len(piece)) - np.repeat(np.cumsum(n_tokens) - n_tokens, n_tokens)
    return piece, first[piece] + within


def _borders(doc: Doc, piece: IntArray, token: IntArray, n_pieces: int) -> list[int]:
    """Classify the boundary before each piece, using the pairs from `align`."""
    borders = np.full(n_pieces, INSIDE)
    # A piece that spans two tokens starts in the first one, so only its first pair counts.
    is_first = np.append(True, (np.diff(token) > 0) & (np.diff(piece) > 0))[: len(token)]
    piece, token = piece[is_first], token[is_first]
    borders[piece] = TOKEN
    is_sentence_start = np.array(begins_sentence([t.text for t in doc]), dtype=bool)
    is_sentence_start[:1] = False  # never cut at the start of the text
    borders[piece[is_sentence_start[token]]] = SENTENCE
    return borders.tolist()


def build_with_spelling_v1(tok2vec: Tok2Vec, spelling: Tok2Vec) -> Tok2Vec:
    """Registered as `spacy-bioel.WithSpelling.v1`.

    An uncased checkpoint does not distinguish "NO" from "no", and splits "CYP2D6" into pieces. A
    small tok2vec over word shapes, prefixes and suffixes adds this information.

    tok2vec (Model): Any spaCy tok2vec, or a listener to a shared tok2vec.
    spelling (Model): A spaCy tok2vec over the same documents.
    RETURNS (Model): A tok2vec whose width is the sum of both widths.
    """
    return concatenate(tok2vec, spelling)

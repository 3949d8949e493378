"""Mention detection models, tok2vec -> logits of spans or tags: common part of all architectures.

An architecture is a network over the tokens of a batch with a `DetectorKind`: its inference by
NumPy, its loss and its decoding. There are two: spans and tags.

Mention detection by span enumeration: spans of up to L tokens, a binary decision per label.

Mention detection by BIO tagging, with BILOU tags.

The baseline to the span scorer in Bhowmik, Stratos and de Melo (2021), Fast and effective
biomedical entity linking using a dual encoder, https://aclanthology.org/2021.louhi-1.4. B, I and L
are the first, an inner and the last token of a mention, U is a mention of one token, O is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import FloatsXd

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.inference import detector_shapes, span_logits, tag_logits
from spacy_bioel.models.tok2vec import Tok2Vec, read_tokens, token_vectors
from spacy_bioel.models.torch_io import is_on_gpu, needs_torch, set_layer, torch_layer, weights_of
from spacy_bioel.parallel import one_thread_each
from spacy_bioel.types import IntArray

if TYPE_CHECKING:
    from torch import nn

# Features are the bits of a gazetteer mask, and one more: a short form that the document defines.
DEFINED_FORM = 64
N_FEATURES = 65


@dataclass(frozen=True)
class MentionBatch:
    """Documents, which may be empty, with their gazetteer matches.

    spans (NDArray[int64]): Matches of spans, (start, width - 1, feature); tokens are counted over
        all documents. Shape (n, 3).
    words (NDArray[int64]): Matches of single tokens, (token, feature). Shape (n, 2).
    """

    docs: list[Doc]
    spans: NDArray[np.int64]
    words: NDArray[np.int64]


# Start token, end token (exclusive) and label of each span of a batch, as tokens are counted there.
# Shape (n_spans, 3).
TokenSpans = NDArray[np.int64]

# Output of a network for the tokens of a batch. Shape (n_tokens, ...), by architecture.
Logits = NDArray[np.float32]

MentionModel = Model[MentionBatch, Logits]
# Token vectors, tokens per document, gazetteer matches of spans and of words; see `DetectorKind`.
Inputs = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

_TOKENS = 4096  # tokens scored together


@dataclass(frozen=True)
class DetectorKind:
    """Strategy of an architecture; module-level functions, so that it can be pickled.

    scorer (str): The network, a class of `models.networks`.
    infer (Callable): Computes the logits from weights, the inputs of the network as arrays, and
        max_width.
    loss (Callable): Computes the loss and its gradient from logits, gold spans, the probability of
        each, and the labels that were looked for at each token, shape (n_tokens, n_labels): what is
        not there of any other label is unknown.
    decode (Callable): Decodes logits, given the tokens of each document and a minimum probability,
        into spans in order of their start and their probabilities, shape (n_spans,).
    is_local (bool): Spans depend on the logits of their first token alone, and these on
        tokens and matches that are near: long documents are read in pieces.
    """

    scorer: str
    infer: Callable[..., Logits]
    loss: Callable[
        [Logits, TokenSpans, NDArray[np.float32], NDArray[np.bool_]], tuple[float, Logits]
    ]
    decode: Callable[[Logits, NDArray[np.int64], float], tuple[TokenSpans, NDArray[np.float32]]]
    is_local: bool = False


def mention_model(
    name: str, kind: DetectorKind, tok2vec: Tok2Vec, *, max_width: int, settings: dict[str, Any]
) -> MentionModel:
    """Make a model without its torch part, as the builders of the architectures do."""
    if any(node.attrs.get("extra") == "transformers" for node in tok2vec.walk()):
        raise BioelError(Errors.B173.format(name=name))
    return Model(
        name,
        _forward,
        init=None,
        layers=[tok2vec],
        attrs={"kind": kind, "max_width": max_width, "settings": settings},
        dims={"nO": None},
        refs={"tok2vec": tok2vec, "scorer": None},
    )


def add_scorer(model: MentionModel, *, n_labels: int, width: int | None = None) -> None:
    """Add the torch part to a model, in the place of an earlier one.

    width (int | None): Width of the token vectors; None: the width of the tok2vec.
    """
    settings = {
        "width": width or model.get_ref("tok2vec").get_dim("nO"),
        "n_labels": n_labels,
        "max_width": model.attrs["max_width"],
        "n_features": N_FEATURES,
        **model.attrs["settings"],
    }
    make = partial(_make_scorer, model.attrs["kind"].scorer, settings)
    set_layer(model, torch_layer(make=make, shapes=detector_shapes(**settings)), ref="scorer")
    model.set_dim("nO", n_labels, force=True)


def _make_scorer(name: str, settings: dict[str, int | float]) -> nn.Module:
    from spacy_bioel.models import networks

    scorer: nn.Module = getattr(networks, name)(**settings)
    return scorer


def mention_loss(
    model: MentionModel,
    logits: FloatsXd,
    gold: TokenSpans,
    likely: NDArray[np.float32],
    known: NDArray[np.bool_],
) -> tuple[float, FloatsXd]:
    """The loss of a batch and its gradient, on the device of the logits: `DetectorKind.loss`."""
    loss, gradient = model.attrs["kind"].loss(model.ops.to_numpy(logits), gold, likely, known)
    on_device: Any = model.ops.asarray(gradient)
    return loss, on_device


def find_spans(
    model: MentionModel, batch: MentionBatch, *, lowest: float
) -> tuple[TokenSpans, NDArray[np.float32]]:
    """Find spans of at least the lowest probability, in order, and the probability of each, in a
    batch of at least one token."""
    kind, scorer, width = model.attrs["kind"], model.get_ref("scorer"), model.attrs["max_width"]
    is_of_torch = needs_torch(scorer)
    by_torch = is_of_torch or is_on_gpu(scorer)
    weights = {} if by_torch else weights_of(scorer)
    # Tokens beside a piece of a document that its spans depend on; None: all.
    margin = 2 * (width - 1) if kind.is_local and not is_of_torch else None

    def find(part: tuple[int, slice, Inputs]) -> tuple[TokenSpans, NDArray[np.float32]]:
        first, used, inputs = part
        if by_torch:
            logits = scorer.ops.to_numpy(scorer.predict(inputs))
        else:
            logits = kind.infer(weights, *inputs, max_width=width)
        found, probabilities = kind.decode(logits[used], inputs[1], lowest)
        return found + np.array([first, first, 0]), probabilities

    with one_thread_each() as parallel_map:
        vectors = token_vectors(model.get_ref("tok2vec"), batch.docs, parallel_map=parallel_map)
        found = parallel_map(find, _parts(vectors, batch, margin))
    spans, probabilities = zip(*found, strict=True)
    return np.concatenate(spans), np.concatenate(probabilities)


def _parts(
    vectors: NDArray[np.float32], batch: MentionBatch, margin: int | None
) -> Iterator[tuple[int, slice, Inputs]]:
    """Split a batch: into whole documents without a margin, else at any token.

    YIELDS (tuple): The first token of a part, those of its inputs that are its own, and its inputs.
    """
    ends = np.cumsum([len(doc) for doc in batch.docs])
    edges = np.append(np.arange(0, ends[-1], _TOKENS), ends[-1])
    if margin is None:  # to the end of the document that is cut
        edges = np.unique(np.append(0, ends[np.searchsorted(ends, edges[1:])]))
    spans = batch.spans[np.argsort(batch.spans[:, 0], kind="stable")]
    for start, end in pairwise(edges.tolist()):
        low, high = max(0, start - (margin or 0)), min(int(ends[-1]), end + (margin or 0))
        lengths = np.diff(np.clip(ends, low, high), prepend=low)
        inside = _between(spans, low, high)
        inside = inside[inside[:, 0] + inside[:, 1] < high - low]
        inputs = (vectors[low:high], lengths, inside, _between(batch.words, low, high))
        yield start, slice(start - low, end - low), inputs


def _between(matches: NDArray[np.int64], low: int, high: int) -> NDArray[np.int64]:
    """Matches that begin at tokens from low to high, in this order, counted from low."""
    first, last = np.searchsorted(matches[:, 0], [low, high])
    found = matches[first:last].copy()
    found[:, 0] -= low
    return found


def _forward(
    model: MentionModel, batch: MentionBatch, is_train: bool
) -> tuple[FloatsXd, Callable[[FloatsXd], list[Doc]]]:
    tokens, backprop_tokens = read_tokens(model.get_ref("tok2vec"), batch.docs, is_train)
    lengths = np.array([len(doc) for doc in batch.docs], dtype=np.int64)
    inputs = (tokens, lengths, batch.spans, batch.words)
    scores, backprop_scores = model.get_ref("scorer")(inputs, is_train)

    def backprop(d_scores: FloatsXd) -> list[Doc]:
        return backprop_tokens(backprop_scores(d_scores)[0])

    return scores, backprop


def build_span_enumerator_v1(
    tok2vec: Tok2Vec,
    *,
    max_width: int = 10,
    hidden: int = 128,
    dropout: float = 0.2,
) -> MentionModel:
    """Registered as `spacy-bioel.SpanEnumerator.v1`.

    tok2vec (Model): Any spaCy tok2vec, or a listener to a shared one.
    max_width (int): L, the longest span in tokens; longer mentions cannot be found.
    hidden (int): Size of the hidden layer of the span scorer; 0: the linear score of Bhowmik et al.
        (2021), equation 4 as published, without hidden layer and width embedding, and with gazetteer
        matches as token features only.
    dropout (float): Dropout on token vectors and hidden layer, in training.
    RETURNS (Model[MentionBatch, Logits]): A model without its torch part, which `add_scorer` adds
        once the labels are known.
    RAISES BioelError: [B173] when the tok2vec is a transformer: only its weights would be saved.
    """
    settings = {"hidden": hidden, "dropout": dropout}
    return mention_model(
        "span_enumerator", _ENUMERATOR, tok2vec, max_width=max_width, settings=settings
    )


def _span_loss(
    logits: Logits, gold: TokenSpans, likely: NDArray[np.float32], known: NDArray[np.bool_]
) -> tuple[float, Logits]:
    """Binary cross-entropy, summed over all spans and the labels that were looked for, and divided
    by the gold mentions.

    logits (Logits): -inf for spans outside a document. Shape (n_tokens, max_width, n_labels).
    """
    short = gold[:, 1] - gold[:, 0] <= logits.shape[1]
    start, end, label = gold[short].T
    target = np.zeros(logits.shape, dtype="float32")
    np.maximum.at(target, (start, end - start - 1, label), likely[short])
    possible = np.isfinite(logits) & known[:, None, :]
    p = _sigmoid(logits)
    scale = 1.0 / max(1.0, target.sum())
    gradient = np.where(possible, (p - target) * scale, 0.0).astype("float32")
    log_p, log_rest = (np.log(np.maximum(x[possible], 1e-8)) for x in (p, 1 - p))
    target = target[possible]
    return float(-(target * log_p + (1 - target) * log_rest).sum() * scale), gradient


def _decode_spans(
    logits: Logits, lengths: NDArray[np.int64], lowest: float
) -> tuple[TokenSpans, NDArray[np.float32]]:
    """Decode all spans of at least the minimum probability, overlapping ones included."""
    probabilities = _sigmoid(logits)
    start, width, label = np.nonzero((probabilities >= lowest) & np.isfinite(logits))
    return np.stack([start, start + width + 1, label], axis=1), probabilities[start, width, label]


def _sigmoid(logits: Logits) -> Logits:
    # Clipped, because exp would overflow for the linear scores of wide spans.
    return (1 / (1 + np.exp(-np.maximum(logits, -80.0)))).astype("float32")


_ENUMERATOR = DetectorKind(
    "SpanScorer", infer=span_logits, loss=_span_loss, decode=_decode_spans, is_local=True
)


O, B, I, L, U = range(5)  # noqa: E741
# Whether a tag needs an open mention before it, and leaves one open.
_NEEDS_OPEN = np.array([0, 0, 1, 1, 0])
_LEAVES_OPEN = np.array([0, 1, 1, 0, 0])


def longest_spans(spans: IntArray) -> NDArray[np.bool_]:
    """Which of spans to keep without overlaps: the longest first, of equal length the first."""
    kept = np.zeros(len(spans), dtype=bool)
    taken: set[int] = set()
    for i in np.lexsort((spans[:, 1], spans[:, 0], spans[:, 0] - spans[:, 1])).tolist():
        tokens = range(*spans[i].tolist())
        kept[i] = taken.isdisjoint(tokens)
        if kept[i]:
            taken.update(tokens)
    return kept


def encode_bilou(spans: IntArray, n_tokens: int) -> IntArray:
    """Tag of each token. spans (IntArray): Without overlaps, shape (n, 2)."""
    tags = np.full(n_tokens, O)
    for start, end in spans.tolist():
        tags[start:end] = I
        tags[start], tags[end - 1] = B, L
        if end - start == 1:
            tags[start] = U
    return tags


def decode_bilou(
    logits: NDArray[np.float32], lengths: IntArray
) -> tuple[IntArray, NDArray[np.float64], IntArray]:
    """The most probable legal sequence of tags of each document, by the algorithm of Viterbi.

    logits (NDArray): Of the tags of all tokens, one document after the other. Shape (n_tokens, 5).
    lengths (IntArray): Tokens of each document.
    RETURNS (tuple): Start and end (exclusive) of each mention, counted over all documents, shape
        (n_mentions, 2); the lowest probability of its tags, (n_mentions,); and how many tokens of
        each document have another tag than their most probable one, (n_docs,).
    """
    scores = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
    scores = (scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))).astype(np.float64)
    tags = _best_legal(scores, lengths)
    start = np.flatnonzero((tags == B) | (tags == U))
    end = np.flatnonzero((tags == L) | (tags == U)) + 1
    # A last element, so that a mention may end with the last token; a legal sequence has no gaps.
    of_tags = np.append(np.exp(scores[np.arange(len(tags)), tags]), 1.0)
    borders = np.stack([start, end], axis=1)
    lowest = np.minimum.reduceat(of_tags, borders.ravel())[::2] if len(start) else np.zeros(0)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    repaired = np.bincount(owner, tags != scores.argmax(axis=1), minlength=len(lengths))
    return borders, lowest, repaired.astype(np.int64)


def _best_legal(scores: NDArray[np.float64], lengths: IntArray) -> IntArray:
    """Tags of all documents, computed for all of them at once, token by token."""
    n, longest = len(lengths), int(lengths.max(initial=0))
    first = np.cumsum(lengths) - lengths
    # Of the best sequences that leave no mention open, and that do: score, and last tag.
    best = np.tile([0.0, -np.inf], (n, 1))
    reached_by = np.zeros((longest, n, 2), dtype=np.int64)
    for at in range(longest):
        alive = np.flatnonzero(lengths > at)
        total = best[alive][:, _NEEDS_OPEN] + scores[first[alive] + at]  # (n_alive, 5)
        for leaves_open in (0, 1):
            tags = np.flatnonzero(_LEAVES_OPEN == leaves_open)
            reached_by[at, alive, leaves_open] = tags[total[:, tags].argmax(axis=1)]
            best[alive, leaves_open] = total[:, tags].max(axis=1)
    tags_of = np.zeros((longest, n), dtype=np.int64)
    is_open = np.zeros(n, dtype=np.int64)  # a document ends with all mentions closed
    for at in reversed(range(longest)):
        alive = np.flatnonzero(lengths > at)
        tags_of[at, alive] = reached_by[at, alive, is_open[alive]]
        is_open[alive] = _NEEDS_OPEN[tags_of[at, alive]]
    owner = np.repeat(np.arange(n), lengths)
    within = np.arange(int(lengths.sum())) - np.repeat(first, lengths)
    found: IntArray = tags_of[within, owner]
    return found


# BIO tags: 0 is O, followed by B of each label, then I of each label.


def build_bio_tagger_v1(
    tok2vec: Tok2Vec, *, max_width: int = 10, dropout: float = 0.2
) -> MentionModel:
    """Registered as `spacy-bioel.BioTagger.v1`.

    Fast, and not limited in the length of mentions. BIO tags cannot represent overlapping
    mentions: of these it learns the longest (at equal length the first) and predicts no other.

    The probability of a mention is the lowest of its tokens' probabilities. Unlike their product
    it does not fall with the length, so that one threshold suits all mentions. Decoding takes the
    most probable tag of each token whatever the threshold: a low one adds few mentions.

    tok2vec (Model): Any spaCy tok2vec, or a listener to a shared one.
    max_width (int): The longest gazetteer match in tokens.
    dropout (float): Dropout on token vectors, in training.
    RETURNS (Model[MentionBatch, Logits]): A model without its torch part, which `add_scorer` adds
        once the labels are known.
    RAISES BioelError: [B173] when the tok2vec is a transformer: only its weights would be saved.
    """
    settings = {"dropout": dropout}
    return mention_model("bio_tagger", _TAGGER, tok2vec, max_width=max_width, settings=settings)


def _tag_loss(
    logits: Logits, gold: TokenSpans, likely: NDArray[np.float32], known: NDArray[np.bool_]
) -> tuple[float, Logits]:
    """Cross-entropy of the tags, mean over tokens; of a token outside, O and the tags of all labels
    that were not looked for are right together. Only likely spans have tags.

    logits (Logits): Of the tags. Shape (n_tokens, 2 * n_labels + 1).
    """
    n_tokens, n_tags = logits.shape
    tags = _gold_tags(gold[likely >= 0.5], n_tokens, n_labels=n_tags // 2)
    right = np.arange(n_tags) == tags[:, None]
    right[:, 1:] |= (tags == 0)[:, None] & ~np.tile(known, 2)
    p = _softmax(logits)
    likelihood = np.maximum((p * right).sum(axis=1, keepdims=True), 1e-8)
    return float(-np.log(likelihood).mean()), (p - p * right / likelihood) / n_tokens


def _gold_tags(gold: TokenSpans, n_tokens: int, *, n_labels: int) -> NDArray[np.int64]:
    """Gold tag of each token; of overlapping mentions, the longest wins, then the first."""
    tags = np.zeros(n_tokens, dtype=np.int64)
    gold = gold[np.argsort(gold[:, 2], kind="stable")]
    for start, end, label in gold[longest_spans(gold[:, :2])].tolist():
        tags[start:end] = 1 + n_labels + label
        tags[start] = 1 + label
    return tags


def _decode_tags(
    logits: Logits, lengths: NDArray[np.int64], lowest: float
) -> tuple[TokenSpans, NDArray[np.float32]]:
    """Decode mentions from the most probable tag of each token.

    A mention starts at B, and at an I that follows O, another label or the start of a document.
    """
    n_labels = logits.shape[1] // 2
    tags, confidence = logits.argmax(axis=1), _softmax(logits).max(axis=1)
    labels = np.where(tags > 0, (tags - 1) % n_labels, -1)
    before = np.concatenate([[-1], labels[:-1]])
    before[(np.cumsum(lengths) - lengths)[lengths > 0]] = -1
    starts = (labels >= 0) & ((tags <= n_labels) | (labels != before))
    # A mention ends before the next start, before the next O, or with the last token.
    borders = np.append(np.flatnonzero(starts | (labels < 0)), len(tags))
    start = np.flatnonzero(starts)
    end = borders[np.searchsorted(borders, start, side="right")]
    lowest_of = [confidence[first:last].min() for first, last in zip(start, end, strict=True)]
    probabilities = np.array(lowest_of, dtype=np.float32)
    kept = probabilities >= lowest
    return np.stack([start, end, labels[start]], axis=1)[kept], probabilities[kept]


def _softmax(logits: Logits) -> Logits:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


_TAGGER = DetectorKind("TagScorer", infer=tag_logits, loss=_tag_loss, decode=_decode_tags)

"""Mention detection models, from token vectors to spans: span enumeration and BIO tagging.

An architecture is a network over the tokens in a batch, with a `DetectorKind` that defines its
inference in NumPy, loss and decoding. Span enumeration makes a binary decision for each label and
each span of up to L tokens. BIO tagging is the baseline in Bhowmik, Stratos and de Melo (2021),
Fast and effective biomedical entity linking using a dual encoder,
https://aclanthology.org/2021.louhi-1.4.

Contextual models use BILOU tags: B, I and L mark the first, inner and last tokens of a mention, U
marks a mention of one token, and O marks tokens outside mentions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import FloatsXd

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.inference import (
    START_BIAS,
    Tok2Vec,
    detector_shapes,
    read_tokens,
    span_logits,
    tag_logits,
    token_vectors,
)
from spacy_bioel.models.torch_io import is_on_gpu, set_layer, torch_layer, weights_of
from spacy_bioel.parallel import one_thread_each
from spacy_bioel.types import BoolArray, DoubleArray, FloatArray, IntArray

if TYPE_CHECKING:
    from torch import nn

# Features 0 to 63 are bits of a gazetteer mask; 64 marks short forms defined in the document.
DEFINED_FORM = 64
N_FEATURES = 65


@dataclass(frozen=True)
class MentionBatch:
    """Documents (possibly empty) with their gazetteer matches.

    spans (IntArray): Matched spans as rows (start, width - 1, feature); tokens are counted over
        all documents. Shape (n, 3).
    words (IntArray): Matched tokens as rows (token, feature). Shape (n, 2).
    """

    docs: list[Doc]
    spans: IntArray
    words: IntArray


# Start token, end token (exclusive) and label of each span, with tokens numbered across the batch.
# Shape (n_spans, 3).
TokenSpans = IntArray

# Network output for the tokens in a batch. Shape (n_tokens, ...), depending on the architecture.
Logits = FloatArray

MentionModel = Model[MentionBatch, Logits]
# Network inputs: token vectors, tokens per document, and gazetteer matches for spans and words.
Inputs = tuple[FloatArray, IntArray, IntArray, IntArray]

_TOKENS_PER_PART = 4096  # maximum number of tokens to score at once
O, B, I, L, U = range(5)  # noqa: E741
# Whether each BILOU tag continues an open mention, and whether it leaves one open.
_NEEDS_OPEN = np.array([0, 0, 1, 1, 0])
_LEAVES_OPEN = np.array([0, 1, 1, 0, 0])


@dataclass(frozen=True)
class DetectorKind:
    """An architecture's network, loss and decoding, as picklable module-level functions.

    scorer (str): The network, a class in `models.networks`.
    infer (Callable): Computes the logits from weights, the network inputs as arrays, and max_width.
    loss (Callable): Computes the loss and its gradient from logits, gold spans, their
        probabilities, and the labels that were annotated at each token, shape (n_tokens, n_labels).
        Mentions with other labels may exist but are unknown.
    decode (Callable): Decodes logits, given the number of tokens in each document and a minimum
        probability, into spans in order of their start, and their probabilities, shape (n_spans,).
    n_others (int): Number of outputs before the outputs for labels, such as the O tag.
    is_local (bool): Whether spans depend only on the logits of their first token, and these only on
        nearby tokens and matches, so that long documents can be split.
    """

    scorer: str
    infer: Callable[..., Logits]
    loss: Callable[[Logits, TokenSpans, FloatArray, BoolArray], tuple[float, Logits]]
    decode: Callable[[Logits, IntArray, float], tuple[TokenSpans, FloatArray]]
    n_others: int = 0
    is_local: bool = False


def mention_model(
    name: str, kind: DetectorKind, tok2vec: Tok2Vec, *, max_width: int, settings: dict[str, Any]
) -> MentionModel:
    """Build an architecture's model, without its torch part; see `add_scorer`."""
    if any(node.attrs.get("extra") == "transformers" for node in tok2vec.walk()):
        raise BioelError(Errors.B173.format(name=name))
    return Model(
        name,
        _forward_detector,
        init=None,
        layers=[tok2vec],
        attrs={"kind": kind, "max_width": max_width, "settings": settings, "quantized": False},
        dims={"nO": None},
        refs={"tok2vec": tok2vec, "scorer": None},
    )


def add_scorer(model: MentionModel, *, n_labels: int, width: int | None = None) -> None:
    """Add the torch part to a model, or replace it.

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


def set_labels(model: MentionModel, rows: Sequence[int | None]) -> None:
    """Rebuild a trained model's last layer for a different set of labels.

    rows (Sequence): For each label, the index of the label whose weights it copies. None: the label
        starts silent, with a low score for all spans.
    """
    weights, n_before = dict(weights_of(model.get_ref("scorer"))), model.get_dim("nO")
    last_layers = ("output.",) if "output.weight" in weights else ("start.", "end.", "content.")
    for name in (name for name in weights if name.startswith(last_layers)):
        others, of_labels = np.split(weights[name], [model.attrs["kind"].n_others])
        blocks = of_labels.reshape(-1, n_before, *of_labels.shape[1:])
        silent = np.full_like(blocks[:, :1], START_BIAS if name.endswith("bias") else 0.0)
        indices = [n_before if row is None else row for row in rows]
        blocks = np.concatenate([blocks, silent], axis=1)[:, indices]
        weights[name] = np.concatenate([others, blocks.reshape(-1, *of_labels.shape[1:])])
    add_scorer(model, n_labels=len(rows), width=weights["token_features.weight"].shape[1])
    model.get_ref("scorer").attrs["weights"] = weights


def _make_scorer(name: str, settings: dict[str, int | float]) -> nn.Module:
    from spacy_bioel.models import networks

    scorer: nn.Module = getattr(networks, name)(**settings)
    return scorer


def find_spans(
    model: MentionModel, batch: MentionBatch, *, min_probability: float
) -> tuple[TokenSpans, FloatArray]:
    """Return the spans that reach a minimum probability, in order, with their probabilities.

    batch (MentionBatch): A batch with at least one token.
    """
    kind, scorer, width = model.attrs["kind"], model.get_ref("scorer"), model.attrs["max_width"]
    on_gpu, quantized = is_on_gpu(scorer), model.attrs["quantized"]
    weights = {} if on_gpu else weights_of(scorer)
    # Tokens of context that a part needs on each side; None: whole documents.
    margin = 2 * (width - 1) if kind.is_local else None

    def find(part: tuple[int, slice, Inputs]) -> tuple[TokenSpans, FloatArray]:
        first, without_margin, inputs = part
        if on_gpu:
            logits = scorer.ops.to_numpy(scorer.predict(inputs))
        else:
            logits = kind.infer(weights, *inputs, max_width=width, quantized=quantized)
        spans, probabilities = kind.decode(logits[without_margin], inputs[1], min_probability)
        return spans + np.array([first, first, 0]), probabilities

    with one_thread_each(on_gpu=on_gpu) as parallel_map:
        vectors = token_vectors(
            model.get_ref("tok2vec"), batch.docs, parallel_map=parallel_map, quantized=quantized
        )
        found = parallel_map(find, _split_batch(vectors, batch, margin))
    spans, probabilities = zip(*found, strict=True)
    return np.concatenate(spans), np.concatenate(probabilities)


def _split_batch(
    vectors: FloatArray, batch: MentionBatch, margin: int | None
) -> Iterator[tuple[int, slice, Inputs]]:
    """Split a batch at any token boundary or, if `margin` is None, only between documents.

    YIELDS (tuple): The first token of a part, its tokens without the margins, and its inputs.
    """
    ends = np.cumsum([len(doc) for doc in batch.docs])
    n_tokens = int(ends[-1])
    edges = np.append(np.arange(0, n_tokens, _TOKENS_PER_PART), n_tokens)
    if margin is None:  # parts must end at document boundaries
        edges = np.unique(np.append(0, ends[np.searchsorted(ends, edges[1:])]))
    spans = batch.spans[np.argsort(batch.spans[:, 0], kind="stable")]
    for start, end in pairwise(edges.tolist()):
        low, high = max(0, start - (margin or 0)), min(n_tokens, end + (margin or 0))
        lengths = np.diff(np.clip(ends, low, high), prepend=low)
        inside = _matches_between(spans, low, high)
        inside = inside[inside[:, 0] + inside[:, 1] < high - low]
        words = _matches_between(batch.words, low, high)
        yield start, slice(start - low, end - low), (vectors[low:high], lengths, inside, words)


def _matches_between(matches: IntArray, low: int, high: int) -> IntArray:
    """Return matches starting in tokens [low, high), relative to low. `matches` must be sorted."""
    first, last = np.searchsorted(matches[:, 0], [low, high])
    inside = matches[first:last].copy()
    inside[:, 0] -= low
    return inside


def _forward_detector(
    model: MentionModel, batch: MentionBatch, is_train: bool
) -> tuple[FloatsXd, Callable[[FloatsXd], list[Doc]]]:
    model.attrs["quantized"] &= not is_train
    tokens, backprop_tokens = read_tokens(model.get_ref("tok2vec"), batch.docs, is_train)
    lengths = np.array([len(doc) for doc in batch.docs], dtype=np.int64)
    inputs = (tokens, lengths, batch.spans, batch.words)
    scores, backprop_scores = model.get_ref("scorer")(inputs, is_train)

    def backprop(d_scores: FloatsXd) -> list[Doc]:
        return backprop_tokens(backprop_scores(d_scores)[0])

    return scores, backprop


def build_span_enumerator_v1(
    tok2vec: Tok2Vec, *, max_width: int = 10, hidden: int = 128, dropout: float = 0.2
) -> MentionModel:
    """Registered as `spacy-bioel.SpanEnumerator.v1`.

    tok2vec (Model): Any spaCy tok2vec, or a listener to a shared tok2vec.
    max_width (int): L, the maximum span length in tokens; longer mentions cannot be found.
    hidden (int): Size of the span scorer's hidden layer. With 0, the score is linear, as in
        equation 4 of Bhowmik et al. (2021): there is no hidden layer and no width embedding, and
        gazetteer matches are token features only.
    dropout (float): Dropout on the token vectors and the hidden layer during training.
    RETURNS (Model[MentionBatch, Logits]): A model without its torch part, which `add_scorer` adds
        once the labels are known.
    RAISES BioelError: [B173] if the tok2vec is a transformer, as only its weights would be saved.
    """
    name, settings = "span_enumerator", {"hidden": hidden, "dropout": dropout}
    return mention_model(name, _ENUMERATOR, tok2vec, max_width=max_width, settings=settings)


def _span_loss(
    logits: Logits, gold: TokenSpans, probabilities: FloatArray, annotated: BoolArray
) -> tuple[float, Logits]:
    """Compute the binary cross-entropy per gold mention, over all spans and annotated labels.

    logits (Logits): -inf for spans outside a document. Shape (n_tokens, max_width, n_labels).
    """
    is_possible = gold[:, 1] - gold[:, 0] <= logits.shape[1]
    start, end, label = gold[is_possible].T
    target = np.zeros(logits.shape, dtype="float32")
    np.maximum.at(target, (start, end - start - 1, label), probabilities[is_possible])
    counted = np.isfinite(logits) & annotated[:, None, :]
    p = _sigmoid(logits)
    scale = 1.0 / max(1.0, target.sum())
    gradient = np.where(counted, (p - target) * scale, 0.0).astype("float32")
    log_p = np.log(np.maximum(p[counted], 1e-8))
    log_rest = np.log(np.maximum((1 - p)[counted], 1e-8))
    target = target[counted]
    return float(-(target * log_p + (1 - target) * log_rest).sum() * scale), gradient


def _decode_spans(
    logits: Logits, lengths: IntArray, min_probability: float
) -> tuple[TokenSpans, FloatArray]:
    """Decode all spans that reach the minimum probability, including overlapping ones."""
    # Most spans are far below the minimum, so compute exact probabilities only for the rest.
    lowest = np.log(min_probability) - 1 if min_probability > 0 else -np.inf
    start, width, label = np.nonzero(logits > lowest)
    # Use float64, so that the float32 result hardly ever depends on the processor.
    p = _sigmoid(logits[start, width, label].astype(np.float64))
    kept = p >= min_probability
    return np.stack([start, start + width + 1, label], axis=1)[kept], p[kept]


def _sigmoid(logits: Logits) -> Logits:
    # Clip logits, because exp would overflow for the linear scores of wide spans.
    return (1 / (1 + np.exp(-np.maximum(logits, -80.0)))).astype("float32")


_ENUMERATOR = DetectorKind(
    "SpanScorer", infer=span_logits, loss=_span_loss, decode=_decode_spans, is_local=True
)


def longest_spans(spans: IntArray) -> BoolArray:
    """Return a mask of non-overlapping spans, preferring longer, then earlier ones. Shape (n,)."""
    kept = np.zeros(len(spans), dtype=bool)
    taken: set[int] = set()
    for i in np.lexsort((spans[:, 1], spans[:, 0], spans[:, 0] - spans[:, 1])).tolist():
        tokens = range(*spans[i].tolist())
        kept[i] = taken.isdisjoint(tokens)
        if kept[i]:
            taken.update(tokens)
    return kept


def encode_bilou(spans: IntArray, n_tokens: int) -> IntArray:
    """Return the BILOU tag of each token.

    spans (IntArray): Spans without overlaps. Shape (n, 2).
    """
    tags = np.full(n_tokens, O)
    for start, end in spans.tolist():
        tags[start:end] = I
        tags[start], tags[end - 1] = B, L
        if end - start == 1:
            tags[start] = U
    return tags


def decode_bilou(logits: FloatArray, lengths: IntArray) -> tuple[IntArray, DoubleArray, IntArray]:
    """Decode each document's mentions from its most probable legal tag sequence (Viterbi).

    logits (FloatArray): Tag logits for the tokens of all documents in sequence. Shape
        (n_tokens, 5).
    lengths (IntArray): Number of tokens in each document.
    RETURNS (tuple): Start and end (exclusive) of each mention, counted over all documents, shape
        (n_mentions, 2); the lowest probability of its tags, (n_mentions,); and how many tokens in
        each document have a tag other than their most probable tag, (n_docs,).
    """
    scores = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
    scores = (scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))).astype(np.float64)
    tags = _most_probable_tags(scores, lengths)
    start = np.flatnonzero((tags == B) | (tags == U))
    end = np.flatnonzero((tags == L) | (tags == U)) + 1
    # The extra element lets a mention end at the last token. Legal mentions have no gaps.
    tag_probability = np.append(np.exp(scores[np.arange(len(tags)), tags]), 1.0)
    borders = np.stack([start, end], axis=1)
    lowest = np.minimum.reduceat(tag_probability, borders.ravel())[::2]
    doc_index = np.repeat(np.arange(len(lengths)), lengths)
    n_repaired = np.bincount(doc_index, tags != scores.argmax(axis=1), minlength=len(lengths))
    return borders, lowest, n_repaired.astype(np.int64)


def _most_probable_tags(scores: DoubleArray, lengths: IntArray) -> IntArray:
    """Find the most probable legal tags of all documents at once, token by token."""
    n, longest = len(lengths), int(lengths.max(initial=0))
    first = np.cumsum(lengths) - lengths
    # Scores of each document's best tag sequences: without and with a mention left open.
    best = np.tile([0.0, -np.inf], (n, 1))
    last_tag = np.zeros((longest, n, 2), dtype=np.int64)  # in the best sequence up to each token
    for position in range(longest):
        docs = np.flatnonzero(lengths > position)
        total = best[docs][:, _NEEDS_OPEN] + scores[first[docs] + position]  # (n_docs, 5)
        for leaves_open in (0, 1):
            tags = np.flatnonzero(_LEAVES_OPEN == leaves_open)
            last_tag[position, docs, leaves_open] = tags[total[:, tags].argmax(axis=1)]
            best[docs, leaves_open] = total[:, tags].max(axis=1)
    best_tags = np.zeros((longest, n), dtype=np.int64)
    is_open = np.zeros(n, dtype=np.int64)  # no mention is left open at the end of a document
    for position in reversed(range(longest)):
        docs = np.flatnonzero(lengths > position)
        best_tags[position, docs] = last_tag[position, docs, is_open[docs]]
        is_open[docs] = _NEEDS_OPEN[best_tags[position, docs]]
    doc_index = np.repeat(np.arange(n), lengths)
    position_in_doc = np.arange(int(lengths.sum())) - np.repeat(first, lengths)
    flat: IntArray = best_tags[position_in_doc, doc_index]
    return flat


# BIO tags are numbered in this order: O, B for each label, I for each label.


def build_bio_tagger_v1(
    tok2vec: Tok2Vec, *, max_width: int = 10, dropout: float = 0.2
) -> MentionModel:
    """Registered as `spacy-bioel.BioTagger.v1`.

    The tagger is fast and does not limit the length of mentions. BIO tags cannot represent
    overlapping mentions, so the tagger learns only the longest of them (the first, if they have the
    same length).

    The probability of a mention is the lowest of its tokens' probabilities. Unlike their product,
    this does not decrease with length, so that one threshold suits all mentions. Decoding uses the
    most probable tag of each token regardless of the threshold, so a low threshold adds few
    mentions.

    tok2vec (Model): Any spaCy tok2vec, or a listener to a shared tok2vec.
    max_width (int): Maximum length of a gazetteer match, in tokens.
    dropout (float): Dropout on the token vectors during training.
    RETURNS (Model[MentionBatch, Logits]): A model without its torch part, which `add_scorer` adds
        once the labels are known.
    RAISES BioelError: [B173] if the tok2vec is a transformer, as only its weights would be saved.
    """
    settings = {"dropout": dropout}
    return mention_model("bio_tagger", _TAGGER, tok2vec, max_width=max_width, settings=settings)


def _tag_loss(
    logits: Logits, gold: TokenSpans, probabilities: FloatArray, annotated: BoolArray
) -> tuple[float, Logits]:
    """Compute the cross-entropy of the tags, averaged over tokens.

    Only spans with a probability of at least 0.5 have tags. For tokens outside these spans, O and
    the tags of labels that were not annotated all count as correct.

    logits (Logits): Tag logits. Shape (n_tokens, 2 * n_labels + 1).
    """
    n_tokens, n_tags = logits.shape
    tags = _gold_tags(gold[probabilities >= 0.5], n_tokens, n_labels=n_tags // 2)
    is_right = np.arange(n_tags) == tags[:, None]
    is_right[:, 1:] |= (tags == 0)[:, None] & ~np.tile(annotated, 2)
    p = _softmax(logits)
    likelihood = np.maximum((p * is_right).sum(axis=1, keepdims=True), 1e-8)
    return float(-np.log(likelihood).mean()), (p - p * is_right / likelihood) / n_tokens


def _gold_tags(gold: TokenSpans, n_tokens: int, *, n_labels: int) -> IntArray:
    """Return the gold tag of each token; if mentions overlap, the longest (then the first) wins."""
    tags = np.zeros(n_tokens, dtype=np.int64)
    gold = gold[np.argsort(gold[:, 2], kind="stable")]
    for start, end, label in gold[longest_spans(gold[:, :2])].tolist():
        tags[start:end] = 1 + n_labels + label
        tags[start] = 1 + label
    return tags


def _decode_tags(
    logits: Logits, lengths: IntArray, min_probability: float
) -> tuple[TokenSpans, FloatArray]:
    """Decode mentions from the most probable tag of each token.

    A mention starts at B, or at an I after O, after another label or at the start of a document.
    """
    n_labels = logits.shape[1] // 2
    tags, confidence = logits.argmax(axis=1), _softmax(logits).max(axis=1)
    labels = np.where(tags > 0, (tags - 1) % n_labels, -1)
    label_before = np.concatenate([[-1], labels[:-1]])
    label_before[(np.cumsum(lengths) - lengths)[lengths > 0]] = -1
    is_start = (labels >= 0) & ((tags <= n_labels) | (labels != label_before))
    # A mention ends before the next start or O, or at the last token.
    borders = np.append(np.flatnonzero(is_start | (labels < 0)), len(tags))
    start = np.flatnonzero(is_start)
    end = borders[np.searchsorted(borders, start, side="right")]
    lowest = [confidence[first:last].min() for first, last in zip(start, end, strict=True)]
    probabilities = np.array(lowest, dtype=np.float32)
    kept = probabilities >= min_probability
    return np.stack([start, end, labels[start]], axis=1)[kept], probabilities[kept]


def _softmax(logits: Logits) -> Logits:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


_TAGGER = DetectorKind(
    "TagScorer", infer=tag_logits, loss=_tag_loss, decode=_decode_tags, n_others=1
)

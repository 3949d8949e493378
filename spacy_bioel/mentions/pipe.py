"""The `bioel_mentions` pipe: detects mentions with a model that scores spans or tags tokens."""

# No `from __future__ import annotations`: spaCy needs real types in annotations.

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from safetensors.numpy import load, save
from spacy.attrs import IS_SPACE
from spacy.language import Language
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example, validate_get_examples
from spacy.util import filter_spans
from spacy.vocab import Vocab
from thinc.api import Model

from spacy_bioel.doc import annotated_labels, gold_spans, long_forms, normalized_tokens, text_of
from spacy_bioel.entities import EntityRules
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.bundled import open_kbs, open_setting
from spacy_bioel.kb.gazetteer import Gazetteer, unpack_bits
from spacy_bioel.kb.knowledge_base import name_keys, open_kb
from spacy_bioel.mentions.find import MIN_SCORED_PROBABILITY, find, steps_of_detector, word_lists
from spacy_bioel.mentions.model import (
    DEFINED_FORM,
    Logits,
    MentionBatch,
    TokenSpans,
    add_scorer,
    find_spans,
    set_labels,
)
from spacy_bioel.models.inference import make_parameters
from spacy_bioel.models.torch_io import network_of, weights_from_bytes, weights_to_bytes
from spacy_bioel.parallel import in_halves
from spacy_bioel.pipe import SavedParts, StoredPipe, listens, require_token_vectors
from spacy_bioel.settings import CurrentSettings, MentionSettings
from spacy_bioel.text.normalize import BLANK_LINE, normalize_names, subscripts
from spacy_bioel.text.sentences import find_forms
from spacy_bioel.types import BoolArray, FloatArray, IntArray, ScoredSpan


class MentionDetector(StoredPipe[MentionSettings]):
    """Pipe that writes mentions to doc.spans["bioel"], with probabilities in attrs["scores"]."""

    def __init__(
        self,
        vocab: Vocab,
        model: Model[MentionBatch, Logits],
        name: str,
        *,
        settings: Mapping[str, Any],
        entities: Mapping[str, EntityRules | None] | None = None,
        scorer: Callable | None = None,
    ) -> None:
        self.vocab = vocab
        self.model = model
        self.name = name
        self.scorer = scorer
        self.gazetteer = Gazetteer()
        self.entities = RuleSet(entities or {})
        # Extra training spans by document text, for labels that have not been annotated.
        self.taught: Mapping[str, Sequence[ScoredSpan]] = {}
        self.cfg = CurrentSettings({"labels": [], **settings})
        self.check_settings()

    def read_settings(self) -> MentionSettings:
        """Validate and return the settings. RAISES BioelError: [B270]"""
        return MentionSettings.of({k: v for k, v in self.cfg.items() if k != "labels"})

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.cfg["labels"])

    @property
    def label_data(self) -> list[str]:
        return list(self.labels)

    def add_label(self, label: str) -> int:
        """Add a label before training. RAISES BioelError: [B050] if the model already exists."""
        if label in self.labels:
            return 0
        if self.model.maybe_get_ref("scorer") is not None:
            raise BioelError(Errors.B050.format(label=label, labels=", ".join(self.labels)))
        self.cfg["labels"].append(label)
        return 1

    def change_labels(self, starts: Mapping[str, str | None]) -> None:
        """Replace a trained detector's labels.

        starts (Mapping[str, str | None]): For each new label, the old label whose weights and
            `include` words it copies; None: the new label scores low everywhere.
        """
        rows = {label: row for row, label in enumerate(self.labels)}
        set_labels(self.model, [None if s is None else rows[s] for s in starts.values()])
        include = self.cfg["include"]
        self.cfg["include"] = {new: include[s] for new, s in starts.items() if s in include}
        self.cfg["labels"] = list(starts)

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Language | None = None,
        labels: Sequence[str] | None = None,
        kb: Any = None,
    ) -> None:
        """Collect labels, read a knowledge base for the span features, and build the network.

        labels (Sequence[str] | None): Label set, e.g. from `spacy init labels`.
        kb (KnowledgeBase | str | list | dict | None): A knowledge base, or a value of the linker's
            `kb` setting. Names and types become span features. The detector keeps a compact copy
            of them, and does not need the knowledge base afterwards.
        RAISES BioelError: [B051] if no example has a gold mention, [B331] if a label is not
            annotated in any example.
        """
        validate_get_examples(get_examples, "MentionDetector.initialize")
        key = self.cfg["gold_key"]
        groups = (e.reference.spans.get(key, []) for e in get_examples())
        for label in labels or sorted({span.label_ for group in groups for span in group}):
            self.add_label(label)
        if not self.labels:
            raise BioelError(Errors.B051.format(key=key))
        missing = set(self.labels)
        for example in get_examples():
            missing -= set(annotated_labels(example.reference, key=key) or self.labels)
            if not missing:
                break
        else:
            raise BioelError(Errors.B331.format(labels=", ".join(sorted(missing))))
        if kb is not None:
            if isinstance(kb, str | list | dict):
                kb = open_kbs(kb, open_setting)
            self.gazetteer = Gazetteer.from_kb(open_kb(kb))
        sample = [example.reference for example in islice(get_examples(), 10)]
        self.model.get_ref("tok2vec").initialize(X=sample)
        add_scorer(self.model, n_labels=len(self.labels))
        network_of(self.model.get_ref("scorer"))

    def predict(self, docs: Iterable[Doc]) -> list[list[ScoredSpan]]:
        """Find the mentions in each document as (start token, end token, label, probability).

        RAISES BioelError: The same errors as `find`.
        """
        return [of_doc.spans for of_doc in self.find(docs)]

    def find(
        self, docs: Iterable[Doc], *, min_probability: float = MIN_SCORED_PROBABILITY
    ) -> Sequence[FoundSpans]:
        """Find the mentions in each document, and log the reasons for explanations.

        min_probability (float): Lowest probability of a span that an explanation lists.
        RAISES BioelError: [B053] before training, [B174] if the token vectors are missing, and the
            same errors as `check_settings`.
        """
        docs = list(docs)
        self.check_settings()  # users may have changed the settings
        include, exclude = word_lists(self.cfg)
        if unknown := sorted(include.keys() - set(self.labels)):
            message = Warnings.W322.format(unknown=unknown, known=", ".join(self.labels))
            warnings.warn(message, stacklevel=2)
        score = partial(self.score_spans, min_probability=min_probability)
        scored = sum(in_halves(score, docs), [])
        pairs = zip(docs, scored, strict=True)
        found = [FoundSpans(doc, spans, excluded=exclude) for doc, spans in pairs]
        return find(found, steps_of_detector(self.cfg, self.rules))

    @property
    def rules(self) -> RuleSet:
        """The entity rules that apply to the detector's labels."""
        return self.entities.for_labels(self.labels)

    def score_spans(
        self, docs: list[Doc], *, min_probability: float = MIN_SCORED_PROBABILITY
    ) -> list[list[ScoredSpan]]:
        """Score each document's candidate mentions, before any selection.

        min_probability (float): Lowest probability of a returned span, if below the threshold.
        RAISES BioelError: The same errors as `predict`.
        """
        self.check_settings()
        if not self.labels:
            raise BioelError(Errors.B053.format(name=self.name))
        require_token_vectors(self.model, docs)
        scored: list[list[ScoredSpan]] = [[] for _ in docs]
        read_docs, words = self._as_read(docs)
        if not any(map(len, read_docs)):
            return scored
        batch, lowest = self._batch(read_docs), min(self.cfg["threshold"], min_probability)
        spans, probabilities = find_spans(self.model, batch, min_probability=lowest)
        offsets = np.cumsum([0] + [len(doc) for doc in read_docs])
        doc_indices = np.searchsorted(offsets, spans[:, 0], side="right") - 1
        first, last = np.concatenate(words).T
        starts, ends = first[spans[:, 0]], last[spans[:, 1] - 1] + 1
        columns = (doc_indices, starts, ends, spans[:, 2], probabilities)
        labels = self.labels  # read once, because the property copies a list
        for doc_index, start, end, label, p in zip(*(c.tolist() for c in columns), strict=True):
            scored[doc_index].append((start, end, labels[label], p))
        return scored

    def _as_read(self, docs: list[Doc]) -> tuple[list[Doc], list[IntArray]]:
        """Return the documents as the network reads them, and each word's first and last token.

        Line breaks are dropped, and words with subscripts ("H(2)O") are joined, unless the token
        vectors come from another pipe.
        """
        if listens(self.model):
            return docs, [np.arange(len(doc))[:, None].repeat(2, axis=1) for doc in docs]
        words = [_words_of(doc) for doc in docs]
        return [_doc_of_words(*pair) for pair in zip(docs, words, strict=True)], words

    def _batch(self, docs: list[Doc]) -> MentionBatch:
        return match_gazetteer(self.gazetteer, docs, max_width=self.model.attrs["max_width"])

    def set_annotations(self, docs: Iterable[Doc], scores: list[list[ScoredSpan]]) -> None:
        key, (_, exclude) = self.cfg["spans_key"], word_lists(self.cfg)
        for doc, mentions in zip(docs, scores, strict=True):
            spans = [Span(doc, start, end, label=label) for start, end, label, _ in mentions]
            attrs: dict[str, Any] = {"scores": [round(score, 4) for *_, score in mentions]}
            if exclude:  # names that the linker must not add
                attrs["exclude"] = sorted(exclude)
            doc.spans[key] = SpanGroup(doc, name=key, attrs=attrs, spans=spans)
            if self.cfg["set_ents"]:
                doc.set_ents(filter_spans(spans))

    def learn(self, examples: Sequence[Example]) -> float | None:
        docs, _ = self._as_read([example.predicted for example in examples])
        if not any(map(len, docs)):
            return None
        scores, backprop = self.model.begin_update(self._batch(docs))
        loss, d_scores = self.get_loss(examples, scores)
        backprop(d_scores)
        return loss

    def get_loss(self, examples: Iterable[Example], scores: Any) -> tuple[float, Any]:
        """Compute the loss and its gradient with respect to the logits `scores`."""
        compute_loss, ops = self.model.attrs["kind"].loss, self.model.ops
        loss, gradient = compute_loss(ops.to_numpy(scores), *self._targets(examples))
        return loss, ops.asarray(gradient)

    def _targets(self, examples: Iterable[Example]) -> tuple[TokenSpans, FloatArray, BoolArray]:
        """Return the gold mentions, their probabilities, and each token's annotated labels.

        Only tokens that the network reads are counted, over all documents. Shapes (n_mentions, 3),
        (n_mentions,), (n_tokens, n_labels). Warns [W346] about a label that the model lacks.
        """
        examples, key = list(examples), self.cfg["gold_key"]
        gold, probabilities, annotated, offset = [], [], [], 0
        _, words = self._as_read([example.predicted for example in examples])
        for example, (tokens, _) in zip(examples, map(np.transpose, words), strict=True):
            of_gold = [
                (s.start, s.end, s.label, s.probability) for s in gold_spans(example, key=key)
            ]
            for first, last, label, p in (*of_gold, *self.taught.get(example.text, ())):
                start, end = np.searchsorted(tokens, [first, last]).tolist()
                if label not in self.labels:
                    about = {"name": self.name, "label": label, "known": self.labels}
                    warnings.warn(Warnings.W346.format(**about), stacklevel=2)
                elif start < end:
                    gold.append((offset + start, offset + end, self.labels.index(label)))
                    probabilities.append(p)
            is_taught = example.text in self.taught
            doc_labels = () if is_taught else annotated_labels(example.reference, key=key)
            row = [not doc_labels or label in doc_labels for label in self.labels]
            annotated.append(np.tile(np.array(row, dtype=bool), (len(tokens), 1)))
            offset += len(tokens)
        spans = np.array(gold, dtype=np.int64).reshape(-1, 3)
        return spans, np.array(probabilities, dtype=np.float32), np.concatenate(annotated)

    # Serialisation, see pipe.py.

    def saved_state(self) -> dict[str, Any]:
        width = self.model.get_ref("tok2vec").maybe_get_dim("nO")
        return {"labels": list(self.labels), "width": width}

    def parts(self) -> SavedParts:
        return {
            "model.safetensors": lambda: weights_to_bytes(self.model),
            "gazetteer.safetensors": lambda: save(self.gazetteer.arrays()),
        }

    def load_parts(self, parts: Mapping[str, bytes], state: Mapping[str, Any]) -> None:
        self.cfg["labels"], width = list(state["labels"]), state["width"]
        self.gazetteer = Gazetteer.from_arrays(load(parts["gazetteer.safetensors"]))
        if self.labels:
            make_parameters(self.model.get_ref("tok2vec"))
            add_scorer(self.model, n_labels=len(self.labels), width=width)
            weights_from_bytes(self.model, parts["model.safetensors"])

    def __reduce__(self) -> tuple:
        # Needed by worker processes started with "spawn".
        about = {"settings": self.cfg, "entities": self.entities.rules, "scorer": self.scorer}
        make = partial(type(self), self.vocab, self.model, self.name, **about)
        return _unpickle_detector, (make, self.to_bytes())


def _unpickle_detector(make: Callable[[], MentionDetector], data: bytes) -> MentionDetector:
    return make().from_bytes(data)


def _words_of(doc: Doc) -> IntArray:
    """Return the first and last token of each word, skipping white space other than blank
    lines. "H(2)O" is one word. Shape (n, 2)."""
    white_space = np.flatnonzero(doc.to_array([IS_SPACE]).ravel()).tolist()
    left_out = [i for i in white_space if not BLANK_LINE.search(doc[i].text)]
    last = np.arange(len(doc))
    for start, end, _ in subscripts(text_of(doc), text_of(doc)):
        if (span := doc.char_span(start, end)) is not None:
            last[span.start] = span.end - 1
            left_out += range(span.start + 1, span.end)
    return np.delete(np.stack([np.arange(len(doc)), last], axis=1), left_out, axis=0)


def _doc_of_words(doc: Doc, words: IntArray) -> Doc:
    """Build a document from words, with a space wherever tokens between them were skipped."""
    if len(words) == len(doc):
        return doc
    first, last = words.T
    texts = [
        doc[i].text if i == j else doc[i : j + 1].text.replace("(", "").replace(")", "")
        for i, j in words.tolist()
    ]
    is_gap = np.append(first[1:], len(doc)) - last > 1
    ends = [doc[i].whitespace_ for i in last.tolist()]
    spaces = [bool(end or gap) for end, gap in zip(ends, is_gap.tolist(), strict=True)]
    return Doc(doc.vocab, texts, spaces)


def match_gazetteer(gazetteer: Gazetteer, docs: list[Doc], *, max_width: int) -> MentionBatch:
    """Match gazetteer names of up to `max_width` tokens, and single words from names."""
    lengths = np.array([len(doc) for doc in docs], dtype=np.int64)
    tokens = normalized_tokens(docs)
    spans = [np.stack(gazetteer.match_spans(tokens, max_width, lengths=lengths), axis=1)]
    for doc, offset in zip(docs, np.cumsum(lengths) - lengths, strict=True):
        spans.append(_match_defined_forms(gazetteer, doc, max_width=max_width) + [offset, 0, 0])
    words = np.stack(gazetteer.match_words(tokens), axis=1)
    return MentionBatch(docs, np.concatenate(spans), words)


def _match_defined_forms(gazetteer: Gazetteer, doc: Doc, *, max_width: int) -> IntArray:
    """Match short forms that the document defines, using their long forms. Shape (n, 3)."""
    matches, forms = list[tuple[int, int, int]](), long_forms(doc)
    long = list(dict.fromkeys(long for _, long in forms.pairs()))
    masks = gazetteer.names.find(name_keys(normalize_names(long)))
    bits = {
        long_form: [DEFINED_FORM, *unpack_bits(mask[None])[1].tolist()]
        for long_form, mask in zip(long, masks, strict=True)
    }
    for short, char_spans in find_forms(text_of(doc), forms).items():
        for start_char, end_char in char_spans:
            span = doc.char_span(start_char, end_char)
            if span is not None and len(span) <= max_width:
                long_form = forms.at(start_char, short) or ""
                matches += [(span.start, len(span) - 1, bit) for bit in bits[long_form]]
    return np.array(matches, dtype=np.int64).reshape(-1, 3)

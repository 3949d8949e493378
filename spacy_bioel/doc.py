"""Read and write gold mentions, mentions to link, and links on a Doc.

Links are stored in a span group and its attrs, which survive DocBin, `to_bytes` and `copy`; the
Span extensions are getters over them. (Values of Span extensions are keyed by character offsets
only, so two labels on the same characters would share a value.)

spaCy's projection of spans drops `kb_id`, so gold mentions are realigned here by character offsets,
and mentions that do not fit the tokens are counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

from spacy.attrs import IDX, LENGTH, ORTH
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example
from spacy.util import filter_spans

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.settings import GOLD_KEY, SPANS_KEY
from spacy_bioel.text.normalize import normalize_tokens
from spacy_bioel.text.sentences import find_abbreviations, find_short_binomials
from spacy_bioel.types import ANNOTATES, AnnotatedText, Candidate, Context, Link, ScoredSpan

NIL = "NIL"

_LINKS = "links"
_KB = "kb"  # fingerprint of the knowledge base of the candidates
_NIL_THRESHOLD = "nil_threshold"
_CONTEXTS = "contexts"
_OF_ENTS = "of_ents"  # whether the entities of the document have the ids of this group
_offsets_and_label = attrgetter("start", "end", "label")  # of a link

_DOC_TEXTS: WeakKeyDictionary[Doc, str] = WeakKeyDictionary()
_TOKEN_OFFSETS: WeakKeyDictionary[Doc, tuple[list[int], list[int]]] = WeakKeyDictionary()


def normalized_tokens(docs: Sequence[Doc]) -> list[str]:
    """Normalise the tokens of all documents."""
    tokens: list[str] = []
    normalized: dict[int, str] = {}
    for doc in docs:
        ids, strings = doc.to_array(ORTH).tolist(), doc.vocab.strings
        new = list(set(ids) - normalized.keys())
        normalized |= zip(new, normalize_tokens([strings[id_] for id_ in new]), strict=True)
        tokens += map(normalized.__getitem__, ids)
    return tokens


def text_of(doc: Doc) -> str:
    """Return the text of a document from a cache: spaCy joins the tokens at each `doc.text`."""
    if (text := _DOC_TEXTS.get(doc)) is None:
        text = _DOC_TEXTS[doc] = doc.text
    return text


def texts_of(doc: Doc, spans: Iterable[ScoredSpan]) -> list[str]:
    """Return the text of each span, like `doc[start:end].text`, but faster."""
    if (offsets := _TOKEN_OFFSETS.get(doc)) is None:
        starts, lengths = doc.to_array([IDX, LENGTH]).T.astype(int)
        offsets = _TOKEN_OFFSETS[doc] = starts.tolist(), (starts + lengths).tolist()
    text, (token_starts, token_ends) = text_of(doc), offsets
    return [text[token_starts[start] : token_ends[end - 1]] for start, end, *_ in spans]


@dataclass(frozen=True, slots=True)
class GoldSpan:
    """A gold mention on the tokens of a predicted Doc: tokens [start, end)."""

    start: int
    end: int
    label: str
    ids: tuple[str, ...]
    probability: float = 1.0


@dataclass
class Alignment:
    """Counts of all gold mentions and of the widened ones, and a list of the lost ones."""

    n: int = 0
    widened: int = 0
    lost: list[str] = field(default_factory=list)

    def add(self, other: Alignment) -> None:
        self.n += other.n
        self.widened += other.widened
        self.lost += other.lost


def split_kb_id(kb_id: str) -> tuple[str, ...]:
    """Split a `kb_id_` into ids: several for a composite, none for "" and "NIL"."""
    return () if kb_id in ("", NIL) else tuple(kb_id.split("|"))


def add_gold(
    doc: Doc, text: AnnotatedText, *, widen: bool = False, key: str = GOLD_KEY
) -> Alignment:
    """Write the gold mentions of `text` to a span group, doc.spans["bioel_gold"].

    widen (bool): Widen mentions that cut a token to whole tokens; otherwise they are lost.
    """
    alignment = Alignment(n=len(text.mentions))
    spans, scores = [], []
    for mention in text.mentions:
        to_span = partial(
            doc.char_span, mention.start, mention.end, mention.label, "|".join(mention.ids)
        )
        span = to_span()
        if span is None and widen:
            span = to_span(alignment_mode="expand")
            alignment.widened += span is not None
        if span is None:
            surface = text.text[mention.start : mention.end]
            alignment.lost.append(f"{text.id}:{mention.start}-{mention.end} {surface!r}")
        else:
            spans.append(span)
            scores.append(mention.probability)
    attrs: dict[str, Any] = {ANNOTATES: list(text.annotates)} if text.annotates else {}
    if min(scores, default=1.0) < 1:
        attrs["scores"] = scores
    doc.spans[key] = SpanGroup(doc, name=key, attrs=attrs, spans=spans)
    return alignment


def annotated_labels(doc: Doc, *, key: str = GOLD_KEY) -> tuple[str, ...]:
    """Return the labels that annotators looked for in a document, see `AnnotatedText`."""
    return tuple(doc.spans[key].attrs.get(ANNOTATES, ())) if key in doc.spans else ()


def gold_scores(doc: Doc, *, key: str = GOLD_KEY) -> list[float]:
    """Return the probability of each gold mention, see `Mention`."""
    group = doc.spans[key]
    return list(group.attrs.get("scores", ())) or [1.0] * len(group)


def with_gold_mentions(doc: Doc, text: AnnotatedText, *, spans_key: str = SPANS_KEY) -> Doc:
    """Write gold mentions, without their ids, to the span group that the linker reads."""
    spans = [
        doc.char_span(m.start, m.end, label=m.label, alignment_mode="expand") for m in text.mentions
    ]
    doc.spans[spans_key] = SpanGroup(doc, name=spans_key, spans=[s for s in spans if s is not None])
    return doc


def gold_spans(example: Example, *, key: str = GOLD_KEY) -> Iterator[GoldSpan]:
    """Yield the gold mentions of an example, aligned with the tokens of its predicted Doc."""
    if key not in example.reference.spans:
        return
    scores = gold_scores(example.reference, key=key)
    for span, score in zip(example.reference.spans[key], scores, strict=True):
        aligned = example.predicted.char_span(span.start_char, span.end_char)
        if aligned is not None:
            ids = split_kb_id(span.kb_id_)
            yield GoldSpan(aligned.start, aligned.end, span.label_, ids, score)


def mention_spans(doc: Doc, mentions: str, *, spans_key: str = SPANS_KEY) -> list[Span]:
    """Return the spans of a Doc that a linker has to link.

    mentions (str): "spans", "spans+dictionary", "ents", or "auto": the span group if there is one,
        else doc.ents.
    """
    if mentions.startswith("spans") or (mentions == "auto" and spans_key in doc.spans):
        return list(doc.spans[spans_key]) if spans_key in doc.spans else []
    return list(doc.ents)


def set_links(
    doc: Doc,
    links: Sequence[Link],
    *,
    spans_key: str = SPANS_KEY,
    kb: str = "",
    nil_threshold: float = 0.0,
    adds: bool = False,
) -> None:
    """Write links as a new span group.

    If the links are those of the spans in the old group, the scores of the detector are kept.

    kb (str): Fingerprint of the knowledge base of the candidates.
    adds (bool): The linker may have added links to those of the spans; they get a score of 1.
    RAISES BioelError: [B057] when offsets are not token borders.
    """
    spans = []
    for link in links:
        kb_id = "|".join(link.ids) or NIL
        span = doc.char_span(link.start, link.end, label=link.label, kb_id=kb_id, span_id=spans_key)
        if span is None:
            raise BioelError(Errors.B057.format(start=link.start, end=link.end))
        spans.append(span)
    old = doc.spans[spans_key] if spans_key in doc.spans else None
    attrs: dict[str, Any] = {}
    keys, old_keys = list(map(_offsets_and_label, links)), list(map(_span_key, old or ()))
    if old is not None and old_keys == keys:
        attrs |= old.attrs
    elif old is not None and adds and len(scores := old.attrs.get("scores", ())) == len(old):
        score_of = dict(zip(old_keys, scores, strict=True))
        attrs = {**old.attrs, "scores": [score_of.get(key, 1.0) for key in keys]}
    records = []
    for link in sorted(links, key=attrgetter("start", "end")):  # `record_of` bisects them
        candidates = [[c.id, c.score, c.name, c.evidence] for c in link.candidates]
        records.append([*_offsets_and_label(link), candidates, dict(link.facts)])
    attrs |= {_LINKS: records, _KB: kb, _NIL_THRESHOLD: nil_threshold}
    doc.spans[spans_key] = SpanGroup(doc, name=spans_key, attrs=attrs, spans=spans)


def _span_key(span: Span) -> tuple[int, int, str]:
    return span.start_char, span.end_char, span.label_


def get_links(doc: Doc, spans_key: str = SPANS_KEY) -> list[Link]:
    """Return the links of a Doc, in the order of its span group, which may have been changed.

    RAISES BioelError: [B052] when a span without a link was added to the group.
    """
    if spans_key not in doc.spans:
        return []
    group = doc.spans[spans_key]
    known: dict[tuple[int, int, str], tuple[tuple[Candidate, ...], dict[str, Any]]] = {}
    for start, end, label, records, facts in group.attrs.get(_LINKS, ()):
        known[start, end, label] = _candidates(group, records), facts
    links, contexts = [], _contexts(group)
    for span in group:
        key = _span_key(span)
        if _LINKS in group.attrs and key not in known:
            raise BioelError(Errors.B052.format(key=spans_key, text=span.text, place=key[:2]))
        candidates, facts = known.get(key, ((), {}))
        ids, context = split_kb_id(span.kb_id_), contexts.get(key[:2])
        links.append(Link(*key, ids, candidates, context, facts))
    return links


def set_contexts(doc: Doc, contexts: Sequence[Context], *, spans_key: str) -> None:
    """Write the context of each span of a group, see `entities.notes.context`."""
    group = doc.spans[spans_key]
    flags = attrgetter("negated", "uncertain", "historical", "hypothetical", "experiencer", "cues")
    group.attrs[_CONTEXTS] = [
        [span.start_char, span.end_char, *flags(context)]
        for span, context in zip(group, contexts, strict=True)
    ]


def _contexts(group: SpanGroup) -> dict[tuple[int, int], Context]:
    contexts = {}
    for start, end, *flags, cues in group.attrs.get(_CONTEXTS, ()):
        values: Any = (*flags, tuple(map(tuple, cues)))
        contexts[start, end] = Context(*values)
    return contexts


def context_of(span: Span) -> Context | None:
    """Return the context of a span; None if it is not a mention, or `bioel_context` did not run."""
    for group in _groups_of(span):
        if context := _contexts(group).get((span.start_char, span.end_char)):
            return context
    return None


def _candidates(group: SpanGroup, records: Sequence[Any]) -> tuple[Candidate, ...]:
    kb = group.attrs.get(_KB, "")
    return tuple(Candidate(id, score, name, evidence, kb) for id, score, name, evidence in records)


def set_ent_links(doc: Doc, *, spans_key: str) -> None:
    """Copy the ids of links to the entities that were linked, see `set_links`."""
    linked = list(doc.spans[spans_key])
    doc.ents = [  # `ent.id` is the id of an entity ruler
        Span(doc, ent.start, ent.end, ent.label, kb_id=link.kb_id, span_id=ent.id)
        for ent, link in zip(doc.ents, linked, strict=True)
    ]
    _mark_as_entities(doc, spans_key)


def set_links_as_ents(doc: Doc, *, spans_key: str) -> None:
    """Replace the entities with the links; where links overlap, with the longest.

    Links without a label are left out, because spaCy has no such entities.
    """
    spans = filter_spans([span for span in doc.spans[spans_key] if span.label])
    doc.ents = [Span(doc, s.start, s.end, s.label, kb_id=s.kb_id) for s in spans]
    _mark_as_entities(doc, spans_key)


def _mark_as_entities(doc: Doc, spans_key: str) -> None:
    for key, group in doc.spans.items():
        if _LINKS in group.attrs:
            group.attrs[_OF_ENTS] = key == spans_key


def record_of(span: Span) -> tuple[Link, SpanGroup] | None:
    """Return the stored link of a span, and the group that has it; None if it is not a mention."""
    key = _span_key(span)
    for group in _groups_of(span):
        records = group.attrs.get(_LINKS, ())
        first = bisect_left(records, key[0], key=lambda record: record[0])
        for start, end, label, candidate_records, facts in islice(records, first, None):
            if (start, end, label) == key:
                candidates = _candidates(group, candidate_records)
                return Link(*key, split_kb_id(span.kb_id_), candidates, facts=facts), group
            if start > key[0]:
                break
    return None


def _groups_of(span: Span) -> list[SpanGroup]:
    """Return the groups that may hold the link of a span, the most probable first.

    The id of a linked span is the name of its group. Entities have the ids of the group that was
    last written to `doc.ents`.
    """
    groups = span.doc.spans
    if span.id_ in groups:
        return [groups[span.id_]]
    return sorted(groups.values(), key=lambda group: not group.attrs.get(_OF_ENTS, False))


def likeliest(spans: Iterable[ScoredSpan]) -> list[ScoredSpan]:
    """Merge spans with the same tokens and label; the highest probability is kept."""
    probabilities: dict[tuple[int, int, str], float] = {}
    for start, end, label, p in spans:
        probabilities[start, end, label] = max(p, probabilities.get((start, end, label), 0.0))
    return [(*key, p) for key, p in probabilities.items()]


# Cached for all pipes: the text of a document does not change.
_LONG_FORMS: WeakKeyDictionary[Doc, dict[str, str]] = WeakKeyDictionary()


def long_forms(doc: Doc) -> dict[str, str]:
    """Return the long form of each short form that the document defines.

    These are abbreviations and short species names ("F. johnsoniae"). If scispacy's abbreviation
    detector ran, its abbreviations are taken instead.
    """
    if Doc.has_extension("abbreviations") and doc._.abbreviations:
        return dict(_scispacy_forms(short) for short in doc._.abbreviations)
    if doc not in _LONG_FORMS:
        text = text_of(doc)
        _LONG_FORMS[doc] = find_short_binomials(text) | find_abbreviations(text)
    return _LONG_FORMS[doc]


def _scispacy_forms(short: Span | dict[str, Any]) -> tuple[str, str]:
    """Return the short and the long form of an abbreviation of scispacy."""
    if isinstance(short, dict):  # with make_serializable = True
        return str(short["short_text"]), str(short["long_text"])
    return short.text, str(short._.long_form)

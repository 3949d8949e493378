"""Mentions on a Doc: gold ones, those to be linked, and the links, which all else reads here.

Links live in a span group and its attrs, which survive DocBin, `to_bytes` and `copy`; the Span
extensions are getters over them. (Span extensions themselves are keyed by character offsets alone,
so that two labels on one stretch of text would share a value.)

spaCy's own projection of spans drops `kb_id`, so gold is realigned here by character offsets, and
what does not fit the tokens is counted, never lost in silence.
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
_KB = "kb"  # fingerprint of the knowledge base that candidates are from
_NIL_THRESHOLD = "nil_threshold"
_CONTEXTS = "contexts"
_PLACE = attrgetter("start", "end", "label")
_OF_ENTS = "of_ents"  # whether the entities of the document have the ids of this group


_TEXTS: WeakKeyDictionary[Doc, str] = WeakKeyDictionary()
_PLACES: WeakKeyDictionary[Doc, tuple[list[int], list[int]]] = WeakKeyDictionary()


def normalized_tokens(docs: Sequence[Doc]) -> list[str]:
    """Normalise the tokens of all documents."""
    found: list[str] = []
    words: dict[int, str] = {}
    for doc in docs:
        ids, strings = doc.to_array(ORTH).tolist(), doc.vocab.strings
        new = list(set(ids) - words.keys())
        words |= zip(new, normalize_tokens([strings[id_] for id_ in new]), strict=True)
        found += map(words.__getitem__, ids)
    return found


def text_of(doc: Doc) -> str:
    """Return the text of a document, which spaCy puts together each time that it is asked."""
    if (text := _TEXTS.get(doc)) is None:
        text = _TEXTS[doc] = doc.text
    return text


def texts_of(doc: Doc, spans: Iterable[ScoredSpan]) -> list[str]:
    """Return the text of each span, as `doc[start:end].text` does, but fast."""
    if (places := _PLACES.get(doc)) is None:
        starts, lengths = doc.to_array([IDX, LENGTH]).T.astype(int)
        places = _PLACES[doc] = starts.tolist(), (starts + lengths).tolist()
    text, (first, last) = text_of(doc), places
    return [text[first[start] : last[end - 1]] for start, end, *_ in spans]


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
    """How many gold mentions there were, how many were widened to whole tokens, and the lost."""

    n: int = 0
    widened: int = 0
    lost: list[str] = field(default_factory=list)

    def add(self, other: Alignment) -> None:
        self.n += other.n
        self.widened += other.widened
        self.lost += other.lost


def split_ids(kb_id: str) -> tuple[str, ...]:
    """The ids in a `kb_id_`: several for a composite, none for "" and "NIL"."""
    return () if kb_id in ("", NIL) else tuple(kb_id.split("|"))


def add_gold(
    doc: Doc, text: AnnotatedText, *, widen: bool = False, key: str = GOLD_KEY
) -> Alignment:
    """Write the gold mentions of `text` to a span group, doc.spans["bioel_gold"].

    widen (bool): Stretch a mention that cuts a token to whole tokens; otherwise it is lost.
    """
    alignment = Alignment(n=len(text.mentions))
    spans, scores = [], []
    for mention in text.mentions:
        about = {"label": mention.label, "kb_id": "|".join(mention.ids)}
        to_span = partial(doc.char_span, mention.start, mention.end, **about)
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
    """Labels that were looked for in a document, see `AnnotatedText`."""
    return tuple(doc.spans[key].attrs.get(ANNOTATES, ())) if key in doc.spans else ()


def gold_scores(doc: Doc, *, key: str = GOLD_KEY) -> list[float]:
    """The probability of each gold mention, see `Mention`."""
    group = doc.spans[key]
    return list(group.attrs.get("scores", ())) or [1.0] * len(group)


def with_gold_mentions(doc: Doc, text: AnnotatedText, *, spans_key: str = SPANS_KEY) -> Doc:
    """Put the places and labels of gold mentions, never their ids, where the linker looks."""
    spans = [
        doc.char_span(m.start, m.end, label=m.label, alignment_mode="expand") for m in text.mentions
    ]
    doc.spans[spans_key] = SpanGroup(doc, name=spans_key, spans=[s for s in spans if s is not None])
    return doc


def gold_spans(example: Example, *, key: str = GOLD_KEY) -> Iterator[GoldSpan]:
    """Gold mentions of an example on the tokens of its predicted Doc, by character offsets."""
    if key not in example.reference.spans:
        return
    scores = gold_scores(example.reference, key=key)
    for span, score in zip(example.reference.spans[key], scores, strict=True):
        aligned = example.predicted.char_span(span.start_char, span.end_char)
        if aligned is not None:
            ids = split_ids(span.kb_id_)
            yield GoldSpan(aligned.start, aligned.end, span.label_, ids, score)


def mention_spans(doc: Doc, mentions: str, *, spans_key: str = SPANS_KEY) -> list[Span]:
    """The spans of a Doc that a linker is to link.

    mentions (str): "spans", "spans+dictionary", "ents", or "auto": the span group if it is there, else
        doc.ents.
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
    """Write links as a new span group; the scores a detector left in the group are kept, if the
    links are those of its spans. The records are sorted by place, to be found quickly.

    kb (str): Fingerprint of their knowledge base.
    adds (bool): Others may be among them, which get a score of 1.
    RAISES BioelError: [B057] when offsets do not fall on token borders.
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
    places, before = list(map(_PLACE, links)), list(map(_place_of, old or ()))
    if old is not None and before == places:
        attrs |= old.attrs
    elif old is not None and adds and len(scores := old.attrs.get("scores", ())) == len(old):
        known = dict(zip(before, scores, strict=True))
        attrs = {**old.attrs, "scores": [known.get(place, 1.0) for place in places]}
    attrs[_LINKS] = [
        [
            *_PLACE(link),
            [[c.id, c.score, c.name, c.evidence] for c in link.candidates],
            dict(link.facts),
        ]
        for link in sorted(links, key=attrgetter("start", "end"))
    ]
    attrs |= {_KB: kb, _NIL_THRESHOLD: nil_threshold}
    doc.spans[spans_key] = SpanGroup(doc, name=spans_key, attrs=attrs, spans=spans)


def _place_of(span: Span) -> tuple[int, int, str]:
    return span.start_char, span.end_char, span.label_


def get_links(doc: Doc, spans_key: str = SPANS_KEY) -> list[Link]:
    """Links of a Doc, in the order of its span group, which may have been sorted or filtered.

    RAISES BioelError: [B052] when a span was added to the group without a link record.
    """
    if spans_key not in doc.spans:
        return []
    group = doc.spans[spans_key]
    records = group.attrs.get(_LINKS, ())
    known = {tuple(place): (_candidates(group, of), facts) for *place, of, facts in records}
    links, said = [], _contexts(group)
    for span in group:
        place = _place_of(span)
        if _LINKS in group.attrs and place not in known:
            raise BioelError(Errors.B052.format(key=spans_key, text=span.text, place=place[:2]))
        ids, (found, facts) = split_ids(span.kb_id_), known.get(place, ((), {}))
        links.append(Link(*place, ids, found, said.get(place[:2]), facts))
    return links


def set_contexts(doc: Doc, contexts: Sequence[Context], *, spans_key: str) -> None:
    """Write what the text says of each span of a group, see `entities.notes.context`."""
    group = doc.spans[spans_key]
    flags = attrgetter("negated", "uncertain", "historical", "hypothetical", "experiencer", "cues")
    group.attrs[_CONTEXTS] = [
        [span.start_char, span.end_char, *flags(said)]
        for span, said in zip(group, contexts, strict=True)
    ]


def _contexts(group: SpanGroup) -> dict[tuple[int, int], Context]:
    found = {}
    for start, end, *flags, cues in group.attrs.get(_CONTEXTS, ()):
        values: Any = (*flags, tuple(map(tuple, cues)))
        found[start, end] = Context(*values)
    return found


def context_of(span: Span) -> Context | None:
    """What the text says of a span; None: it is no mention, or `bioel_context` did not run."""
    place = (span.start_char, span.end_char)
    found = (_contexts(group).get(place) for group in _groups_of(span))
    return next((said for said in found if said is not None), None)


def _candidates(group: SpanGroup, records: Sequence[Any]) -> tuple[Candidate, ...]:
    kb = group.attrs.get(_KB, "")
    return tuple(Candidate(id, score, name, evidence, kb) for id, score, name, evidence in records)


def set_ent_links(doc: Doc, *, spans_key: str) -> None:
    """Give the entities the ids of the links that were made of them, see `set_links`."""
    linked = list(doc.spans[spans_key])
    # A copy of the entities, with their ids of an entity ruler.
    doc.ents = [
        Span(doc, ent.start, ent.end, ent.label, kb_id=link.kb_id, span_id=ent.id)
        for ent, link in zip(doc.ents, linked, strict=True)
    ]
    _mark_as_entities(doc, spans_key)


def set_links_as_ents(doc: Doc, *, spans_key: str) -> None:
    """Make entities of links in place of those that are there, the longest of links that overlap.

    Links without a label are left out: spaCy has no such entities.
    """
    spans = filter_spans([span for span in doc.spans[spans_key] if span.label])
    doc.ents = [Span(doc, s.start, s.end, s.label, kb_id=s.kb_id) for s in spans]
    _mark_as_entities(doc, spans_key)


def _mark_as_entities(doc: Doc, spans_key: str) -> None:
    for key, group in doc.spans.items():
        if _LINKS in group.attrs:
            group.attrs[_OF_ENTS] = key == spans_key


def record_of(span: Span) -> tuple[Link, SpanGroup] | None:
    """The link that is stored of a span, and the group that has it; None: it is no mention."""
    place = _place_of(span)
    for group in _groups_of(span):
        records = group.attrs.get(_LINKS, ())
        first = bisect_left(records, place[0], key=lambda record: record[0])
        for start, end, label, candidates, facts in islice(records, first, None):
            if (start, end, label) == place:
                found = _candidates(group, candidates)
                return Link(*place, split_ids(span.kb_id_), found, facts=facts), group
            if start > place[0]:
                break
    return None


def _groups_of(span: Span) -> list[SpanGroup]:
    """Groups that may hold the link of a span, the likeliest first.

    A linked span is marked with the name of its group. An entity has the link that was made of
    it last.
    """
    groups = span.doc.spans
    if span.id_ in groups:
        return [groups[span.id_]]
    return sorted(groups.values(), key=lambda group: not group.attrs.get(_OF_ENTS, False))


# Short forms of documents, for all pipes. The text of a document does not change.
_FOUND: WeakKeyDictionary[Doc, dict[str, str]] = WeakKeyDictionary()


def likeliest(spans: Iterable[ScoredSpan]) -> list[ScoredSpan]:
    """Return the likeliest of the spans of each place and label."""
    found: dict[tuple[int, int, str], float] = {}
    for start, end, label, p in spans:
        found[start, end, label] = max(p, found.get((start, end, label), 0.0))
    return [(*place, p) for place, p in found.items()]


def long_forms(doc: Doc) -> dict[str, str]:
    """Short forms that the document defines, and short names of species that it writes out
    ("F. johnsoniae"); scispacy's detector is believed if it ran.
    """
    if Doc.has_extension("abbreviations") and doc._.abbreviations:
        return dict(_read(short) for short in doc._.abbreviations)
    if doc not in _FOUND:
        text = text_of(doc)
        _FOUND[doc] = find_short_binomials(text) | find_abbreviations(text)
    return _FOUND[doc]


def _read(short: Span | dict[str, Any]) -> tuple[str, str]:
    """Short and long form of one of scispacy's: a span, or a dict with make_serializable = True."""
    if isinstance(short, dict):
        return str(short["short_text"]), str(short["long_text"])
    return short.text, str(short._.long_form)

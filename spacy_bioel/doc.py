"""Read and write gold mentions, mentions to link, and links on a Doc.

A link's record (candidates, facts) is a value of the Span extension `bioel_records`, so it stays
with the mention's characters if a span group is filtered, sorted, assigned or copied, and in
`Doc.copy`, `Doc.from_docs`, pickles and `to_bytes`. A value contains the records of all labels and
span groups for its characters. The facts are also stored in the span group attributes, so that a
DocBin without user data keeps them.

spaCy drops `kb_id` when it projects spans, so gold mentions are realigned here by character
offsets, and mentions that do not fit the tokens are counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

from spacy.attrs import IDX, LENGTH, ORTH
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example
from spacy.util import filter_spans

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.found import FoundSpans
from spacy_bioel.registered import declared_facts
from spacy_bioel.settings import GOLD_KEY, SPANS_KEY
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.text.sentences import LongForms, find_abbreviations, find_short_binomials
from spacy_bioel.types import ANNOTATES, NIL, AnnotatedText, Candidate, Link, ScoredSpan, SpanKey

RECORDS = "bioel_records"  # Span extension: label -> span group key -> record
_LINKS = "links"  # span group attribute: offsets, label, and a record with only id and facts
_ADDED = "added"  # span group attribute: offsets and labels of mentions added by the linker.
# Span group attribute that `bioel_names` sets: whether only unambiguous names were looked for, and
# for each name its offsets, label, name to look up (or "") and probability (or None).
_NAMES = "names"
_FROM_ENTS = "from_ents"  # span group attribute: whether the mentions are the doc's entities
_offsets_and_label = attrgetter("start", "end", "label")  # the `_span_key` of a link.
# A record has the keys id, in_ents and facts; unless it comes from a span group, it also has
# candidates, kb, nil_threshold and probability.
Record = dict[str, Any]

# Cached texts never go stale: spaCy changes the text of empty documents only, and merging or
# splitting tokens does not change the text.
_DOC_TEXTS: WeakKeyDictionary[Doc, str] = WeakKeyDictionary()


def normalized_tokens(docs: Sequence[Doc]) -> list[str]:
    """Return the normalised tokens of all documents."""
    tokens: list[str] = []
    normalized: dict[int, str] = {}
    for doc in docs:
        ids, strings = doc.to_array(ORTH).tolist(), doc.vocab.strings
        new = set(ids).difference(normalized)  # the `-` operator would iterate over all keys
        normalized |= zip(new, normalize_names([strings[id_] for id_ in new]), strict=True)
        tokens += map(normalized.__getitem__, ids)
    return tokens


def text_of(doc: Doc) -> str:
    """Return a document's text from a cache, because `doc.text` joins the tokens on each access."""
    text = _DOC_TEXTS.get(doc)
    if not text:
        text = _DOC_TEXTS[doc] = doc.text
    return text


def texts_of(doc: Doc, spans: Iterable[ScoredSpan]) -> list[str]:
    """Return the text of each span, like `doc[start:end].text`, but faster."""
    starts, lengths = doc.to_array([IDX, LENGTH]).T.astype(int)
    text, first, last = text_of(doc), starts.tolist(), (starts + lengths).tolist()
    return [text[first[start] : last[end - 1]] for start, end, *_ in spans]


@dataclass(frozen=True, slots=True)
class GoldSpan:
    """A gold mention aligned with tokens [start, end) of a predicted Doc."""

    start: int
    end: int
    label: str
    ids: tuple[str, ...]
    probability: float = 1.0


@dataclass
class Alignment:
    """The number of gold mentions, how many of them were widened, and a list of those lost."""

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
    """Write the gold mentions in `text` to a span group, doc.spans["bioel_gold"] by default.

    widen (bool): Widen mentions that start or end inside a token; otherwise, they are lost.
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
            alignment.lost.append(f"{text.id}:{mention.start}-{mention.end} {surface!r:.80}")
        else:
            spans.append(span)
            scores.append(mention.probability)
    attrs: dict[str, Any] = {ANNOTATES: list(text.annotates)} if text.annotates else {}
    if min(scores, default=1.0) < 1:
        attrs["scores"] = scores
    doc.spans[key] = SpanGroup(doc, name=key, attrs=attrs, spans=spans)
    return alignment


def annotated_labels(doc: Doc, *, key: str = GOLD_KEY) -> tuple[str, ...]:
    """Return the labels that a document's annotators looked for (see `AnnotatedText`)."""
    return tuple(doc.spans[key].attrs.get(ANNOTATES, ())) if key in doc.spans else ()


def gold_scores(doc: Doc, *, key: str = GOLD_KEY) -> list[float]:
    """Return the probability of each gold mention (see `Mention`)."""
    group = doc.spans[key]
    return list(group.attrs.get("scores", ())) or [1.0] * len(group)


def with_gold_mentions(doc: Doc, text: AnnotatedText, *, spans_key: str = SPANS_KEY) -> Doc:
    """Write gold mentions, without their ids, to the linker's span group."""
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


def takes_entities(doc: Doc, mentions: str, *, spans_key: str = SPANS_KEY) -> bool:
    """Return whether a linker with this `mentions` setting links a document's entities."""
    if mentions != "auto" or spans_key not in doc.spans:
        return mentions in ("ents", "auto")
    attrs = doc.spans[spans_key].attrs
    return bool(attrs.get(_FROM_ENTS)) and _NAMES not in attrs


def mention_spans(doc: Doc, mentions: str, *, spans_key: str = SPANS_KEY) -> list[Span]:
    """Return the spans to link, excluding any that the linker itself added in an earlier run.

    mentions (str): "spans", "spans+dictionary", "ents", or "auto": the span group if there is one,
        else doc.ents.
    RAISES BioelError: [B505] if a span does not fit the tokens because they were changed.
    """
    if takes_entities(doc, mentions, spans_key=spans_key):
        return list(doc.ents)
    if spans_key not in doc.spans:
        return []
    group = doc.spans[spans_key]
    added = set(map(tuple, group.attrs.get(_ADDED, ()))) if _NAMES not in group.attrs else ()
    return [_realigned(span) for span in group if not added or _span_key(span) not in added]


def stored_names(doc: Doc, spans_key: str) -> Mapping[str, Any]:
    """Return the attribute that `bioel_names` stored in a span group, or {}."""
    return doc.spans[spans_key].attrs.get(_NAMES, {}) if spans_key in doc.spans else {}


def set_names(found: FoundSpans, mentions: Collection[SpanKey], *, spans_key: str) -> None:
    """Write mentions, and any other names that were found, to a new span group for a linker."""
    doc, spans, places = found.doc, found.to_spans(), [span[:3] for span in found.spans]
    pairs = list(zip(keys := list(map(_span_key, spans)), places, strict=True))
    rows = [
        [*key, found.names.get(tokens, ""), found.meant.get(tokens)]
        for key, tokens in pairs
        if tokens in found.names or tokens in found.meant
    ]
    attrs = _attrs_with_scores(doc.spans[spans_key], keys) if spans_key in doc.spans else {}
    attrs.pop(_LINKS, None)
    from_ents = takes_entities(doc, "auto", spans_key=spans_key)
    about = {"unambiguous": found.has_unambiguous, "from_ents": from_ents, "rows": rows}
    attrs |= {_NAMES: about, _ADDED: [list(key) for key, tokens in pairs if tokens not in mentions]}
    _forget_records(doc, spans_key)
    doc.spans[spans_key] = SpanGroup(doc, name=spans_key, attrs=attrs, spans=spans)


def forget_names(doc: Doc, spans_key: str) -> None:
    """Remove the spans and attributes that `set_names` or a later linker added to a span group."""
    if stored := stored_names(doc, spans_key):
        group = doc.spans[spans_key]
        added = set(map(tuple, group.attrs[_ADDED]))
        spans = [_realigned(span) for span in group if _span_key(span) not in added]
        attrs = _attrs_with_scores(group, list(map(_span_key, spans)))
        del attrs[_NAMES], attrs[_ADDED], doc.spans[spans_key]
        if not stored["from_ents"]:
            doc.spans[spans_key] = SpanGroup(doc, name=spans_key, attrs=attrs, spans=spans)


def _attrs_with_scores(group: SpanGroup, keys: Sequence[tuple[int, int, str]]) -> dict[str, Any]:
    """Return a group's attributes with its scores mapped to other spans; unknown spans score 1."""
    attrs = dict(group.attrs)
    if len(scores := attrs.pop("scores", ())) == len(group):
        score_of = dict(zip(map(_span_key, group), scores, strict=True))
        attrs["scores"] = [score_of.get(key, 1.0) for key in keys]
    return attrs


def fits_tokens(span: Span) -> bool:
    """Whether a span still fits the tokens; spaCy does not update groups after retokenizing."""
    doc = span.doc
    if span.end > len(doc):
        return False
    last = doc[span.end - 1]
    return doc[span.start].idx == span.start_char and last.idx + len(last) == span.end_char


def _realigned(span: Span) -> Span:
    if fits_tokens(span):
        return span
    doc = span.doc
    about: Any = {"label": span.label, "kb_id": span.kb_id, "span_id": span.id}
    realigned = doc.char_span(span.start_char, span.end_char, **about)
    if realigned is None:
        place = (span.start_char, span.end_char)
        raise BioelError(Errors.B505.format(label=span.label_, place=place))
    return realigned


def set_links(
    doc: Doc,
    links: Sequence[Link],
    *,
    spans_key: str = SPANS_KEY,
    kb: str = "",
    nil_threshold: float = 0.0,
    adds: bool = False,
    from_ents: bool = False,
) -> None:
    """Write links as a new span group, with a record for each link.

    Detector scores are kept if the links match the spans in the old group; ids of matching spans
    (`span.id_`) are always kept.

    kb (str): Fingerprint of the knowledge base, for candidates that do not have their own.
    adds (bool): The linker may have linked additional mentions, which get a score of 1.
    from_ents (bool): The mentions are the document's entities.
    RAISES BioelError: [B057] if an offset is not a token boundary.
    """
    old = doc.spans[spans_key] if spans_key in doc.spans else None
    old_spans = list(old or ())
    keys, old_keys = list(map(_offsets_and_label, links)), list(map(_span_key, old_spans))
    old_ids = dict(zip(old_keys, (span.id_ for span in old_spans), strict=True))
    attrs: dict[str, Any] = {}
    if old is not None and (adds or old_keys == keys):
        attrs = _attrs_with_scores(old, keys)
    if adds:
        known = set(old_keys).difference(map(tuple, (old.attrs if old else {}).get(_ADDED, ())))
        attrs[_ADDED] = [list(key) for key in keys if key not in known]
    probabilities = attrs.get("scores", ())
    spans, records, stored = [], [], []
    offsets = doc.to_array(["IDX", "LENGTH"]).tolist()  # `char_span` is slower
    starts = {start: i for i, (start, _) in enumerate(offsets)}
    ends = {start + length: i for i, (start, length) in enumerate(offsets, start=1)}
    for number, link in enumerate(links):
        key, kb_id = keys[number], "|".join(link.ids) or NIL
        if link.start not in starts or link.end not in ends or link.start >= link.end:
            raise BioelError(Errors.B057.format(start=link.start, end=link.end))
        tokens, span_id = (starts[link.start], ends[link.end]), old_ids.get(key) or spans_key
        spans.append(Span(doc, *tokens, link.label, kb_id=kb_id, span_id=span_id))
        # The garbage collector skips tuples of strings and numbers, but not lists.
        candidates = tuple([(c.id, c.score, c.name, c.evidence) for c in link.candidates])
        record: Record = {
            "id": kb_id,
            "candidates": candidates,
            "facts": dict(link.facts),
            "kb": next((c.kb for c in link.candidates), "") or kb,
            "nil_threshold": nil_threshold,
            "probability": probabilities[number] if len(probabilities) == len(links) else None,
        }
        records.append(record)
        stored.append([*key, {"id": kb_id, "facts": record["facts"]}])
    attrs |= {_LINKS: stored, _FROM_ENTS: from_ents}
    _forget_records(doc, spans_key)
    for key, record in zip(keys, records, strict=True):
        _records_at(doc, key)[spans_key] = record
    doc.spans[spans_key] = SpanGroup(doc, name=spans_key, attrs=attrs, spans=spans)


def _value_key(start: int, end: int) -> tuple[str, str, int, int]:
    """Return the `doc.user_data` key of a Span extension; spaCy shifts and copies such keys."""
    return "._.", RECORDS, start, end


def _value_keys(doc: Doc) -> list[Any]:
    """Return the `doc.user_data` keys of all records."""
    values: dict[Any, Any] = doc.user_data
    return [key for key in values if isinstance(key, tuple) and key[:2] == ("._.", RECORDS)]


def _records_at(doc: Doc, key: tuple[int, int, str]) -> dict[str, Record]:
    """Return the records for these offsets and label, by span group; callers may modify them."""
    start, end, label = key
    values: dict[Any, Any] = doc.user_data
    records: dict[str, Record] = values.setdefault(_value_key(start, end), {}).setdefault(label, {})
    return records


def _forget_records(doc: Doc, spans_key: str) -> None:
    """Remove the records of a span group that is about to be linked again."""
    for key in _value_keys(doc):
        labels = {
            label: others
            for label, records in doc.user_data[key].items()
            if (others := {k: record for k, record in records.items() if k != spans_key})
        }
        if labels:
            doc.user_data[key] = labels
        else:
            del doc.user_data[key]


def _span_key(span: Span) -> tuple[int, int, str]:
    return span.start_char, span.end_char, span.label_


def record_of(span: Span, spans_key: str = "") -> Record | None:
    """Return a mention's record, or None if the document has none.

    If several linkers have linked the same characters with the same label, choose the record from
    the group `spans_key`, or from the group in `span.id_`. Failing both, prefer records with the
    span's concept id, then records of the linker that set the ids of `doc.ents`, then newer ones.
    """
    (*offsets, label), doc = _span_key(span), span.doc
    values: dict[Any, Any] = doc.user_data
    value_key = _value_key(*offsets)
    if value_key not in values and not _value_keys(doc):  # from a DocBin without user data
        for group_key, group in doc.spans.items():
            for *place, record in group.attrs.get(_LINKS, ()):
                _records_at(doc, place)[group_key] = dict(record)
    records: dict[str, Record] = values.get(value_key, {}).get(label)
    if not records:
        return None
    for key in (spans_key, span.id_):
        if key in records:
            return records[key]
    same_id = [record for record in records.values() if record["id"] == span.kb_id_]
    newest_first = (same_id or list(records.values()))[::-1]
    return max(newest_first, key=lambda record: bool(record.get("in_ents")))


def get_links(doc: Doc, spans_key: str = SPANS_KEY) -> list[Link]:
    """Return a Doc's links, in the order of its span group (which may have been edited).

    RAISES BioelError: [B052] if a span without a link was added to the group.
    """
    if spans_key not in doc.spans:
        return []
    group, links = doc.spans[spans_key], []
    for span in group:
        record = record_of(span, spans_key)
        if record is None and _LINKS in group.attrs:
            place = (span.start_char, span.end_char)
            raise BioelError(Errors.B052.format(key=spans_key, text=span.text, place=place))
        links.append(link_of(span, record or {}))
    return links


def link_of(span: Span, record: Record) -> Link:
    """Build a span's link from its record."""
    kb = record.get("kb", "")
    candidates = tuple(
        Candidate(id, score, name, evidence, kb)
        for id, score, name, evidence in record.get("candidates", ())
    )
    return Link(*_span_key(span), split_kb_id(span.kb_id_), candidates, facts_of(span, record))


def facts_of(span: Span, record: Record) -> dict[str, Any]:
    """Return the facts in a span's record, with offsets into the document."""
    facts = dict(record.get("facts", {}))
    for name, declared in declared_facts().items():
        if name in facts:
            facts[name] = declared.moved(facts[name], span.start_char)
    return facts


def set_fact(doc: Doc, name: str, values: Sequence[Any], *, spans_key: str) -> None:
    """Write a declared fact about each span in a group; `values` have offsets into the document."""
    group, declared = doc.spans[spans_key], declared_facts()[name]
    stored: dict[Any, Record] = {tuple(key): r for *key, r in group.attrs.get(_LINKS, ())}
    for span, value in zip(group, values, strict=True):
        new = {"id": span.kb_id_, "facts": {}}
        facts = stored.setdefault(_span_key(span), new)["facts"]
        facts[name] = declared.moved(value, -span.start_char)
        _records_at(doc, _span_key(span)).setdefault(spans_key, dict(new))["facts"] = facts
    group.attrs[_LINKS] = [[*key, record] for key, record in stored.items()]


def linked_groups(doc: Doc) -> list[str]:
    """Return the keys of span groups written by linkers and detectors."""
    written = {_LINKS, "scores"}
    return [key for key, group in doc.spans.items() if not written.isdisjoint(group.attrs)]


def set_ent_links(doc: Doc, *, spans_key: str) -> None:
    """Copy the linked ids to the entities (see `set_links`)."""
    id_of = {_span_key(link): link.kb_id for link in doc.spans[spans_key]}
    doc.ents = [  # `ent.id` may hold the id of an entity ruler's pattern
        Span(doc, e.start, e.end, e.label, kb_id=id_of.get(_span_key(e), e.kb_id), span_id=e.id)
        for e in doc.ents
    ]
    _mark_as_entities(doc, spans_key)


def set_links_as_ents(doc: Doc, *, spans_key: str) -> None:
    """Replace the entities with the links, keeping the longest if links overlap.

    Links without a label are skipped, because spaCy does not allow entities without a label.
    """
    spans = filter_spans([span for span in doc.spans[spans_key] if span.label])
    doc.ents = [Span(doc, s.start, s.end, s.label, kb_id=s.kb_id) for s in spans]
    _mark_as_entities(doc, spans_key)


def _mark_as_entities(doc: Doc, spans_key: str) -> None:
    """Mark the records of the linker that set the entities' ids."""
    for key, group in doc.spans.items():
        for start, end, label, stored in group.attrs.get(_LINKS, ()):
            for record in (stored, _records_at(doc, (start, end, label))[key]):
                record["in_ents"] = key == spans_key


def long_forms(doc: Doc) -> LongForms:
    """Return the long form of each short form that the document defines.

    Short forms are abbreviations and short species names ("F. johnsoniae"). If scispaCy's
    abbreviation detector has run, its abbreviations are used instead.
    """
    if Doc.has_extension("abbreviations") and doc._.abbreviations:
        try:
            return LongForms(_scispacy_forms(short) for short in doc._.abbreviations)
        except (AttributeError, KeyError, TypeError):
            warnings.warn(Warnings.W325, stacklevel=2)
    return _long_forms_of(text_of(doc))


@lru_cache(maxsize=256)  # each pipe asks for the same texts
def _long_forms_of(text: str) -> LongForms:
    return find_short_binomials(text) | find_abbreviations(text)


def _scispacy_forms(short: Span | dict[str, Any]) -> tuple[str, str]:
    """Return the short and long forms of an abbreviation found by scispaCy."""
    if isinstance(short, dict):  # if scispaCy has make_serializable = True
        return str(short["short_text"]), str(short["long_text"])
    return short.text, str(short._.long_form)

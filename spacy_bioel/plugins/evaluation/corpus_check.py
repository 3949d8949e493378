"""Examine the training and development documents of a corpus before training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from spacy.language import Language
from spacy.util import filter_spans

from spacy_bioel.errors import Errors, Warnings
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.validation import KnownIds
from spacy_bioel.plugins.evaluation.errors import EvaluationErrors, EvaluationWarnings
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText

# Tolerate a smaller share of mentions that split a word, such as "DOX" in "DOXtreated".
_MIN_SHARE_INSIDE_WORDS = 0.01
_DOCUMENTS, _MENTIONS, _WITHOUT_ID = "documents", "mentions", "mentions without an id (NIL)"
_NESTED, _CROSSING = "mentions inside another mention", "mentions that overlap another in part"
_INSIDE_WORD = "mentions that start or end inside a word"
_LOST_BY_TAGS = "mentions that a BIO tagger would lose"
_SPACE_IN_ID = "ids with white space"
_REPEATED = tuple(f"documents with the {what} of an earlier one" for what in ("text", "id"))
COUNTS = (
    *(_DOCUMENTS, _MENTIONS, _WITHOUT_ID, _NESTED, _CROSSING, _INSIDE_WORD, _LOST_BY_TAGS),
    *(_SPACE_IN_ID, *_REPEATED),
)


@dataclass
class CorpusSummary:
    """Counts of a corpus file's contents and faults (see `summarise`).

    counts, first: Number of cases by title in `COUNTS`, and the first case of each.
    mentions, ids: Number of mentions by label; how often each id occurs, by label.
    strings: Normalised strings of the mentions, by label.
    lengths, mention_lengths: Number of documents, and of mentions, by length in tokens.
    documents: Id of the first document with each text, by the text's digest. Texts that consist of
        one mention are skipped, because corpora of phrases repeat them.
    """

    path: str
    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    mentions: Counter[str] = field(default_factory=Counter)
    ids: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    strings: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    lengths: Counter[int] = field(default_factory=Counter)
    mention_lengths: Counter[int] = field(default_factory=Counter)
    documents: dict[bytes, str] = field(default_factory=dict)

    @property
    def all_ids(self) -> Counter[str]:
        return sum(self.ids.values(), Counter[str]())

    @property
    def all_strings(self) -> set[str]:
        return set[str]().union(*self.strings.values())

    def count(self, what: str, where: str) -> None:
        self.counts[what] += 1
        self.first.setdefault(what, where)


def summarise(texts: Iterable[AnnotatedText], path: object, nlp: Language) -> CorpusSummary:
    """Count the mentions and errors in a corpus, without keeping its documents in memory.

    nlp (Language): A pipeline with the tokenizer for training.
    """
    summary, document_ids = CorpusSummary(str(path)), set[str]()
    for text in texts:
        summary.counts[_DOCUMENTS] += 1
        if text.id and text.id in document_ids:
            summary.count(_REPEATED[1], f"{text.id:.40}")
        document_ids.add(text.id)
        if [(m.start, m.end) for m in text.mentions] != [(0, len(text.text))]:
            digest = blake2b(text.text.encode("utf8", "surrogatepass"), digest_size=16).digest()
            if digest in summary.documents:
                summary.count(_REPEATED[0], f"{text.id:.40}")
            summary.documents.setdefault(digest, text.id)
        _count_mentions(summary, text, nlp)
    return summary


def _count_mentions(summary: CorpusSummary, text: AnnotatedText, nlp: Language) -> None:
    doc, end, spans = nlp.make_doc(text.text), 0, []
    summary.lengths[len(doc)] += 1
    for m in sorted(text.mentions, key=lambda m: (m.start, -m.end)):
        place = f"document {text.id:.40}, {m.start}-{m.end}, {text.text[m.start : m.end]!r:.40}"
        summary.counts[_MENTIONS] += 1
        summary.mentions[m.label] += 1
        summary.ids[m.label].update(m.ids)
        summary.strings[m.label].add(normalize_name(text.text[m.start : m.end]))
        if not m.ids:
            summary.count(_WITHOUT_ID, place)
        if m.start < end:  # overlaps an earlier mention
            summary.count(_NESTED if m.end <= end else _CROSSING, place)
        end = max(end, m.end)
        if any(_is_inside_word(text.text, border) for border in (m.start, m.end)):
            summary.count(_INSIDE_WORD, place)
        for id in m.ids:
            if any(map(str.isspace, id)):
                summary.count(_SPACE_IN_ID, f"{id!r:.40}")
        if span := doc.char_span(m.start, m.end, alignment_mode="expand"):
            spans.append(span)
            summary.mention_lengths[len(span)] += 1
    summary.counts[_LOST_BY_TAGS] += len(spans) - len(filter_spans(spans))


def _is_inside_word(text: str, border: int) -> bool:
    """Return whether an offset is between two digits or cased letters (so not Chinese ones)."""
    around = text[border - 1 : border + 1] if border else ""
    return len(around) == 2 and all(c.isdigit() or c.lower() != c.upper() for c in around)


def describe(
    summary: CorpusSummary, kb: KnowledgeBase, train: CorpusSummary | None = None
) -> dict[str, float]:
    """Return the table rows for a corpus, including a comparison with `train` if given."""
    rows: dict[str, float] = {title: summary.counts[title] for title in COUNTS}
    for label, ids in sorted(summary.ids.items()):
        known, name = KnownIds.of(kb, ids), label or "no label"
        rows[f"{name}: mentions"] = summary.mentions[label]
        rows[f"{name}: ids"], rows[f"{name}: distinct ids"] = known.n, len(ids)
        rows[f"{name}: % of ids in the knowledge base"] = _rounded(known.known, known.n)
    if train is not None:
        for what, found, seen in (
            ("ids", set(summary.all_ids), set(train.all_ids)),
            ("strings", summary.all_strings, train.all_strings),
        ):
            share = _rounded(len(found - seen), len(found))
            rows[f"% of distinct {what} that train lacks"] = share
        rows["documents that are also in train"] = len(_shared(train, summary))
    return rows


def unseen_by_label(train: CorpusSummary, dev: CorpusSummary) -> list[tuple[str, float, float]]:
    """Return the percentages of ids and strings that `train` lacks, for each label in `dev`."""
    ids, strings = set(train.all_ids), train.all_strings
    pairs = ((label, set(dev.ids[label]), dev.strings[label]) for label in sorted(dev.mentions))
    return [
        (label, _rounded(len(own - ids), len(own)), _rounded(len(s - strings), len(s)))
        for label, own, s in pairs
    ]


def _rounded(n: int, of: int) -> float:
    return round(100 * n / max(of, 1), 1)


def _shared(train: CorpusSummary, dev: CorpusSummary) -> list[str]:
    """Return the ids of the development documents that are also training documents."""
    return [id for digest, id in dev.documents.items() if digest in train.documents]


def find_faults(train: CorpusSummary, dev: CorpusSummary, kb: KnowledgeBase) -> Iterator[str]:
    """Yield a message for each fault in a corpus. Errors mean that training is pointless."""
    for summary in (train, dev):
        if summary.mentions:
            yield from _faults_of_ids(summary, kb)
        else:
            yield Errors.B076.format(path=summary.path, n=summary.counts[_DOCUMENTS])
        yield from _other_faults(summary)
    paths = {"path": dev.path, "train": train.path}
    if shared := _shared(train, dev):
        n, of, first = len(shared), dev.counts[_DOCUMENTS], f"{shared[0]:.40}"
        yield EvaluationErrors.B530.format(n=n, of=of, first=first, **paths)
    if train.mentions and (unseen := sorted(dev.mentions.keys() - train.mentions.keys())):
        message = (
            EvaluationErrors.B532 if len(unseen) == len(dev.mentions) else EvaluationWarnings.W343
        )
        yield message.format(found=unseen, known=sorted(train.mentions), **paths)


def _faults_of_ids(summary: CorpusSummary, kb: KnowledgeBase) -> Iterator[str]:
    found = KnownIds.of(kb, summary.all_ids)
    if not found.n:
        yield EvaluationErrors.B533.format(path=summary.path, n=summary.counts[_MENTIONS])
    elif found.are_few:
        yield found.message(Errors.B077, kb, summary.path)
    else:
        for label, ids in sorted(summary.ids.items()):
            if (known := KnownIds.of(kb, ids)).are_few:
                yield known.message(Warnings.W340, kb, f"{summary.path} labelled {label}")
        if found.missing:
            yield found.message(EvaluationWarnings.W371, kb, summary.path)


def _other_faults(summary: CorpusSummary) -> Iterator[str]:
    of, messages = summary.counts[_MENTIONS], {_SPACE_IN_ID: EvaluationWarnings.W344}
    messages |= dict.fromkeys(_REPEATED, EvaluationWarnings.W341)
    if (n := summary.counts[_INSIDE_WORD]) > _MIN_SHARE_INSIDE_WORDS * of:
        messages[_INSIDE_WORD] = EvaluationErrors.B531 if 2 * n > of else EvaluationWarnings.W342
    for what, message in messages.items():
        if n := summary.counts[what]:
            about = {"path": summary.path, "first": summary.first[what], "what": what}
            yield message.format(n=n, of=of, **about)
    if n := summary.counts[_LOST_BY_TAGS]:
        yield f"{Warnings.W300.format(n=n, of=of)} ({summary.path})"

"""Add unambiguous names that a detector missed, if annotators usually mark such names.

An unambiguous name can have only one label. If a detector has missed such a name, the name becomes
a mention, unless annotators rarely mark names like it, such as "disease" or "protein".
training/scripts/annotation_rates.py counts how often annotators mark each name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.lang.en.stop_words import STOP_WORDS
from spacy.tokens import Doc

from spacy_bioel.doc import long_forms, normalized_tokens, text_of, texts_of
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.gazetteer import NO_KEYS, Gazetteer, KeyMasks, MaskArray, unpack_bits
from spacy_bioel.kb.knowledge_base import KeyArray, KnowledgeBase, name_keys
from spacy_bioel.kb.spelling import RARE, Misspellings
from spacy_bioel.text.normalize import (
    has_whole_brackets,
    normalize_name,
    normalize_names,
    on_one_line,
)
from spacy_bioel.types import CHEMICAL, GENE, ORGANISM, BoolArray, IntArray, ScoredSpan, SpanKey

MIN_NAME_LENGTH = 3  # min. characters in a name; acronyms may have one fewer
MAX_ACRONYM_LENGTH = 6  # max. characters in an acronym; longer names are matched case-insensitively
_MIN_UNSEEN_LENGTH = 4  # min. characters in a name that is absent from the training texts.
# The annotation rate of similar names counts as much as this many occurrences of the name.
_SIMILAR_NAMES_WEIGHT = 2.0
# Names with at least this annotation rate become mentions. The rate is lower for species, because
# detectors miss more organisms than other mentions. Both rates were tuned on the development
# documents of benchmarks/results/starter.json.
_MIN_ANNOTATION_RATE, _MIN_RATE_OF_LABEL = 0.8, {"Species": 0.6}
_HUMAN = f"{ORGANISM}9606"
_MAX_NAME_TOKENS = 8
_MAX_CACHED_VERDICTS = 1 << 16
_SPANS_SENTENCES = "spans several sentences"
_UNAMBIGUOUS = "a name in the knowledge base that hardly ever means anything else"


@cache
def common_words() -> dict[str, float]:
    """Load the frequencies of common words, per million words of biomedical text."""
    table = srsly.read_gzip_json(ASSETS_FOLDER / "words.json.gz")
    return {word: 1e6 * count / table["total"] for word, count in table["counts"].items()}


@cache
def correct_words() -> dict[str, float]:
    """Load all correctly spelled words with their frequencies (RARE for uncommon English words)."""
    english = srsly.read_gzip_json(ASSETS_FOLDER / "english.json.gz")
    return dict.fromkeys(english, RARE) | common_words()


@cache
def _misspellings() -> Misspellings:
    return Misspellings(dict.fromkeys(correct_words(), 1))


@lru_cache(maxsize=1 << 16)
def correct_spelling(text: str) -> str:
    """Correct a normalised text's spelling, keeping words that have no clear correction."""
    known = correct_words()
    return " ".join(
        word if word in known else _misspellings().correction(word, known=known) or word
        for word in text.split()
    )


def _without_slips(token: str) -> str:
    """Correct missing, extra and swapped letters in a word, but not a wrong letter or a changed
    last letter, because "amylose" and "amylase" are different names."""
    other = correct_spelling(token)
    is_slip = len(other) != len(token) or sorted(other) == sorted(token)
    return other if is_slip and other[-1:] == token[-1:] else token


@cache
def everyday_words() -> frozenset[str]:
    """Load the everyday English words, which match preferred names but never synonyms."""
    return frozenset((ASSETS_FOLDER / "everyday.txt").read_text(encoding="utf8").split())


@cache
def _annotation_counts_and_rates() -> dict[str, Any]:
    """Load the output of training/scripts/annotation_rates.py."""
    counts: dict[str, Any] = srsly.read_gzip_json(ASSETS_FOLDER / "annotation_rates.json.gz")
    return counts


def is_acronym(name: str) -> bool:
    """Return whether a name is short and mostly in capitals, so that its case must match."""
    n_capitals, n_letters = sum(map(str.isupper, name)), sum(map(str.isalpha, name))
    return len(name) <= MAX_ACRONYM_LENGTH and 2 * n_capitals > n_letters


@lru_cache(maxsize=256)
def is_in_capitals(text: str) -> bool:
    """Return whether a text, and not just its acronyms, is in capitals, making case meaningless."""
    if 2 * sum(map(str.isupper, text)) <= sum(map(str.isalpha, text)):
        return False
    words = [word for word in re.findall(r"[^\W\d_]+", text) if word.isupper() and len(word) > 1]
    return any(len(word) > MAX_ACRONYM_LENGTH or word.lower() in STOP_WORDS for word in words)


def why_not_name(text: str, name: str, in_capitals: bool, *, preferred: bool) -> str:
    """Return why a string that matches a name cannot mean that name, or "" if it can.

    in_capitals (bool): Whether the whole text is in capitals.
    preferred (bool): Whether the name is the preferred name of a concept.
    """
    lowered = text.lower()
    frequency = common_words().get(lowered, 0.0)
    min_length = MIN_NAME_LENGTH - 1 if is_acronym(name) else MIN_NAME_LENGTH
    if len(text) < min_length or not any(map(str.isalpha, text)):
        return f"fewer than {MIN_NAME_LENGTH} characters, or no letter"
    if is_acronym(name):
        if in_capitals:
            is_word = frequency > 0 or lowered in STOP_WORDS
            return "a common word, in a text in capitals" if is_word else ""
        return "" if text in (name, name + "s") else f"the short name {name} has to match by case"
    if lowered in STOP_WORDS:
        return "a function word"
    if not in_capitals and is_acronym(text) and text != name and frequency:
        return f"in capitals, unlike the name {name}"  # "CAT" does not mean a cat
    is_everyday = lowered in everyday_words() and not preferred
    return "an everyday word, and not the preferred name" if is_everyday else ""


class DescribedName(NamedTuple):
    """A name, its concept's preferred name (possibly the same), and its types."""

    name: str
    preferred: str
    types: frozenset[str]


def describe_names(kb: KnowledgeBase, rows: IntArray) -> list[DescribedName]:
    """Describe the names in these knowledge base rows, for `name_kinds`."""
    indptr, concepts, is_preferred = kb.concepts_of_names(rows)
    types = kb.types_of_all(concepts)
    preferred_rows = kb.preferred_rows(concepts[indptr[:-1]])
    names = kb.names.take(np.concatenate([rows, preferred_rows]))
    described = []
    for i, name in enumerate(names[: len(rows)]):
        entries = slice(*indptr[i : i + 2].tolist())
        preferred = name if is_preferred[entries].any() else names[len(rows) + i]
        name_types = frozenset(chain.from_iterable(types[entries]))
        described.append(DescribedName(name, preferred, name_types))
    return described


def name_kinds(described: DescribedName, label: str) -> list[str]:
    """List a name's kinds: its shape combined with each of its types, then its shape alone.

    The shape includes whether the preferred name is one word or several: "arthropods" is a name for
    "Arthropoda", "zebrafish" for "Danio rerio".
    """
    name, preferred, types = described
    length = "short" if len(name) < _MIN_UNSEEN_LENGTH else "middle" if len(name) < 6 else "long"
    preferred_shape = "itself" if name == preferred else _word_or_words(preferred)
    shape = f"{length} {_word_or_words(name)} of {preferred_shape}"
    return [f"{label} {type} {shape}" for type in sorted(types)] + [f"{label} {shape}"]


def _word_or_words(name: str) -> str:
    return "words" if " " in name else "word"


def annotation_rate(string: str, label: str, kinds: Sequence[str]) -> float:
    """Estimate how often annotators mark a normalised string as a mention with a label.

    The estimate combines the string's counts in training texts with the rates of its kinds (see
    `name_kinds`). Occurrences inside longer mentions do not count.
    """
    rates, (n_marked, n) = _annotation_counts_and_rates()["kinds"], annotation_counts(string, label)
    if len(string) < _MIN_UNSEEN_LENGTH and not n:
        return 0.0
    rates_with_type = (rates[kind] for kind in kinds[:-1] if kind in rates)
    rate = max(rates_with_type, default=rates.get(kinds[-1], 1.0))
    return float((n_marked + _SIMILAR_NAMES_WEIGHT * rate) / (n + _SIMILAR_NAMES_WEIGHT))


def annotation_counts(string: str, label: str) -> tuple[int, int]:
    """Return how often a normalised string is annotated with a label in the training texts, and how
    often it occurs overall."""
    n_marked, n = _annotation_counts_and_rates()["strings"].get(label, {}).get(string, (0, 0))
    return n_marked, n


# A name as written in a text, its label, and whether the whole text is in capitals.
NameString = tuple[str, str, bool]
# A name in a text: its tokens [start, end), its string, and why it is not a mention (or "").
NameInText = tuple[int, int, NameString, str]
Verdict = tuple[str, str]  # a name in the knowledge base, and why it is not a mention (or "")
LabelledSpans = dict[tuple[int, int], list[str]]  # the labels of names, by start and end token
Vocabularies = Mapping[str, tuple[KnowledgeBase, BoolArray | None]]


class UnambiguousNames:
    """Finds names that can have only one label. Thread-safe.

    vocabularies (Mapping): For each label, its knowledge base, and a mask of the concepts that its
        mentions may link to; None: all.
    """

    def __init__(self, vocabularies: Vocabularies) -> None:
        self.labels = tuple(vocabularies)
        self._kbs = {label: kb for label, (kb, _) in vocabularies.items()}
        kbs = dict.fromkeys(self._kbs.values())
        tables = [
            (kb.name_keys, _labels_of_names(kb, vocabularies)[kb.name_key_rows]) for kb in kbs
        ]
        self._gazetteer = Gazetteer(_merge_masks(tables))
        self._verdicts: dict[NameString, Verdict] = {}

    def propose(self, found: Sequence[FoundSpans], nil: Sequence[Collection[SpanKey]] = ()) -> None:
        """Add names to the mentions in each document; a name replaces the mentions inside it.

        nil (Sequence[Collection[SpanKey]]): NIL mentions of each document. If given, only names
            hidden by NIL mentions are added, and they replace these mentions.
        """
        docs = [of_doc.doc for of_doc in found]
        missed = partial(_missed_names, self._kbs)
        nil = nil or [()] * len(docs)
        names_in_docs = list(map(missed, found, self.longest(docs), nil))
        all_names = chain.from_iterable(names_in_docs)
        verdicts = self._judge(dict.fromkeys(string for _, _, string, _ in all_names))
        for of_doc, names in zip(found, names_in_docs, strict=True):
            for start, end, string, why_not in names:
                (spelling, verdict), (_, label, _) = verdicts[string], string
                if reason := why_not or verdict:
                    of_doc.reject((start, end, label, 0.0), reason, spelling)
                else:
                    near = of_doc.overlapping(start, end)
                    of_doc.drop(near, "overlaps a name in the knowledge base")
                    of_doc.add((start, end, label, 1.0), _UNAMBIGUOUS, name=spelling)

    def longest(self, docs: Sequence[Doc]) -> list[LabelledSpans]:
        """Find the longest names in each document, with each name's start token, end token
        (exclusive) and possible labels."""
        tokens = normalized_tokens(docs)
        found: list[LabelledSpans] = [{} for _ in docs]
        if not (tokens and len(self._gazetteer.names.keys)):
            return found
        lengths = np.array([len(doc) for doc in docs], dtype=np.int64)
        matches = self._gazetteer.match_spans(tokens, _MAX_NAME_TOKENS, lengths=lengths)
        starts, widths, bits = matches
        is_covered, known = bytearray(len(tokens)), correct_words()
        offsets = np.cumsum(lengths) - lengths
        doc_indices = np.searchsorted(offsets, starts, side="right") - 1
        order = np.lexsort((bits, starts, -widths))
        columns = (column[order].tolist() for column in (doc_indices, starts, widths, bits))
        for doc_index, start, width, bit in zip(*columns, strict=True):
            first = start - int(offsets[doc_index])
            span = first, first + width + 1
            if span in found[doc_index]:
                found[doc_index][span].append(self.labels[bit])
            elif 1 not in is_covered[start : start + width + 1]:
                is_covered[start : start + width + 1] = b"\1" * (width + 1)
                found[doc_index][span] = [self.labels[bit]]
        missed = [i for i, token in enumerate(tokens) if not (is_covered[i] or token in known)]
        correct = list(map(_without_slips, [tokens[i] for i in missed]))
        places, bits = unpack_bits(self._gazetteer.names.find(name_keys(correct)))
        for place, bit in zip(places.tolist(), bits.tolist(), strict=True):
            i = missed[place]
            doc_index = int(np.searchsorted(offsets, i, side="right")) - 1
            first = i - int(offsets[doc_index])
            found[doc_index].setdefault((first, first + 1), []).append(self.labels[bit])
        return found

    def _judge(self, strings: Iterable[NameString]) -> dict[NameString, Verdict]:
        """Look up how each string is spelled in the knowledge base, and whether it is a mention."""
        verdicts = self._verdicts if len(self._verdicts) < _MAX_CACHED_VERDICTS else {}
        self._verdicts = verdicts
        new: dict[KnowledgeBase, list[NameString]] = {}
        for string in strings:
            if string not in verdicts:
                new.setdefault(self._kbs[string[1]], []).append(string)
        for kb, kb_strings in new.items():
            normalized = normalize_names([text for text, *_ in kb_strings])
            rows = kb.lookup_names(normalized)
            for i in np.flatnonzero(rows < 0).tolist():
                normalized[i] = correct_spelling(normalized[i])
            rows = kb.lookup_names(normalized)
            for i in np.flatnonzero(rows < 0).tolist():
                verdicts[kb_strings[i]] = "", _SPANS_SENTENCES
            known = np.flatnonzero(rows >= 0)
            described, is_added = describe_names(kb, rows[known]), kb.is_added[rows[known]].tolist()
            for i, name, added in zip(known.tolist(), described, is_added, strict=True):
                reason = _why_not_mention(kb_strings[i], normalized[i], name, added)
                verdicts[kb_strings[i]] = name.name, reason
        return verdicts


def _labels_of_names(kb: KnowledgeBase, vocabularies: Vocabularies) -> NDArray[Any]:
    """Return each knowledge base name's labels as a bit mask. Shape (n_names,)."""
    dtype = np.min_scalar_type((1 << min(len(vocabularies), 64)) - 1).type
    bits = np.zeros(len(kb), dtype)
    for label_index, (vocabulary_kb, allowed) in enumerate(vocabularies.values()):
        if vocabulary_kb is kb:
            is_allowed = np.True_ if allowed is None else allowed
            bits |= is_allowed.astype(dtype) << dtype(label_index)
    # Skip other species' genes: some are English words, and annotation rates are for human genes.
    other_species = [t for t in kb.type_names if t.startswith(ORGANISM) and t != _HUMAN]
    if other_species and _HUMAN in kb.type_names:
        bits[kb.type_mask(other_species)] = 0
    name_bits = np.bitwise_or.reduceat(bits[kb.name_concepts], kb.name_offsets[:-1])
    # Stop words make up a quarter of all tokens and are not mentions, unless a user added them.
    rows = kb.lookup_names([word for word in STOP_WORDS if word.isalpha()])
    name_bits[rows[(rows >= 0) & ~kb.is_added[rows]]] = 0
    return name_bits


def _merge_masks(tables: Sequence[tuple[KeyArray, MaskArray]]) -> KeyMasks:
    """Merge tables of sorted keys and masks, OR-ing the masks of identical keys."""
    if not tables:
        return NO_KEYS
    keys, masks = (np.concatenate(column) for column in zip(*tables, strict=True))
    order = np.argsort(keys, kind="stable")
    keys, starts = np.unique(keys[order], return_index=True)
    return KeyMasks(keys, np.bitwise_or.reduceat(masks[order], starts))


def _missed_names(
    kbs: Mapping[str, KnowledgeBase],
    spans: FoundSpans,
    longest: LabelledSpans,
    nil: Collection[SpanKey],
) -> list[NameInText]:
    """Return a document's names that are not mentions, with reasons in the text to reject them."""
    doc, label_of_span = spans.doc, {s[:2]: s[2] for s in spans.spans}
    span_of_token = {i: span for span in spans.spans for i in range(*span[:2])}
    defined, in_capitals, names = long_forms(doc), is_in_capitals(text_of(doc)), []
    in_order = sorted(longest.items())
    texts = texts_of(doc, [(*tokens, "", 0.0) for tokens, _ in in_order])
    for ((start, end), labels), text in zip(in_order, texts, strict=True):
        mention_label = label_of_span.get((start, end))
        if [mention_label] == labels:
            continue
        near = {span_of_token[i] for i in range(start, end) if i in span_of_token}
        if len(labels) > 1:
            string = normalize_name(text)
            counted = [label for label in labels if annotation_counts(string, label)[1]]
            labels = counted if len(counted) == 1 else labels
        label, reason = labels[0], ""
        name = start, end, label, 1.0
        hiding = {s for s in near if s[:3] in nil and _hides(doc, s, name)} if nil else set()
        if nil and not hiding:
            continue
        near -= hiding
        # The name of a chemical or disease may contain a gene: "insulin glargine".
        inside = (label, GENE) if label in (CHEMICAL, "Disease") else (label,)
        if len(labels) > 1:
            reason = f"a name of {' and '.join(labels)}"
        elif spans.excluded and on_one_line(text.lower()) in spans.excluded:
            reason = "excluded by the `exclude` word list"
        elif text in defined and not _are_synonyms(kbs[label], text, defined[text]):
            reason = f"a short form of {defined[text]}"
        elif not mention_label and any(
            s[0] < start or s[1] > end or s[2] not in inside for s in near
        ):
            reason = "overlaps a mention"
        names.append((start, end, (text, label, in_capitals), reason))
    return names


def _are_synonyms(kb: KnowledgeBase, *names: str) -> bool:
    """Return whether two names, such as "MRSA" and its long form, share a concept."""
    indptr, concepts, _ = kb.concepts_of_names(kb.lookup_names(normalize_names(names)))
    return bool(np.isin(concepts[: indptr[1]], concepts[indptr[1] :]).any())


def _hides(doc: Doc, mention: ScoredSpan, name: ScoredSpan) -> bool:
    """Return whether a mention is part of, or ends with, a name ("radiocontrast nephropathy").

    A name before other words is not hidden: "Dermatophagoides pteronyssinus 1" is a gene.
    """
    whole, part = (f" {on_one_line(doc[s[0] : s[1]].text)} " for s in (mention, name))
    return whole in part or whole.endswith(part)


def _why_not_mention(
    string: NameString, normalized: str, name: DescribedName, is_added: bool
) -> str:
    """Return why a string that matches a name is not a mention, or "" if it is one."""
    text, label, in_capitals = string
    if not has_whole_brackets(text) or any(x in text for x in (". ", "\n\n")):
        return _SPANS_SENTENCES
    if is_added:  # a name added by the user is always a mention
        return ""
    # Some gene names are English words: "cat", "March" and "AIR".
    is_alone = text.isalpha() and not annotation_counts(normalized, GENE)[1]
    if label == GENE and is_alone and (not text.isupper() or text.lower() in common_words()):
        return "like a word, and never annotated as a gene in training texts"
    if text.split()[0].lower() in STOP_WORDS:
        return "begins with a function word"
    is_preferred = name.name == name.preferred
    if reason := why_not_name(text, name.name, in_capitals, preferred=is_preferred):
        return reason
    rate = annotation_rate(normalized, label, name_kinds(name, label))
    if rate >= _MIN_RATE_OF_LABEL.get(label, _MIN_ANNOTATION_RATE):
        return ""
    if not rate and len(normalized) < _MIN_UNSEEN_LENGTH:
        return f"names of fewer than {_MIN_UNSEEN_LENGTH} characters have too many meanings"
    return f"annotators mark only {rate:.0%} of such names as mentions"

"""How often annotators mark names, and names like them; training/scripts/annotation_rates.py counts it.

Names of the knowledge base that mean nothing else: what a detector has missed is a mention if it
is one, unless annotators pass over names like it, as "disease" or "protein".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.lang.en.stop_words import STOP_WORDS
from spacy.tokens import Doc

from spacy_bioel.doc import long_forms, normalized_tokens, text_of, texts_of
from spacy_bioel.explanation import Trace
from spacy_bioel.kb.gazetteer import Gazetteer, KeyArray, KeyMasks, MaskArray
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import (
    has_whole_brackets,
    normalize_name,
    normalize_names,
    on_one_line,
)
from spacy_bioel.types import GENE, ORGANISM, ScoredSpan

_FEWEST = 3  # characters, of names that are not in capitals


@cache
def common_words() -> dict[str, float]:
    """Read the frequency of each common word, per million words of biomedical text."""
    table = srsly.read_gzip_json(_ASSETS / "words.json.gz")
    return {word: 1e6 * count / table["total"] for word, count in table["counts"].items()}


@cache
def everyday_words() -> frozenset[str]:
    """Read the words of general English, which match a preferred name only."""
    return frozenset((_ASSETS / "everyday.txt").read_text(encoding="utf8").split())


def is_other(text: str, name: str, in_capitals: bool, *, preferred: bool) -> str:
    """Tell why a word stands for something other than the name; "" if it does not."""
    lowered = text.lower()
    frequency = common_words().get(lowered, 0.0)
    is_short = len(text) < (_FEWEST - 1 if _is_acronym(name) else _FEWEST)
    if is_short or not any(map(str.isalpha, text)):
        return f"fewer than {_FEWEST} characters, or no letter"
    if _is_acronym(name):
        if in_capitals:
            is_word = frequency > 0 or lowered in STOP_WORDS
            return "a common word, in a text in capitals" if is_word else ""
        return "" if text in (name, name + "s") else f"the short name {name} matches by its case"
    if lowered in STOP_WORDS:
        return "a function word"
    if not in_capitals and _is_acronym(text) and text != name and frequency:
        return f"in capitals, which the name {name} is not"  # "CAT" is no cat
    is_everyday = lowered in everyday_words() and not preferred
    return "an everyday word, and not the preferred name" if is_everyday else ""


def _is_acronym(name: str) -> bool:
    return len(name) <= _ACRONYM and 2 * sum(map(str.isupper, name)) > sum(map(str.isalpha, name))


_ASSETS = Path(__file__).parents[1] / "assets"
# What is known of names of its kind counts as much as so many places of the name itself.
_KIND = 2.0
SHORT = 4  # characters: shorter names mean many things, so that the string has to be known


class About(NamedTuple):
    """A name, the preferred name of its concept, itself if it is one, and types of its concepts."""

    name: str
    preferred: str
    types: frozenset[str]


def describe(kb: KnowledgeBase, rows: NDArray[np.int64]) -> list[About]:
    """Return what the kinds of names are made of."""
    indptr, concepts, preferred = kb.concepts_of_names(rows)
    types = kb.types_of_all(concepts)
    main = kb.preferred_rows(concepts[indptr[:-1]])
    names = kb.names.take(np.concatenate([rows, main]))
    return [
        About(
            name,
            name if preferred[start:end].any() else of_first,
            frozenset(chain.from_iterable(types[start:end])),
        )
        for name, of_first, (start, end) in zip(
            names[: len(rows)], names[len(rows) :], pairwise(indptr.tolist()), strict=True
        )
    ]


def kinds_of(about: About, label: str) -> list[str]:
    """List the kinds of a name, each a type and what the name looks like; the last without a type.

    The preferred name tells too: "zebrafish" is of "Danio rerio", "arthropods" of "Arthropoda".
    """
    name, preferred, types = about
    length = "short" if len(name) < SHORT else "middle" if len(name) < 6 else "long"
    of = "itself" if name == preferred else _words(preferred)
    form = f"{length} {_words(name)} of {of}"
    return [f"{label} {type} {form}" for type in sorted(types)] + [f"{label} {form}"]


def _words(name: str) -> str:
    return "words" if " " in name else "word"


def annotation_rate(string: str, label: str, kinds: Sequence[str]) -> float:
    """Estimate how often annotators mark a string as a mention of a label, where it is a name and
    in no mention: by the string where training texts have it, and by its kinds."""
    of_kinds, (marked, n) = _marked()["kinds"], annotation_counts(string, label)
    if len(string) < SHORT and not n:
        return 0.0
    known = [of_kinds[kind] for kind in kinds[:-1] if kind in of_kinds]
    share = max(known) if known else of_kinds.get(kinds[-1], 1.0)
    return float((marked + _KIND * share) / (n + _KIND))


def annotation_counts(string: str, label: str) -> tuple[int, int]:
    """How often training texts have a normalised string as a mention of a label, and how often they
    have it at all."""
    marked, n = _marked()["strings"].get(label, {}).get(string, (0, 0))
    return marked, n


def is_in_texts(string: str, label: str) -> bool:
    """Whether it is known how often texts mean a name of this label by a normalised string."""
    return string in _marked()["strings"].get(label, {})


@cache
def _marked() -> dict[str, Any]:
    """Read what annotators mark, see training/scripts/annotation_rates.py."""
    marked: dict[str, Any] = srsly.read_gzip_json(_ASSETS / "annotation_rates.json.gz")
    return marked


_HUMAN = f"{ORGANISM}9606"
_MAX_WIDTH = 8  # tokens
_MOST_KEPT = 1 << 16
# Annotators mark names like it at least so often. Detectors miss more of the organisms, so that a
# name of one tells more. Chosen on the development documents of benchmarks/results/starter.json.
_OFTEN, _OFTEN_OF = 0.8, {"Species": 0.6}
_SEVERAL = "words of several sentences"
_ADDED = "a name of the knowledge base that means nothing else"


class KnownName(NamedTuple):
    """A name in a document: its tokens [start, end), label, spelling in the knowledge base, and
    why it is no mention, or ""."""

    start: int
    end: int
    label: str
    name: str
    reason: str

    def judged(self, name: str, reason: str) -> KnownName:
        return self._replace(name=name, reason=self.reason or reason)


class String(NamedTuple):
    """A name as a text has it, and what else its reading depends on."""

    text: str
    label: str
    in_capitals: bool


class UnambiguousNames:
    """Finds names that may have one label only; may be shared by threads.

    vocabularies (Mapping): Of each label, a knowledge base, and which of its concepts mentions may
        link to; None: all.
    """

    def __init__(
        self, vocabularies: Mapping[str, tuple[KnowledgeBase, NDArray[np.bool_] | None]]
    ) -> None:
        self.labels = tuple(vocabularies)
        self._kbs = {label: kb for label, (kb, _) in vocabularies.items()}
        found = []
        kind = np.min_scalar_type((1 << min(len(self.labels), 64)) - 1).type
        for kb in dict.fromkeys(self._kbs.values()):
            bits = np.zeros(len(kb), kind)
            for number, (of, mask) in enumerate(vocabularies.values()):
                if of is kb:
                    among = np.True_ if mask is None else mask
                    bits |= among.astype(kind) << kind(number)
            # Words of texts are names of genes in flies and fish; what is marked was counted for
            # man.
            others = [t for t in kb.type_names if t.startswith(ORGANISM) and t != _HUMAN]
            if others and _HUMAN in kb.type_names:
                bits[kb.type_mask(others)] = 0
            of_names = np.bitwise_or.reduceat(bits[kb.name_concepts], kb.name_offsets[:-1])
            # A quarter of the tokens of a text, and no mentions, unless a user has added them.
            rows = kb.lookup_names([word for word in STOP_WORDS if word.isalpha()])
            of_names[rows[(rows >= 0) & ~kb.is_added[rows]]] = 0
            found.append((kb.name_keys, of_names[kb.name_key_rows]))
        self._lexicon = Gazetteer(_merged(found), KeyMasks.empty())
        self._judged: dict[String, tuple[str, str]] = {}

    def add_to(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        excluded: Sequence[Collection[str]],
        traces: Sequence[Trace] | None = None,
    ) -> list[list[ScoredSpan]]:
        """Add names to the mentions of each document, in the place of those within them.

        excluded (Sequence[Collection[str]]): Words in small letters that are not mentions, of each
            document.
        """
        added = []
        decided = self._decide(docs, spans, excluded)
        for number, (of_doc, names) in enumerate(zip(spans, decided, strict=True)):
            new = [(n.start, n.end, n.label, 1.0) for n in names if not n.reason]
            taken = {token for start, end, *_ in new for token in range(start, end)}
            kept = [s for s in of_doc if taken.isdisjoint(range(*s[:2]))]
            both = sorted(kept + new, key=lambda s: s[:2]) if new else of_doc
            if traces is not None:
                traces[number].changed(of_doc, kept, "in a name of the knowledge base")
                for name in names:
                    if name.reason:
                        traces[number].drop((*name[:3], 0.0), name.reason, name.name)
                    else:
                        traces[number].add(name[:3], _ADDED, name.name)
            added.append(both)
        return added

    def _decide(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        excluded: Sequence[Collection[str]],
    ) -> list[list[KnownName]]:
        """Return the names of each document that are not mentions already."""
        found = list(map(self._of_doc, docs, spans, excluded, self.longest(docs)))
        capitals = [is_in_capitals(text_of(doc)) for doc in docs]
        strings = [
            [String(name.name, name.label, is_capital) for name in names]
            for names, is_capital in zip(found, capitals, strict=True)
        ]
        judged = self._judge(dict.fromkeys(chain.from_iterable(strings)))
        return [
            [n.judged(*judged[string]) for n, string in zip(names, of_doc, strict=True)]
            for names, of_doc in zip(found, strings, strict=True)
        ]

    def longest(self, docs: Sequence[Doc]) -> list[dict[tuple[int, int], list[str]]]:
        """Find the longest names of each document: first token, the one after the last, and the
        labels that it may have."""
        tokens = normalized_tokens(docs)
        places: list[dict[tuple[int, int], list[str]]] = [{} for _ in docs]
        if not (tokens and len(self._lexicon.names.keys)):
            return places
        lengths = np.array([len(doc) for doc in docs], dtype=np.int64)
        starts, widths, bits = self._lexicon.match_spans(tokens, _MAX_WIDTH, lengths=lengths)
        named = bytearray(len(tokens))
        offsets = np.cumsum(lengths) - lengths
        owners = np.searchsorted(offsets, starts, side="right") - 1
        order = np.lexsort((bits, starts, -widths))
        columns = (column[order].tolist() for column in (owners, starts, widths, bits))
        for owner, start, width, bit in zip(*columns, strict=True):
            first = start - int(offsets[owner])
            place = first, first + width + 1
            if place in places[owner]:
                places[owner][place].append(self.labels[bit])
            elif 1 not in named[start : start + width + 1]:
                named[start : start + width + 1] = b"\1" * (width + 1)
                places[owner][place] = [self.labels[bit]]
        return places

    def _of_doc(
        self,
        doc: Doc,
        spans: list[ScoredSpan],
        exclude: Collection[str],
        places: Mapping[tuple[int, int], list[str]],
    ) -> list[KnownName]:
        """Names that are not mentions already, as the text has them, with reasons of this text."""
        label_of = {(start, end): label for start, end, label, _ in spans}
        taken = {i: span for span in spans for i in range(*span[:2])}
        defined, names = long_forms(doc), []
        in_order = sorted(places.items())
        texts = texts_of(doc, [(*place, "", 0.0) for place, _ in in_order])
        for ((start, end), labels), text in zip(in_order, texts, strict=True):
            same = label_of.get((start, end))
            if [same] == labels:
                continue
            near = {taken[i] for i in range(start, end) if i in taken}
            reason = ""
            if len(labels) > 1:
                string = normalize_name(text)
                told = [label for label in labels if is_in_texts(string, label)]
                labels = told if len(told) == 1 else labels
            if len(labels) > 1:
                reason = f"a name of {' and '.join(labels)}"
            elif exclude and on_one_line(text.lower()) in exclude:
                reason = "by the word list `exclude`"
            elif text in defined:
                reason = f"a short form of {defined[text]}"
            elif not same and any(s[0] < start or s[1] > end or s[2] != labels[0] for s in near):
                reason = "overlaps a mention"
            names.append(KnownName(start, end, labels[0], text, reason))
        return names

    def _judge(self, strings: Iterable[String]) -> dict[String, tuple[str, str]]:
        """Tell how each is spelled in the knowledge base, and why it is no mention, or ""."""
        kept = self._judged if len(self._judged) < _MOST_KEPT else {}
        self._judged = kept
        new: dict[KnowledgeBase, list[String]] = {}
        for string in strings:
            if string not in kept:
                new.setdefault(self._kbs[string.label], []).append(string)
        for kb, of_kb in new.items():
            normalized = normalize_names([string.text for string in of_kb])
            rows = kb.lookup_names(normalized)
            for string in (of_kb[i] for i in np.flatnonzero(rows < 0).tolist()):
                kept[string] = "", _SEVERAL
            there = np.flatnonzero(rows >= 0)
            rows = rows[there]
            columns = there.tolist(), describe(kb, rows), kb.is_added[rows].tolist()
            for i, about, is_added in zip(*columns, strict=True):
                reason = _why_passed_over(of_kb[i], normalized[i], about, is_added)
                kept[of_kb[i]] = about.name, reason
        return kept


def _merged(found: Sequence[tuple[KeyArray, MaskArray]]) -> KeyMasks:
    """Merge sorted keys, those that are equal with the masks of both."""
    if not found:
        return KeyMasks.empty()
    keys, masks = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.argsort(keys, kind="stable")
    keys, masks = keys[order], masks[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    return KeyMasks(keys[starts], np.bitwise_or.reduceat(masks, starts))


def _why_passed_over(string: String, normalized: str, about: About, is_added: bool) -> str:
    """Tell why a string is no mention though it is a name, or ""."""
    text, label, in_capitals = string
    if not has_whole_brackets(text) or any(x in text for x in (". ", "\n\n")):
        return _SEVERAL
    if is_added:  # what a user has added is obeyed
        return ""
    # Texts may mean an English word and no gene: "cat", "March", and "AIR".
    is_alone = text.isalpha() and not is_in_texts(normalized, GENE)
    if label == GENE and is_alone and (not text.isupper() or text.lower() in common_words()):
        return "spelled like a word, which no training text has as a gene"
    if text.split()[0].lower() in STOP_WORDS:
        return "begins with a function word"
    is_preferred = about.name == about.preferred
    if reason := is_other(text, about.name, in_capitals, preferred=is_preferred):
        return reason
    share = annotation_rate(normalized, label, kinds_of(about, label))
    if share >= _OFTEN_OF.get(label, _OFTEN):
        return ""
    if not share and len(normalized) < SHORT:
        return f"fewer than {SHORT} characters, which mean many things"
    return f"of names like it, annotators mark {share:.0%} as mentions"


_ACRONYM = 6  # letters of a name in capitals that is matched by case


@lru_cache(maxsize=256)
def is_in_capitals(text: str) -> bool:
    """Tell whether most letters are capitals, beyond acronyms, so that case means nothing."""
    if 2 * sum(map(str.isupper, text)) <= sum(map(str.isalpha, text)):
        return False
    words = [word for word in re.findall(r"[^\W\d_]+", text) if word.isupper() and len(word) > 1]
    return any(len(word) > _ACRONYM or word.lower() in STOP_WORDS for word in words)

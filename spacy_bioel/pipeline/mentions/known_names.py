"""Names of the knowledge base that mean nothing else: what a detector has missed is a mention if it
is one, unless annotators pass over names like it, as "disease" or "protein".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.attrs import ORTH
from spacy.lang.en.stop_words import STOP_WORDS
from spacy.tokens import Doc, Span

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.lexicon import KeyArray, KeyMasks, Lexicon, MaskArray
from spacy_bioel.pipeline.annotate import text_of, words_of
from spacy_bioel.pipeline.mentions.choosing import (
    Considered,
    has_whole_brackets,
    long_forms,
)
from spacy_bioel.pipeline.mentions.name_evidence import common_words, is_in_capitals, is_other
from spacy_bioel.text.normalize import normalize_name, normalize_token, on_one_line
from spacy_bioel.types import GENE, ORGANISM

_ASSETS = Path(__file__).parents[2] / "assets"
_HUMAN = f"{ORGANISM}9606"
_MAX_WIDTH = 8  # tokens
_MOST_KEPT = 1 << 16
# Annotators mark names like it at least so often. Detectors miss more of the organisms, so that a
# name of one tells more. Chosen on the development documents of benchmarks/results/starter.json.
_OFTEN, _OFTEN_OF = 0.8, {"Species": 0.6}
# What is known of names of its kind counts as much as so many places of the name itself.
_KIND = 2.0
_SHORT = 4  # characters: shorter names mean many things, so that the string has to be known
# Without any of them, and without other genes, a word is a word: "The cat had the flu."
_OF_GENES = re.compile(
    r"\b(?:gen(?:e|etic|om)|express|mrna|transcri|mutat|mutant|variant|protein|receptor|kinase|allele"
    r"|polymorphi|knock|loc(?:i|us)\b|enzym|signal|pathway|antibod|encod|promoter|deficien|inhibit)",
    re.IGNORECASE,
)
BUT_A_WORD = "a word, in a text that says nothing of genes"
_ADDED = "a name of the knowledge base that means nothing else"


class KnownName(NamedTuple):
    """A name in a document: its tokens [start, end), label, spelling in the knowledge base, and
    why it is no mention, or ""."""

    start: int
    end: int
    label: str
    name: str
    reason: str


class KnownNames:
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
        for kb in dict.fromkeys(self._kbs.values()):
            bits = np.zeros(len(kb), dtype=np.uint64)
            for number, (of, mask) in enumerate(vocabularies.values()):
                if of is kb:
                    among = np.True_ if mask is None else mask
                    bits |= among.astype(np.uint64) << np.uint64(number)
            # Words of texts are names of genes in flies and fish; what is marked was counted for
            # man.
            others = [t for t in kb.type_names if t.startswith(ORGANISM) and t != _HUMAN]
            if others and _HUMAN in kb.type_names:
                bits[kb.type_mask(others)] = 0
            of_names = np.bitwise_or.reduceat(bits[kb.name_concepts], kb.name_offsets[:-1])
            found.append((kb.name_keys, of_names[kb.name_key_rows]))
        self._lexicon = Lexicon(_merged(found), KeyMasks.empty())
        self._passed_over = lru_cache(maxsize=_MOST_KEPT)(self._why_passed_over)

    def add_to(self, docs: Sequence[Doc], spans: Sequence[list[Span]]) -> list[list[Span]]:
        """Add names to the mentions of each document, in the place of those within them."""
        added, spans = [], list(map(self.without_words, docs, spans))
        for doc, of_doc, names in zip(docs, spans, self._decide(docs, spans), strict=True):
            new = [Span(doc, n.start, n.end, n.label) for n in names if not n.reason]
            taken = {token for span in new for token in range(span.start, span.end)}
            kept = [s for s in of_doc if taken.isdisjoint(range(s.start, s.end))]
            added.append(sorted(kept + new, key=lambda s: (s.start, s.end)) if new else of_doc)
        return added

    def without_words(self, doc: Doc, spans: list[Span]) -> list[Span]:
        """Drop genes that are but words, from the mentions of a text that says nothing of genes."""
        genes = [span for span in spans if span.label_ == GENE]
        if GENE not in self.labels or not genes or not all(self._is_but_a_word(s) for s in genes):
            return spans
        forced = {
            (span.start, span.end)
            for group in doc.spans.values()
            for span, p in zip(group, group.attrs.get("scores", ()), strict=False)
            if p == 1.0
        }
        if _OF_GENES.search(text_of(doc)):
            return spans
        return [s for s in spans if s.label_ != GENE or (s.start, s.end) in forced]

    def _is_but_a_word(self, span: Span) -> bool:
        """Whether a gene has a name of such letters, in capitals, and the text has a word."""
        text, kb = span.text, self._kbs[GENE]
        if not text.isalpha() or not (text.islower() or text.istitle() or text.isupper()):
            return False
        row = int(kb.lookup_names([normalize_name(text)])[0])
        if row < 0 or kb.is_added[row]:
            return False
        if text.isupper():  # "AIR", which no training text has as a gene
            marked, n = _marked()["strings"].get(GENE, {}).get(text.lower(), (1, 1))
            return n > 1 and not marked and text.lower() in common_words()
        return bool(is_other(text, kb.name(row), in_capitals=False, preferred=False))

    def consider(self, doc: Doc, spans: list[Span]) -> list[Considered]:
        """Tell which names are mentions beside those that were found, and why others are not."""
        found = []
        for start, end, label, name, reason in self._decide([doc], [spans])[0]:
            span, why = doc[start:end], reason or _ADDED
            chars, is_in = (span.start_char, span.end_char), not reason
            found.append(Considered(*chars, span.text, label, float(is_in), is_in, why, name))
        return found

    def _decide(self, docs: Sequence[Doc], spans: Sequence[list[Span]]) -> list[list[KnownName]]:
        """Return the names of each document that are not mentions already."""
        return [self._of_doc(*one) for one in zip(docs, spans, self.longest(docs), strict=True)]

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
        self, doc: Doc, spans: list[Span], places: Mapping[tuple[int, int], list[str]]
    ) -> list[KnownName]:
        found = [(span.start, span.end, span.label_) for span in spans]
        taken = {i: span for span in found for i in range(*span[:2])}
        never = {w for group in doc.spans.values() for w in group.attrs.get("never", ())}
        in_capitals, short_forms, names = is_in_capitals(text_of(doc)), long_forms(doc), []
        for (start, end), labels in sorted(places.items()):
            near = {taken[i] for i in range(start, end) if i in taken}
            same = [label for *place, label in near if place == [start, end]]
            if same == labels:
                continue
            text = words_of(doc, start, end)
            told = [label for label in labels if _is_in_texts(text, label)]
            if len(told) == 1:
                labels = told
            reason, name = self._passed_over(text, labels[0], in_capitals)
            if len(labels) > 1:
                reason = f"a name of {' and '.join(labels)}"
            elif never and on_one_line(text.lower()) in never:
                reason = "by the word list `never`"
            elif text in short_forms:
                reason = f"a short form of {short_forms[text]}"
            elif not same and any(s[0] < start or s[1] > end or s[2] != labels[0] for s in near):
                reason = "overlaps a mention"
            names.append(KnownName(start, end, labels[0], name, reason))
        return names

    def _why_passed_over(self, text: str, label: str, in_capitals: bool) -> tuple[str, str]:
        """Tell why a text is no mention though it is a name, or ""; and how the name is spelled."""
        kb = self._kbs[label]
        row = int(kb.lookup_names([normalize_name(text)])[0])
        name = kb.name(row) if row >= 0 else ""
        if row < 0 or not has_whole_brackets(text) or any(x in text for x in (". ", "\n\n")):
            return "words of several sentences", name
        if kb.is_added[row]:  # what a user has added is obeyed
            return "", name
        if label == GENE and _is_a_word(text):
            return "spelled like a word, which no training text has as a gene", name
        if text.split()[0].lower() in STOP_WORDS:
            return "begins with a function word", name
        about = describe(kb, row)
        share = share_marked(normalize_name(text), label, kinds_of(about, label))
        is_preferred = about.name == about.preferred
        if reason := is_other(text, about.name, in_capitals, preferred=is_preferred):
            return reason, name
        if share >= _OFTEN_OF.get(label, _OFTEN):
            return "", name
        if not share and len(normalize_name(text)) < _SHORT:
            return f"fewer than {_SHORT} characters, which mean many things", name
        return f"of names like it, annotators mark {share:.0%} as mentions", name


def _merged(found: Sequence[tuple[KeyArray, MaskArray]]) -> KeyMasks:
    """Merge sorted keys, those that are equal with the masks of both."""
    if not found:
        return KeyMasks.empty()
    keys, masks = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.argsort(keys, kind="stable")
    different, starts = np.unique(keys[order], return_index=True)
    return KeyMasks(different, np.bitwise_or.reduceat(masks[order], starts))


def _is_a_word(text: str) -> bool:
    """Whether texts may mean an English word and no gene: "cat", "March", and "AIR"."""
    if not text.isalpha() or _is_in_texts(text, GENE):
        return False
    return not text.isupper() or text.lower() in common_words()


def _is_in_texts(text: str, label: str) -> bool:
    """Whether it is known how often texts mean a name of this label by a text."""
    return normalize_name(text) in _marked()["strings"].get(label, {})


class About(NamedTuple):
    """A name, the preferred name of its concept, itself if it is one, and types of its concepts."""

    name: str
    preferred: str
    types: frozenset[str]


def describe(kb: KnowledgeBase, row: int) -> About:
    """Return what the kinds of a name are made of."""
    _, concepts, preferred = kb.concepts_of_names(np.array([row]))
    types = frozenset(type for concept in concepts.tolist() for type in kb.types_of(concept))
    name = kb.name(row)
    return About(name, name if preferred.any() else kb.preferred_name(int(concepts[0])), types)


def kinds_of(about: About, label: str) -> list[str]:
    """List the kinds of a name, each a type and what the name looks like; the last without a type.

    The preferred name tells too: "zebrafish" is of "Danio rerio", "arthropods" of "Arthropoda".
    """
    name, preferred, types = about
    length = "short" if len(name) < _SHORT else "middle" if len(name) < 6 else "long"
    of = "itself" if name == preferred else _words(preferred)
    form = f"{length} {_words(name)} of {of}"
    return [f"{label} {type} {form}" for type in sorted(types)] + [f"{label} {form}"]


def _words(name: str) -> str:
    return "words" if " " in name else "word"


def share_marked(string: str, label: str, kinds: Sequence[str]) -> float:
    """Estimate how often annotators mark a string as a mention of a label, where it is a name and
    in no mention: by the string where training texts have it, and by its kinds."""
    of_strings, of_kinds = _marked()["strings"].get(label, {}), _marked()["kinds"]
    if len(string) < _SHORT and not of_strings.get(string):
        return 0.0
    known = [of_kinds[kind] for kind in kinds[:-1] if kind in of_kinds]
    share = max(known) if known else of_kinds.get(kinds[-1], 1.0)
    marked, n = of_strings.get(string, (0, 0))
    return float((marked + _KIND * share) / (n + _KIND))


@cache
def _marked() -> dict[str, Any]:
    """Read what annotators mark, see training/scripts/marked.py."""
    marked: dict[str, Any] = srsly.read_gzip_json(_ASSETS / "marked.json.gz")
    return marked


def normalized_tokens(docs: Sequence[Doc]) -> list[str]:
    """Normalise the tokens of all documents."""
    found: list[str] = []
    for doc in docs:
        ids, strings = doc.to_array(ORTH).tolist(), doc.vocab.strings
        words = {id_: normalize_token(strings[id_]) for id_ in dict.fromkeys(ids)}
        found += map(words.__getitem__, ids)
    return found

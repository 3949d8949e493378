"""Evidence that a span of a text is a name, and reasons why it cannot be one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from spacy.lang.en.stop_words import STOP_WORDS

from spacy_bioel.dictionary.span_matches import COMMA, NOTHING, SpanMatches, Words
from spacy_bioel.dictionary.unambiguous import (
    _ACRONYM,
    _FEWEST,
    _is_acronym,
    common_words,
    is_in_capitals,
    is_other,
)
from spacy_bioel.doc import text_of
from spacy_bioel.kb.gazetteer import NEGATIONS, BagsOfWords
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import (
    LINKING_WORDS,
    amount_of,
    is_amount,
    linking_words_of,
    normalize_name,
    singular_of,
    stem_of,
    words_of,
)
from spacy_bioel.types import BoolArray, IntArray

# How near a string is to a name: equal; apart from plurals, British spelling, or the adjective of a
# name of one word; in another order; of the same families of words ("bowing", "bowed"); both.
EQUAL, SPELLED, ORDERED, FAMILY, FAMILY_ORDERED = range(5)
_ASSETS = Path(__file__).parents[1] / "assets"
_MOST_KEPT = 1 << 16


_SHORT_WORD = 5  # letters of an adjective that may be of another family


class NameMatch(NamedTuple):
    """The name of a bag that a string is nearest to.

    row (int): Of the name; -1: the string stands for none of the bag.
    is_single (bool): Whether the string is one word.
    has_comma (bool): Whether the name has a comma.
    """

    row: int
    near: int
    is_single: bool = False
    has_comma: bool = False


@dataclass(frozen=True)
class Evidence:
    """What speaks for spans being names. Shape (n,) each.

    near (IntArray): EQUAL to FAMILY_ORDERED.
    share (NDArray): Where a word stands for another, how often names have it in its place; else 1.
    typos (IntArray): Misspelled words.
    is_single, is_short (BoolArray): One word; an abbreviation.
    is_preferred (BoolArray): The preferred name of a concept.
    goes_on (BoolArray): A word follows with nothing between.
    """

    near: IntArray
    share: NDArray[np.float64]
    typos: IntArray
    is_single: BoolArray
    is_short: BoolArray
    is_preferred: BoolArray
    goes_on: BoolArray

    def take(self, rows: NDArray) -> Evidence:
        return Evidence(*(column[rows] for column in vars(self).values()))


class NameEvidence:
    """Find the evidence for names of a knowledge base; cache the names of recent strings."""

    def __init__(self, kb: KnowledgeBase, bags: BagsOfWords) -> None:
        self.kb = kb
        self.bags = bags
        self._match = lru_cache(maxsize=_MOST_KEPT)(partial(_nearest, kb, bags))

    def of(self, words: Words, hits: SpanMatches) -> tuple[IntArray, Evidence]:
        """Return the name rows of hits, -1 for what is not a name, and the evidence for them."""
        matches = [self._match(string, bag) for string, bag in self._strings(words, hits)]
        table = np.array(matches, dtype=np.int64).reshape(-1, len(NameMatch._fields))
        rows, near, single, has_comma = table.T.copy()
        start, end, is_replaced = hits.start, hits.end, hits.by >= 0
        commas = np.append(0, np.cumsum(words.before == COMMA))
        cut = commas[end] > commas[np.minimum(start + 1, len(words))]
        rows[cut & ((has_comma == 0) | (near > SPELLED) | is_replaced)] = -1
        rows[(single > 0) & (near > SPELLED)] = -1
        # "Shortness of breath and leg swelling" has no short leg.
        rows[(hits.gap < end) & (near > ORDERED)] = -1
        # "8, 9" is no "VIII nerve", though names of nerves differ in a number.
        is_digit = np.array([form.isdigit() for form in words.forms], dtype=bool)[words.form]
        digits = np.append(0, np.cumsum(is_digit))
        rows[(digits[end] - digits[start] == end - start) & is_replaced] = -1
        # "Renal" is evidence of "kidney" as "retinal" is of "retina".
        is_adjective = is_replaced & (end - start == 1)
        pairs = zip(words.forms, words.meant, strict=True)
        is_typo = np.array([form != meant for form, meant in pairs], dtype=bool)[words.form]
        typos = np.append(0, np.cumsum(is_typo & ~words.is_short))
        short = np.append(0, np.cumsum(words.is_short))
        articles = np.array([form == "a" for form in words.forms], dtype=bool)[words.form]
        follows = np.append((words.before == NOTHING) & (words.keys != 0) & ~articles, False)
        return rows, Evidence(
            np.where(is_adjective, SPELLED, near),
            np.where(is_replaced & ~is_adjective, self.bags.substitutes.share_of(hits.by), 1.0),
            typos[end] - typos[start],
            single > 0,
            short[end] > short[start],
            _is_preferred(self.kb, rows),
            follows[end],
        )

    def _strings(self, words: Words, hits: SpanMatches) -> list[tuple[str, int]]:
        strings = []
        columns = (hits.start, hits.end, hits.gap, hits.resume, hits.bag, hits.place, hits.by)
        for start, end, gap, resume, bag, place, by in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            own = [words.meant[i] for i in words.form[start:end].tolist()]
            if by >= 0:
                own[place - start] = self.bags.substitutes.stem[by]
            if words.long:
                own = [" ".join(words.long.get(i, [w])) for i, w in enumerate(own, start=start)]
            del own[gap - start : resume - start]
            strings.append((" ".join(own), bag))
        return strings


def _is_preferred(kb: KnowledgeBase, rows: IntArray) -> BoolArray:
    indptr, _, is_preferred = kb.concepts_of_names(rows)
    name = np.repeat(np.arange(len(rows)), np.diff(indptr))
    return np.bincount(name, is_preferred, minlength=len(rows)) > 0


def _singular(name: str) -> list[str]:
    return list(map(singular_of, words_of(normalize_name(name))))


def _nearest(kb: KnowledgeBase, bags: BagsOfWords, string: str, bag: int) -> NameMatch:
    """Find the name of a bag that a string is nearest to."""
    words = string.split()
    rows = bags.rows_of(bag)
    names = kb.names.take(rows)
    nears = [_nearness(words, name) for name in names]
    near, row, name = min(zip(nears, rows, names, strict=True))
    if near == EQUAL and SPELLED in nears:
        # "Lungs" are the lung, though a pair of lungs has them for a synonym.
        preferred = _is_preferred(kb, np.array(rows)).tolist()
        same = [_singular(other) == _singular(name) for other in names]
        order = [not (p and s) for p, s in zip(preferred, same, strict=True)]
        _, _, row, name = min(zip(order, nears, rows, names, strict=True))
    if near > FAMILY_ORDERED:
        return NameMatch(-1, FAMILY_ORDERED)
    own = [word for word in words if word not in LINKING_WORDS] or words
    return NameMatch(row, near, len(own) == 1, "," in name)


def _nearness(words: list[str], name: str) -> int:
    """Rank how near words are to a name, EQUAL to FAMILY_ORDERED; more: they mean another."""
    others = words_of(normalize_name(name))
    if words == others:
        return EQUAL
    if list(map(singular_of, words)) == list(map(singular_of, others)):
        return SPELLED
    if len(words) == len(others) == 1 and _may_be_adjective(words[0], others[0]):
        return SPELLED if stem_of(words[0]) == stem_of(others[0]) else FAMILY_ORDERED + 1
    if is_amount(others) and amount_of(words) == amount_of(others):
        return FAMILY
    # "Seizures were absent" are no absence seizures.
    if "absent" in words and "absence" in others and "of" not in others:
        return FAMILY_ORDERED + 1
    linking = linking_words_of(name)
    own = [word for word in words if word not in linking]
    theirs = [word for word in others if word not in linking]
    if words[0] in linking or words[-1] in linking:
        return FAMILY_ORDERED + 1
    # Words may change places round "of" and "is", where the name is inverted, and before its head.
    may_reorder = len(own) < len(words) or len(theirs) < len(others) or "," in name
    same_head = singular_of(own[-1]) == singular_of(theirs[-1])
    if sorted(map(singular_of, own)) == sorted(map(singular_of, theirs)):
        return ORDERED if may_reorder or same_head else FAMILY_ORDERED + 1
    if list(map(stem_of, own)) == list(map(stem_of, theirs)):
        return FAMILY
    return FAMILY_ORDERED if may_reorder else FAMILY_ORDERED + 1


def _may_be_adjective(word: str, noun: str) -> bool:
    """As "retinal", "embryonic" and "hypertensive" are; "muscarinic" is of a substance."""
    if word.endswith(("al", "ar", "oid")) and len(word) > _SHORT_WORD:  # "oral" is of no name
        return word != noun + "eal"  # "corneal" is of the cornea
    if word.endswith("ic") and noun.endswith(("o", "ome", "ele")):
        return True
    if word.endswith("y") and noun.endswith("iness"):
        return True
    is_adjective = word.endswith(("ic", "sive", "matous"))
    return is_adjective and noun.endswith(("ia", "sis", "sion", "tion", "epsy", "oma", "ema"))


def ruled_out(
    words: Words,
    hits: SpanMatches,
    rows: NDArray[np.int64],
    evidence: Evidence,
    kb: KnowledgeBase,
    general: BoolArray,
    *,
    capitals: bool,
) -> list[str]:
    """Tell why hits stand for something else, "" if they do not. Defined abbreviations never do.

    rows (NDArray[int64]): Name rows of the hits. Shape (n,).
    general (NDArray[bool]): Concepts that are above most others. Shape (n_concepts,).
    capitals (bool): The knowledge base has all its names in capitals, see `has_capitals_alone`.
    """
    added = kb.is_added[rows]
    # "No nail changes" has no "no nail", which HPO has as a name.
    negates = np.array([form in NEGATIONS for form in words.forms], dtype=bool)[words.form]
    is_negated = np.append(negates, False)[hits.start] & evidence.goes_on
    out = ["it begins with a negation" if negated else "" for negated in is_negated.tolist()]
    of = np.flatnonzero(evidence.is_single & ~evidence.is_short & (rows >= 0))
    indptr, concepts, _ = kb.concepts_of_names(rows[of])
    n_general = np.diff(np.append(0, np.cumsum(general[concepts]))[indptr]).tolist()
    starts, ends = words.places(hits.start[of], hits.end[of])
    docs = words.doc[hits.start[of]]
    texts = {number: text_of(words.docs[number]) for number in set(docs.tolist())}
    in_capitals = {number: is_in_capitals(text) for number, text in texts.items()}
    names = kb.names.take(rows[of])
    columns = (of.tolist(), docs.tolist(), starts.tolist(), ends.tolist(), names, n_general)
    for i, doc, start, end, name, is_general in zip(*columns, strict=True):
        text = texts[doc][start:end]
        # What a user has added is obeyed.
        is_meant = added[i] and (text == name or not _needs_case(name))
        preferred = bool(evidence.is_preferred[i])
        if is_meant:
            out[i] = ""
        elif is_general:
            out[i] = "most concepts are below it"
        else:
            if capitals and (text != name or in_capitals[doc]):
                name = name.lower()
            out[i] = is_other(text, name, in_capitals[doc], preferred=preferred)
    return out


def has_capitals_alone(names: Sequence[str]) -> bool:
    """Tell whether names are words written in capitals, as hospitals export them, so that their
    case means nothing. Symbols of genes are not words.
    """
    in_capitals = sum(name == name.upper() for name in names)
    are_words = sum(any(map(_is_a_word, name.lower().split())) for name in names)
    return 10 * in_capitals >= 9 * len(names) and 2 * are_words > len(names)


def _is_a_word(lowered: str) -> bool:
    return lowered.isalpha() and (len(lowered) > _ACRONYM or lowered in common_words())


def _needs_case(name: str) -> bool:
    return len(name) < _FEWEST or _is_acronym(name) or name.lower() in STOP_WORDS

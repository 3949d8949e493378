"""Evidence that a span of a text is a name, and reasons why it cannot be one."""

from __future__ import annotations

import re
from functools import cache, lru_cache, partial
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.lang.en.stop_words import STOP_WORDS

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.bags import NEGATIONS, NameBags
from spacy_bioel.kb.words.lexicon import RARE
from spacy_bioel.pipeline.annotate import text_of
from spacy_bioel.pipeline.mentions.hits import COMMA, NOTHING, Hits, Words
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.text.stems import LINKING_WORDS, linking_words_of, singular_of, stem_of, words_of

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# How near a string is to a name: equal; apart from plurals, British spelling, or the adjective of a
# name of one word; in another order; of the same families of words ("bowing", "bowed"); both.
EQUAL, SPELLED, ORDERED, FAMILY, FAMILY_ORDERED = range(5)
# Columns of the table.
#   equal ... family_ordered: 1 for how near the span is to the name
#   typos: misspelled words; replaced: a word stands for another, which names have in its place by
#       this share; coordinated: a part of "cleft lip and palate"; short: an abbreviation
#   words, letters: of the span, as logarithms; single: it is one word
#   common, rare: how often its rarest word is in biomedical texts, how seldom all of them are
#   preferred: of a concept; concepts: of the name, as a logarithm
#   after, before: a word follows, or precedes, with nothing between; head_after: by how many names
#       the word that follows is a head; head: the last word of the span
#   ending: the last word is another of its family than in the name
#   hyphened_before, hyphened_after: a hyphen binds it to a word
#   inside, crossed: a longer span is nearly a name; another one across a border of the span
FEATURES = (
    "equal", "spelled", "ordered", "family", "family_ordered", "typos", "replaced", "share",
    "coordinated", "short", "words", "letters", "single", "common", "rare", "preferred",
    "concepts", "after", "before", "head_after", "head", "ending", "hyphened_before",
    "hyphened_after", "inside", "crossed",
)  # fmt: skip
_COLUMN = {name: number for number, name in enumerate(FEATURES)}
SINGLE = _COLUMN["single"]
_SHORT, _PREFERRED, _AFTER = (_COLUMN[name] for name in ("short", "preferred", "after"))
_ASSETS = Path(__file__).parents[2] / "assets"
_MOST_KEPT = 1 << 16
# Times in a million words: of a common word. More than that is evidence of a word of the field as
# well as of an everyday word.
COMMON = 100.0
_FEWEST = 3  # characters, of names that are not in capitals
_SHORT_WORD = 5  # letters of an adjective that may be of another family
_ACRONYM = 6  # letters of a name in capitals that is matched by case


@cache
def common_words() -> dict[str, float]:
    """Read the frequency of each common word, per million words of biomedical text."""
    table = srsly.read_gzip_json(_ASSETS / "words.json.gz")
    return {word: 1e6 * count / table["total"] for word, count in table["counts"].items()}


class NameMatch(NamedTuple):
    """The name of a bag that a string is nearest to, and features of both.

    row (int): Of the name; -1: the string stands for none of the bag.
    near (int): EQUAL to FAMILY_ORDERED.
    has_comma (bool): The name has one, so that the string may.
    """

    row: int
    near: int
    words: float = 0.0
    letters: float = 0.0
    single: float = 0.0
    common: float = 0.0
    rare: float = 0.0
    head: float = 0.0
    ending: float = 0.0
    has_comma: bool = False


class NameEvidence:
    """Make the table of evidence for a knowledge base; cache the names of recent strings."""

    def __init__(self, kb: KnowledgeBase, bags: NameBags) -> None:
        self.kb = kb
        self.bags = bags
        self._match = lru_cache(maxsize=_MOST_KEPT)(partial(_nearest, kb, bags))

    def table(self, words: Words, hits: Hits) -> tuple[IntArray, NDArray[np.float32]]:
        """Return the name rows of hits, and their features.

        RETURNS (tuple): Rows, -1 for what is not a name, shape (n,); shape (n, len(FEATURES)).
        """
        matches = [self._match(string, bag) for string, bag in self._strings(words, hits)]
        table = np.array(matches, dtype=float).reshape(-1, len(NameMatch._fields)).T
        of = dict(zip(NameMatch._fields, table, strict=True))
        rows = of["row"].astype(np.int64)
        start, end = hits.start, hits.end
        commas = np.append(0, np.cumsum(words.before == COMMA))
        has_comma = commas[end] > commas[np.minimum(start + 1, len(words))]
        rows[has_comma & ((of["has_comma"] == 0) | (of["near"] > SPELLED) | (hits.by >= 0))] = -1
        rows[(of["single"] > 0) & (of["near"] > SPELLED)] = -1
        # "8, 9" is no "VIII nerve", though names of nerves differ in a number.
        is_digit = np.array([form.isdigit() for form in words.forms], dtype=bool)[words.form]
        digits = np.append(0, np.cumsum(is_digit))
        rows[(digits[end] - digits[start] == end - start) & (hits.by >= 0)] = -1
        features = np.zeros((len(hits), len(FEATURES)), dtype=np.float32)
        values = _of_kinds(words, hits, self.bags)
        values |= {name: of[name] for name in NameMatch._fields if name in _COLUMN}
        # "Renal" is evidence of "kidney" as "retinal" is of "retina".
        is_adjective = (hits.by >= 0) & (end - start == 1)
        near = np.where(is_adjective, SPELLED, of["near"])
        values |= {name: near == kind for kind, name in enumerate(FEATURES[:5])}
        values |= {name: values[name] * ~is_adjective for name in ("replaced", "share")}
        values["ending"] = np.maximum(values["ending"], is_adjective)
        values |= self._of_concepts(rows)
        values |= self._of_context(words, start, end)
        is_whole = (rows >= 0) & (hits.by < 0) & (hits.gap == end)
        values |= _of_rivals(start, end, is_whole & (of["near"] <= ORDERED))
        for name, value in values.items():
            features[:, _COLUMN[name]] = value
        return rows, features

    def _strings(self, words: Words, hits: Hits) -> list[tuple[str, int]]:
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

    def _of_concepts(self, rows: IntArray) -> dict[str, NDArray]:
        indptr, _, is_preferred = self.kb.concepts_of_names(rows)
        name = np.repeat(np.arange(len(rows)), np.diff(indptr))
        preferred = np.bincount(name, is_preferred, minlength=len(rows)) > 0
        return {"preferred": preferred, "concepts": np.log(np.maximum(np.diff(indptr), 1))}

    def _of_context(self, words: Words, start: IntArray, end: IntArray) -> dict[str, NDArray]:
        heads = [self.bags.heads.get(stem_of(form), 0.0) for form in words.forms]
        head = np.append(np.array(heads, dtype=float)[words.form], 0.0)
        articles = np.array([form == "a" for form in words.forms], dtype=bool)
        counts = np.append((words.keys != 0) & ~articles[words.form], False)
        follows = np.append(words.before == NOTHING, False) & counts
        hyphened = np.append(words.hyphened, False)
        return {
            "after": follows[end],
            "before": (np.append(words.before, 2)[start] == NOTHING) & counts[start - 1],
            "head_after": head[end] * follows[end],
            "hyphened_before": hyphened[start],
            "hyphened_after": hyphened[end],
        }


def _nearest(kb: KnowledgeBase, bags: NameBags, string: str, bag: int) -> NameMatch:
    """Find the name of a bag that a string is nearest to."""
    words = string.split()
    rows = bags.rows_of(bag)
    names = kb.names.take(rows)
    nears = [_nearness(words, name) for name in names]
    near, row, name = min(zip(nears, rows, names, strict=True))
    if near > FAMILY_ORDERED:
        return NameMatch(-1, FAMILY_ORDERED)
    own = [word for word in words if word not in LINKING_WORDS] or words
    frequencies = [min(common_words().get(word, RARE), COMMON) for word in own]
    last = words_of(normalize_name(name))[-1]
    return NameMatch(
        row,
        near,
        words=log(len(own)),
        letters=log(sum(map(len, own))),
        single=len(own) == 1,
        common=log(min(frequencies)),
        rare=-sum(log(frequency / 1e6) for frequency in frequencies) / 20,
        head=bags.heads.get(stem_of(own[-1]), 0.0),
        ending=singular_of(own[-1]) != singular_of(last),
        has_comma="," in name,
    )


def _nearness(words: list[str], name: str) -> int:
    """Rank how near words are to a name, EQUAL to FAMILY_ORDERED; more: they mean another."""
    others = words_of(normalize_name(name))
    if words == others:
        return EQUAL
    if list(map(singular_of, words)) == list(map(singular_of, others)):
        return SPELLED
    if len(words) == len(others) == 1 and _may_be_adjective(words[0], others[0]):
        return SPELLED if stem_of(words[0]) == stem_of(others[0]) else FAMILY_ORDERED + 1
    # "Seizures were absent" are no absence seizures.
    if "absent" in words and "absence" in others and "of" not in others:
        return FAMILY_ORDERED + 1
    linking = linking_words_of(name)
    own = [word for word in words if word not in linking]
    theirs = [word for word in others if word not in linking]
    if words[0] in linking or words[-1] in linking:
        return FAMILY_ORDERED + 1
    # Words may change places round "of" and "is", and where the name is inverted.
    may_reorder = len(own) < len(words) or len(theirs) < len(others) or "," in name
    if sorted(map(singular_of, own)) == sorted(map(singular_of, theirs)):
        return ORDERED if may_reorder else FAMILY_ORDERED + 1
    if list(map(stem_of, own)) == list(map(stem_of, theirs)):
        return FAMILY
    return FAMILY_ORDERED if may_reorder else FAMILY_ORDERED + 1


def _may_be_adjective(word: str, noun: str) -> bool:
    """As "retinal", "embryonic" and "hypertensive" are; "muscarinic" is of a substance."""
    if word.endswith(("al", "ar", "oid")) and len(word) > _SHORT_WORD:  # "oral" is of no name
        return True
    if word.endswith("ic") and noun.endswith(("o", "ome", "ele")):
        return True
    is_adjective = word.endswith(("ic", "sive", "matous"))
    return is_adjective and noun.endswith(("ia", "sis", "sion", "tion", "epsy", "oma", "ema"))


def _of_kinds(words: Words, hits: Hits, bags: NameBags) -> dict[str, NDArray]:
    is_typo = np.array([a != b for a, b in zip(words.forms, words.meant, strict=True)], dtype=bool)
    typos = np.append(0, np.cumsum(is_typo[words.form] & ~words.is_short))
    short = np.append(0, np.cumsum(words.is_short))
    return {
        "typos": typos[hits.end] - typos[hits.start],
        "short": short[hits.end] > short[hits.start],
        "replaced": hits.by >= 0,
        "share": np.append(bags.substitutes.share, 0.0)[hits.by],
        "coordinated": hits.gap < hits.end,
    }


def _of_rivals(start: IntArray, end: IntArray, is_near: BoolArray) -> dict[str, NDArray]:
    """Tell whether a longer span that is nearly a name contains a span, or crosses its border."""
    n = int(end.max(initial=0)) + 1
    farthest = np.zeros(n, dtype=np.int64)  # end of the longest near span from each word on
    np.maximum.at(farthest, start[is_near], end[is_near])
    reached = np.maximum.accumulate(farthest)
    before = np.append(0, reached[:-1])[start]
    inside = (before >= end) | (farthest[start] > end)
    crossed = ~inside & ((before > start) | (reached[end - 1] > end))
    return {"inside": inside, "crossed": crossed}


def ruled_out(
    words: Words,
    hits: Hits,
    rows: NDArray[np.int64],
    features: NDArray[np.float32],
    kb: KnowledgeBase,
    general: BoolArray,
) -> list[str]:
    """Tell why hits stand for something else, "" if they do not. Defined abbreviations never do.

    rows (NDArray[int64]): Name rows of the hits. Shape (n,).
    general (NDArray[bool]): Concepts that are above most others. Shape (n_concepts,).
    """
    added = kb.is_added[rows]
    # "No nail changes" has no "no nail", which HPO has as a name.
    negates = np.array([form in NEGATIONS for form in words.forms], dtype=bool)[words.form]
    is_negated = np.append(negates, False)[hits.start] & (features[:, _AFTER] > 0)
    out = ["it begins with a negation" if negated else "" for negated in is_negated.tolist()]
    single = (features[:, SINGLE] > 0) & (features[:, _SHORT] == 0) & (rows >= 0)
    of = np.flatnonzero(single)
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
        preferred = features[i, _PREFERRED] > 0
        if is_meant:
            out[i] = ""
        elif is_general:
            out[i] = "most concepts are below it"
        else:
            out[i] = is_other(text, name, in_capitals[doc], preferred=preferred)
    return out


@cache
def everyday_words() -> frozenset[str]:
    """Read the words of general English, which match a preferred name only."""
    return frozenset((_ASSETS / "everyday.txt").read_text(encoding="utf8").split())


@lru_cache(maxsize=256)
def is_in_capitals(text: str) -> bool:
    """Tell whether most letters are capitals, beyond acronyms, so that case means nothing."""
    if 2 * sum(map(str.isupper, text)) <= sum(map(str.isalpha, text)):
        return False
    words = [word for word in re.findall(r"[^\W\d_]+", text) if word.isupper() and len(word) > 1]
    return any(len(word) > _ACRONYM or word.lower() in STOP_WORDS for word in words)


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


def _needs_case(name: str) -> bool:
    return len(name) < _FEWEST or _is_acronym(name) or name.lower() in STOP_WORDS


def _is_acronym(name: str) -> bool:
    return len(name) <= _ACRONYM and 2 * sum(map(str.isupper, name)) > sum(map(str.isalpha, name))

"""Spans that are no names by their words alone: everyday words, acronyms in another case, and what
is only negated."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from spacy.lang.en.stop_words import STOP_WORDS

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.bags import NEGATIONS
from spacy_bioel.pipeline.mentions.evidence import FEATURES, SINGLE, common_words
from spacy_bioel.pipeline.mentions.hits import Hits
from spacy_bioel.pipeline.mentions.words import Words

_SHORT, _PREFERRED, _AFTER = map(FEATURES.index, ("short", "preferred", "after"))
_EVERYDAY = Path(__file__).parents[2] / "assets" / "everyday.txt"
_FEWEST = 3  # characters, of names that are not in capitals
_ACRONYM = 6  # letters of a name in capitals that is matched by case


def ruled_out(
    words: Words,
    hits: Hits,
    rows: NDArray[np.int64],
    features: NDArray[np.float32],
    kb: KnowledgeBase,
) -> list[str]:
    """Reasons why hits stand for something else, "" if not; abbreviations that are defined
    never do.

    rows (NDArray[int64]): Name rows of the hits. Shape (n,).
    """
    added = kb.is_added[rows]
    # "No nail changes" has no "no nail", which HPO has as a name.
    negates = np.array([form in NEGATIONS for form in words.forms], dtype=bool)[words.form]
    is_negated = np.append(negates, False)[hits.start] & (features[:, _AFTER] > 0)
    out = ["it begins with a negation" if negated else "" for negated in is_negated.tolist()]
    single = (features[:, SINGLE] > 0) & (features[:, _SHORT] == 0) & (rows >= 0)
    of = np.flatnonzero(single)
    starts, ends = words.places(hits.start[of], hits.end[of])
    docs = words.doc[hits.start[of]]
    texts = {number: words.docs[number].text for number in set(docs.tolist())}
    shouts = {number: _shouts(text) for number, text in texts.items()}
    names = kb.names.take(rows[of])
    for i, doc, start, end, name in zip(
        of.tolist(), docs.tolist(), starts.tolist(), ends.tolist(), names, strict=True
    ):
        text = texts[doc][start:end]
        # What a user has added is obeyed.
        is_meant = added[i] and (text == name or not _needs_case(name))
        preferred = features[i, _PREFERRED] > 0
        out[i] = "" if is_meant else _is_other(text, name, shouts[doc], preferred=preferred)
    return out


@cache
def everyday_words() -> frozenset[str]:
    """Common words that are not the field's own; names of one such word need to be preferred."""
    return frozenset(_EVERYDAY.read_text(encoding="utf8").split())


def _shouts(text: str) -> bool:
    """Whether most letters are capitals, not those of acronyms alone: then case says nothing."""
    if 2 * sum(map(str.isupper, text)) <= sum(map(str.isalpha, text)):
        return False
    words = re.findall(r"[^\W\d_]+", text)
    in_capitals = [word for word in words if word.isupper() and len(word) > 1]
    return any(len(word) > _ACRONYM or word.lower() in STOP_WORDS for word in in_capitals)


def _is_other(text: str, name: str, shouts: bool, *, preferred: bool) -> str:
    """Reason why a word stands for something else than the name; "" if it does not."""
    lowered = text.lower()
    frequency = common_words().get(lowered, 0.0)
    is_short = len(text) < (_FEWEST - 1 if _is_acronym(name) else _FEWEST)
    if is_short or not any(map(str.isalpha, text)):
        return f"fewer than {_FEWEST} characters, or no letter"
    if _is_acronym(name):
        if shouts:
            is_word = frequency > 0 or lowered in STOP_WORDS
            return "a common word, in a text in capitals" if is_word else ""
        return "" if text in (name, name + "s") else f"the short name {name} matches by its case"
    if lowered in STOP_WORDS:
        return "a function word"
    if not shouts and _is_acronym(text) and text != name and frequency:
        return f"in capitals, which the name {name} is not"  # "CAT" is no cat
    is_everyday = lowered in everyday_words() and not preferred
    return "an everyday word, and not the preferred name" if is_everyday else ""


def _needs_case(name: str) -> bool:
    return len(name) < _FEWEST or _is_acronym(name) or name.lower() in STOP_WORDS


def _is_acronym(name: str) -> bool:
    return len(name) <= _ACRONYM and 2 * sum(map(str.isupper, name)) > sum(map(str.isalpha, name))

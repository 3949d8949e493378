"""Spans that are no names by their words alone: everyday words, acronyms in another case, and what
is only negated."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray
from spacy.lang.en.stop_words import STOP_WORDS

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.bags import NEGATIONS
from spacy_bioel.pipeline.mentions.evidence import FEATURES, common_words
from spacy_bioel.pipeline.mentions.hits import Hits
from spacy_bioel.pipeline.mentions.words import Words

_SINGLE, _SHORT, _PREFERRED, _AFTER = (
    FEATURES.index(name) for name in ("single", "short", "preferred", "after")
)
_EVERYDAY = 200.0  # times in a million words; names of one such word need to be preferred ones
_FEWEST = 3  # characters
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
    # "No nail changes" has no "no nail", which HPO has as a name.
    negates = np.array([form in NEGATIONS for form in words.forms], dtype=bool)[words.form]
    is_negated = np.append(negates, False)[hits.start] & (features[:, _AFTER] > 0)
    out = ["it begins with a negation" if negated else "" for negated in is_negated.tolist()]
    single = (features[:, _SINGLE] > 0) & (features[:, _SHORT] == 0) & (rows >= 0)
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
        out[i] = _is_other(text, name, shouts[doc], preferred=features[i, _PREFERRED] > 0)
    return out


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
    if len(text) < _FEWEST or not any(map(str.isalpha, text)):
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
    is_everyday = frequency >= _EVERYDAY and not preferred
    return "an everyday word, and not the preferred name" if is_everyday else ""


def _is_acronym(name: str) -> bool:
    return len(name) <= _ACRONYM and 2 * sum(map(str.isupper, name)) > sum(map(str.isalpha, name))

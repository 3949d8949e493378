"""Answers ("Fever: no") and signs ("(-) fever"), which speak for what stands beside them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from spacy_bioel.text.rules import AFFIRMED, BESIDE, Phrase, Rules

# What follows "no" and "denies" where they are answers.
_DONE = re.compile(
    r"[^\S\n]*(?:[.,;)|]|\n(?![^\S\n]*[a-z])|\Z"
    r"|(?:since|now|today|currently|recently|at|ever)\b)"
)
_OF_QUESTIONS, _OF_ITEMS = ".;:|\n", ".;:|\n,"  # borders
_LONGEST = 120  # characters of a question
_CLOSED = re.compile(r"\bn?or\b[^,]*,")  # "No A or B," is a whole list
_LINE = re.compile(r"[^\n]+")
_MINUS = re.compile(r"[,;][^\S\n]*-(?=[A-Za-z])")


def is_behind_list(text: str, after: int, start: int, end: int, rules: Rules) -> bool:
    """Whether a mention is behind the list that is negated: "No A or B, C present"."""
    is_affirmed = rules.answers and rules.patterns["affirmed"].match(text, end)
    return bool(is_affirmed and _CLOSED.search(text, after, start))


def with_marks(
    text: str, rules: Rules, phrases: Sequence[Phrase], mentions: Sequence[tuple[int, int]]
) -> list[Phrase]:
    """Add answers and signs, in the place of phrases that overlap them."""
    marks = sorted([*_answers(text, rules, phrases), *_signs(text, rules, mentions)])
    ends = [mark.end for mark in marks]

    def is_free(phrase: Phrase) -> bool:
        at = bisect_right(ends, phrase.start)
        return at == len(marks) or phrase.end <= marks[at].start

    return sorted([*filter(is_free, phrases), *marks]) if marks else list(phrases)


def _answers(text: str, rules: Rules, phrases: Sequence[Phrase]) -> Iterator[Phrase]:
    longest = {phrase.start: phrase.end for phrase in phrases}
    before = 0  # end of the last answer
    for match in rules.patterns["answer"].finditer(text):
        start, end = match.span("mark")
        answer = match["mark"].lower()
        is_cue = any(direction != "backward" for _, direction in rules.cues.get(answer, ()))
        if longest.get(start, end) <= end and (not is_cue or _DONE.match(text, end)):
            reach = max(before, _begin(text, match.start(), _OF_QUESTIONS))
            yield Phrase(start, end, "", rules.answers[answer], reach)
            before = end


def _begin(text: str, end: int, borders: str) -> int:
    """Where the question or the item begins that ends here, behind one of the borders."""
    return 1 + max(text.rfind(border, max(0, end - _LONGEST), end) for border in borders)


def _signs(text: str, rules: Rules, mentions: Sequence[tuple[int, int]]) -> Iterator[Phrase]:
    """Find signs. One that stands between words is of the name before it, unless the signs of its
    line stand before names.
    """
    for line in _LINE.finditer(text):
        found = list(rules.patterns["sign"].finditer(text, *line.span()))
        if not found:
            continue
        said = [rules.signs[sign[0].lower()] for sign in found]
        affirms = AFFIRMED in said or bool(_MINUS.search(line[0]))
        first = found[0].start()
        stand_before = not any(line.start() <= a and b <= first for a, b in mentions)
        for sign, says in zip(found, said, strict=True):
            start, end = sign.span()
            if says == BESIDE:
                if not affirms:
                    continue
                says = "negated"
            ahead = text[line.start() : start].rstrip()[-1:]
            is_behind = ahead.isalnum() or ahead in tuple(")]")
            if text[end : line.end()].lstrip()[:1].isalnum() and (stand_before or not is_behind):
                yield Phrase(start, end, "", says)
            elif is_behind:
                yield Phrase(start, end, "", says, _begin(text, start, _OF_ITEMS))

"""Answers and signs in clinical notes: "Fever? no", "Fever: absent", "(-) fever", "fever +"."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from spacy_bioel.plugins.clinical.context_rules import AFFIRMED, NEGATED_IF_PAIRED, ContextRules


class Mark(NamedTuple):
    """An answer or sign, with its character offsets in the text.

    status (str): Status that the answer or sign gives to mentions.
    reach (int): Start of the text that the answer or sign applies to; -1: it applies to the
        following text.
    before (int): Start of the punctuation before an answer, such as "?"; -1: none.
    """

    start: int
    end: int
    status: str
    reach: int = -1
    before: int = -1

    @property
    def place(self) -> int:
        """Start of the answer or sign, or of the punctuation before an answer."""
        return self.start if self.before < 0 else self.before


# Text that can follow "no" or "denies" used as an answer.
AFTER_ANSWER = re.compile(
    r"[^\S\n]*(?:\.(?! of\b)|[,;)(]|[/|]\s|\n(?![^\S\n]*[a-z])|\Z|--?\s"
    r"|(?:since|now|today|currently|recently|at|ever|in|by|after|with)\b|\s(?:heard|seen)\b(?=[^\S\n]*(?:[.,;\n]|\Z))"
    r"|\s[A-Z][\w -]{0,30}[:?])"
)
_AFTER_AMOUNT = re.compile(
    rf"{AFTER_ANSWER.pattern}|\s(?:a|an|this|last|per|each|every|times|x|on|days?|weeks?|months?)\b"
)
_QUESTION_BORDERS = (".", ";", ": ", ":\n", "|", "\n")  # excludes the ":" in "HP:0001250"
_ITEM_BORDERS = (*_QUESTION_BORDERS, ",", "(")
_MAX_QUESTION_LENGTH = 120
_FULL_LINE = re.compile(r"[^\n]+")
# Consecutive lines that each end with a sign: "ataxia +\ntremor -".
_SIGNED_LINES = re.compile(r"(?:^[^\n]*[\w)\]][^\S\n]*[+–−-][^\S\n]*(?:\n|\Z))+", re.M)
_MINUS_BEFORE_WORD = re.compile(r"[,;][^\S\n]*-(?=[A-Za-z])")
_CLAUSE_END = re.compile(
    r"[^\S\n]*(?:[.,;:)]|\n(?![^\S\n]*[a-z])|\Z)"
)  # text that can follow a sign placed after a name


def find_marks(
    text: str, rules: ContextRules, mentions: Sequence[tuple[int, int]], units: Sequence[int]
) -> list[Mark]:
    """Return the answers and signs in a text, in order.

    units (Sequence[int]): Starts of the sentences, cells and items of the text.
    """
    return sorted([*_find_answers(text, rules, units), *_find_signs(text, rules, mentions, units)])


def start_of_unit(units: Sequence[int], position: int) -> int:
    """Return the start of the sentence, cell or item that contains `position`."""
    return units[max(0, bisect_right(units, position) - 1)]


def _find_answers(text: str, rules: ContextRules, units: Sequence[int]) -> Iterator[Mark]:
    """Yield answers to questions in the text: "Fever: no", "Fever? no", "Fever (none)"."""
    end_of_last = 0
    for match in rules.patterns["answer"].finditer(text):
        start, end = match.span("mark")
        answer = match["mark"].lower()
        _, name, cues = rules.cue_words.look_up(answer)
        is_cue = name == "not" or any(cue.kind not in ("state", "behind") for cue in cues)
        is_letter = len(answer) == 1 and text[match.start()] != "?"
        if text[start - 1 : end + 1] == "(NO)":  # nitric oxide
            continue
        if answer not in rules.answers:  # an amount
            is_answer = text[match.start()] == "?" and bool(_AFTER_AMOUNT.match(text, end))
        else:
            is_answer = not (is_cue or is_letter) or bool(AFTER_ANSWER.match(text, end))
        if is_answer:
            before = match.start()
            border = start_after(_QUESTION_BORDERS, text, before)
            reach = max(end_of_last, border, start_of_unit(units, before))
            yield Mark(start, end, rules.answers.get(answer, AFFIRMED), reach, before)
            end_of_last = end


def _find_signs(
    text: str, rules: ContextRules, mentions: Sequence[tuple[int, int]], units: Sequence[int]
) -> Iterator[Mark]:
    """Yield signs such as "+". A sign between two names applies to the first one, unless the signs
    on the line precede their names.
    """
    places = sorted(mentions)
    blocks = _SIGNED_LINES.finditer(text) if "+" in text else ()
    signed = [block.span() for block in blocks if re.search(r"\+[^\S\n]*$", block[0], re.M)]
    # For each index in `places`, the earliest end among the mentions from there onwards.
    first_ends = list(accumulate((end for _, end in reversed(places)), min))[::-1]
    for line in _FULL_LINE.finditer(text):
        signs = list(rules.patterns["sign"].finditer(text, *line.span()))
        if not signs:
            continue
        statuses = [rules.signs[sign[0].lower()] for sign in signs]
        has_affirming = AFFIRMED in statuses or bool(_MINUS_BEFORE_WORD.search(line[0]))
        has_affirming |= any(start <= line.start() < end for start, end in signed)
        first = signs[0].start()
        index = bisect_left(places, (line.start(),))
        signs_first = index == len(places) or first_ends[index] > first
        for sign, status in zip(signs, statuses, strict=True):
            start, end = sign.span()
            words_before = text[line.start() : start].rstrip()
            is_value = words_before.endswith((":", "=", "?"))
            name = words_before.rstrip(" :=?")
            before = name[-1:]
            is_after_name = before.isalnum() or before in tuple(")]")
            is_before_name = text[end : line.end()].lstrip()[:1].isalnum()
            if sign[0] in "+-–−" and is_after_name:  # the "-" is not a sign in "Scoliosis - mild"
                is_before_name &= not text[end : end + 1].isspace()
                is_after_name = _CLAUSE_END.match(text, end) is not None
            if status == NEGATED_IF_PAIRED:
                if not (has_affirming or is_value):
                    continue
                status = "negated"
            if is_before_name and (signs_first or not is_after_name):
                yield Mark(start, end, status)
            elif is_after_name:
                place = line.start() + len(name)
                reach = start_after(_ITEM_BORDERS, text, place)
                reach = max(reach, start_of_unit(units, place))
                yield Mark(start, end, status, reach, place if is_value else -1)


def start_after(borders: Sequence[str], text: str, end: int) -> int:
    """Return where the question or list item before `end` starts: just after the last border."""
    lowest = max(0, end - _MAX_QUESTION_LENGTH)
    return 1 + max(text.rfind(border, lowest, end) for border in borders)

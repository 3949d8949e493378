"""Texts that are hard for a regular expression, and whether it takes more than linear time on one.

A text repeats what an unbounded repetition of the expression matches, and then fails. It is made
longer step by step, until the time of `re` is long, so that exponential time ends too.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from re import _constants as op
from re import _parser as parser
from time import process_time
from typing import Any

# Exponential time shows in the first lengths, before it takes minutes.
_LENGTHS = (16, 20, 24, 28, 64, 256, 750)
_SHORT, _LONG = 750, 3_000
_SECONDS, _NOISE = 0.05, 0.002
_MAX_RATIO = 8  # 4 in linear time, 16 in quadratic time
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


def is_slow_on(pattern: str, flags: int = 0, *, once: bool = False) -> str:
    """Return a text for which an expression takes more than linear time, or "".

    once (bool): It is used with `match`, which starts at one place only.
    """
    compiled = re.compile(pattern, flags)

    def seconds(text: str) -> float:
        start = process_time()
        compiled.match(text) if once else deque(compiled.finditer(text), maxlen=0)
        return process_time() - start

    for text in hard_texts(parser.parse(pattern, flags), Random(0)):
        if any(seconds(text(n)) > _SECONDS for n in _LENGTHS):
            return text(_LENGTHS[-1])
        short, long = text(_SHORT), text(_LONG)
        if seconds(long) > _NOISE:
            least = [min(seconds(one) for _ in range(3)) for one in (short, long)]
            if least[1] > max(_NOISE, _MAX_RATIO * least[0]):
                return long
    return ""


def _accepts(operation: Any, value: Any, character: str, flags: int) -> bool:
    if operation is op.ANY:
        return bool(flags & re.S) or character != "\n"
    if flags & re.I:
        return any(_has(operation, value, c) for c in {character.lower(), character.upper()})
    return _has(operation, value, character)


def _has(operation: Any, value: Any, character: str) -> bool:
    if len(character) > 1:  # "ß" in capitals
        return False
    if operation is op.LITERAL:
        return ord(character) == value
    if operation is op.NOT_LITERAL:
        return ord(character) != value
    if operation is op.RANGE:
        return value[0] <= ord(character) <= value[1]
    if operation is op.CATEGORY:
        return bool(re.match(_CATEGORIES[value], character))
    if operation is op.IN:
        is_negated = value[0][0] is op.NEGATE
        return any(_has(*item, character) for item in value[is_negated:]) != is_negated
    raise NotImplementedError(operation)


_OTHER = "\N{NOT SIGN}"  # in no expression, so that they fail at the end of a text
_LETTERS = "aA1 \t.,-\n(zt|:_é"


def sample(nodes: Any, random: Random, repeats: int = 1) -> str:
    """Return a text that the nodes may match, after what a lookbehind at their start requires."""
    parts = []
    for operation, value in nodes:
        if operation in _REPEATS:
            least, most, body = value
            n = min(most, max(least, random.choice((least, repeats))))
            parts += [sample(body, random, repeats) for _ in range(n)]
        elif operation is op.SUBPATTERN:
            parts.append(sample(value[3], random, repeats))
        elif operation is op.ATOMIC_GROUP:
            parts.append(sample(value, random, repeats))
        elif operation is op.BRANCH:
            parts.append(sample(random.choice(value[1]), random, repeats))
        elif operation is op.ASSERT and value[0] < 0 and not parts:
            parts.append(sample(value[1], random, repeats))
        elif operation not in (op.ASSERT, op.ASSERT_NOT, op.AT, op.GROUPREF):
            parts.append(_character(operation, value, random))
    return "".join(parts)


def _character(operation: Any, value: Any, random: Random) -> str:
    if operation is op.LITERAL:
        return chr(value)
    if operation is op.IN and value[0][0] is not op.NEGATE:
        kind, chosen = random.choice(value)
        if kind is op.LITERAL:
            return chr(chosen)
        if kind is op.RANGE:
            return chr(random.randint(*chosen))
    fitting = [c for c in _LETTERS if _accepts(operation, value, c, 0)]
    return random.choice(fitting or ["?"])


def hard_texts(tree: Any, random: Random) -> Iterator[Callable[[int], str]]:
    """Yield functions from a length to a text, for each unbounded repetition of an expression.

    A text repeats what the repetition matches: alone, after what comes before it, or with it.
    """
    for before, body in _unbounded(list(tree), []):
        for _ in range(3):
            unit, start = sample(body, random), sample(before, random)
            for opening, repeated in (("", unit), (start, unit), ("", start + unit)):
                if repeated:
                    yield lambda n, o=opening, r=repeated: o + r * (n // len(r) + 1) + _OTHER
        mixed = "".join(sample(body, random) for _ in range(1_000))
        yield lambda n, start=start, mixed=mixed: start + mixed[:n] + _OTHER


def _unbounded(nodes: list[Any], before: list[Any]) -> Iterator[tuple[list[Any], Any]]:
    for index, (operation, value) in enumerate(nodes):
        so_far = before + nodes[:index]
        if operation in _REPEATS:
            if value[1] is op.MAXREPEAT:
                yield so_far, value[2]
            yield from _unbounded(list(value[2]), so_far)
        elif operation is op.SUBPATTERN:
            yield from _unbounded(list(value[3]), so_far)
        elif operation is op.ATOMIC_GROUP:
            yield from _unbounded(list(value), so_far)
        elif operation is op.BRANCH:
            for branch in value[1]:
                yield from _unbounded(list(branch), so_far)
        elif operation in (op.ASSERT, op.ASSERT_NOT):
            yield from _unbounded(list(value[1]), so_far)

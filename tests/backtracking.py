"""A slow matcher of regular expressions that counts its steps, and texts that are hard for them.

`re` cannot say how many steps it takes. This matcher backtracks in the same way, so that a test can
compare steps on short and on longer texts without a clock.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from re import _constants as op
from re import _parser as parser
from typing import Any

# Called with the position after a match; returns whether the rest of the expression matches.
Rest = Callable[[int], bool]
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


class TooManySteps(Exception):
    """The matcher has taken more steps than it was allowed."""


class Matcher:
    """Finds all matches of an expression, and counts the characters and empty matches it tries."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.tree = parser.parse(pattern, flags)
        self._flags = self.tree.state.flags
        self.steps = 0

    def count(
        self,
        text: str,
        *,
        once: bool = False,
        limit: int = sys.maxsize,
        found: Callable[[tuple[int, int]], object] | None = None,
    ) -> int:
        """Return the steps that `finditer` takes.

        once (bool): Count those of `match` instead, which starts only once.
        found (Callable | None): Called with the start and end of each match.
        RAISES TooManySteps: If there are more than `limit`.
        """
        self.steps, self._limit, self._text = 0, limit, text
        self._groups: dict[int, tuple[int, int]] = {}
        position = 0
        while position <= len(text):
            ends: list[int] = []
            self._groups.clear()

            def is_end(end: int, ends: list[int] = ends) -> bool:
                ends.append(end)
                return True

            if self._match(list(self.tree), 0, position, is_end, self._flags) and found:
                found((position, ends[0]))
            if once:
                break
            position = max(position + 1, ends[0]) if ends else position + 1
        return self.steps

    def _match(self, nodes: list[Any], index: int, at: int, rest: Rest, flags: int) -> bool:
        if index == len(nodes):
            return rest(at)
        self.steps += 1
        if self.steps > self._limit:
            raise TooManySteps
        operation, value = nodes[index]
        follow = partial(self._follow, nodes, index + 1, rest, flags)
        if operation in _REPEATS:
            least, most, body = value
            if operation is op.POSSESSIVE_REPEAT:
                return self._atomic([(op.MAX_REPEAT, value)], at, follow, flags)
            is_lazy = operation is op.MIN_REPEAT
            return self._repeat(list(body), least, most, 0, at, -1, follow, flags, is_lazy)
        if operation is op.SUBPATTERN:
            group, added, removed, body = value
            inner = (flags | added) & ~removed

            def close(end: int) -> bool:
                if group is not None:
                    self._groups[group] = (at, end)
                return follow(end)

            return self._match(list(body), 0, at, close, inner)
        if operation is op.ATOMIC_GROUP:
            return self._atomic(list(value), at, follow, flags)
        if operation is op.BRANCH:
            return any(self._match(list(b), 0, at, follow, flags) for b in value[1])
        if operation in (op.ASSERT, op.ASSERT_NOT):
            direction, body = value
            start = at if direction > 0 else at - body.getwidth()[0]
            is_found = start >= 0 and self._match(list(body), 0, start, lambda _: True, flags)
            return is_found == (operation is op.ASSERT) and follow(at)
        if operation is op.AT:
            return self._is_at(value, at, flags) and follow(at)
        if operation is op.GROUPREF:
            start, end = self._groups.get(value, (0, -1))
            words = self._text[start:end]
            return end >= start and self._text.startswith(words, at) and follow(at + len(words))
        is_there = at < len(self._text) and _accepts(operation, value, self._text[at], flags)
        return is_there and follow(at + 1)

    def _follow(self, nodes: list[Any], index: int, rest: Rest, flags: int, at: int) -> bool:
        return self._match(nodes, index, at, rest, flags)

    def _atomic(self, nodes: list[Any], at: int, follow: Rest, flags: int) -> bool:
        ends: list[int] = []
        is_found = self._match(nodes, 0, at, lambda end: not ends.append(end), flags)
        return is_found and follow(ends[0])

    def _repeat(
        self, body: list[Any], least: int, most: int, n: int, at: int, before: int, follow: Rest,
        flags: int, is_lazy: bool,
    ) -> bool:  # fmt: skip
        def again(end: int) -> bool:
            if end == at and n >= least:  # an empty repetition ends the loop
                return False
            return self._repeat(body, least, most, n + 1, end, at, follow, flags, is_lazy)

        if n < least:
            return self._match(body, 0, at, again, flags)
        if is_lazy:
            return follow(at) or (n < most and self._match(body, 0, at, again, flags))
        return (n < most and self._match(body, 0, at, again, flags)) or follow(at)

    def _is_at(self, where: Any, at: int, flags: int) -> bool:
        pattern = {
            op.AT_BEGINNING: "^", op.AT_BEGINNING_STRING: r"\A", op.AT_BOUNDARY: r"\b",
            op.AT_NON_BOUNDARY: r"\B", op.AT_END: "$", op.AT_END_STRING: r"\Z",
        }[where]  # fmt: skip
        return bool(re.compile(pattern, flags & (re.M | re.A)).match(self._text, at))


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

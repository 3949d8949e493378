"""Time is linear in the length of a text, whatever the text: lines are counted, not seconds.

A loop in Python runs the lines in it, and a comprehension counts as a line for each item. The time
of regular expressions is bounded by tests/test_expressions.py, and processor time is measured by
benchmarks/adversarial.py.
"""

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

import spacy_bioel
from benchmarks.adversarial import generators
from spacy_bioel.loading import load_model

PACKAGE = str(spacy_bioel.__path__[0])
SHORT, LONG = 2_000, 8_000
# Four times as many lines would be linear; some texts only start to be hard after a few words.
MAX_RATIO = 5.0
TEXTS = [
    "'.'", "'1,'", "'1.'", "'-'", "'('", "variant forms", "variants in brackets", "tabs", "bullets",
    "mixed note", "clinical short forms", "short form after definition", "new definitions",
    "new definitions of genes", "new symbols in organisms", "genes by slash", "gene lists",
    "genes of organisms", "organisms",
    "lines no fever", "fevers absent", "cues alone", "without full stops", "questions", "table",
    "measurements", "new typos", "new headers", "a cue and then", "a header and then", "composites",
    "fever and then '\\t'", "fever and then '-'",
]  # fmt: skip


@pytest.fixture(scope="module")
def nlp() -> Any:
    nlp = load_model("starter", preset="clinical")
    for name in ("new capitals", "new typos"):  # build what the first use does
        nlp(generators()[name](LONG))
    return nlp


def lines_run(nlp: Any, text: str) -> int:
    """Return how many lines of the package run to link a text and read contexts."""
    n = 0

    def count_lines(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal n
        n += event == "line"
        return count_lines

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        return count_lines if frame.f_code.co_filename.startswith(PACKAGE) else None

    previous = sys.gettrace()
    sys.settrace(enter)
    try:
        doc = nlp(text)
        for group in doc.spans.values():
            for span in group:
                span._.negated  # noqa: B018
    finally:
        sys.settrace(previous)
    return n


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_lines_that_run(nlp, name):
    text = generators()[name]
    before = lines_run(nlp, text(SHORT))  # first, since strings are cached
    assert lines_run(nlp, text(LONG)) <= MAX_RATIO * before


def pairs(items: list[int]) -> Iterator[int]:
    return (a + b for a in items for b in items)


def test_a_planted_quadratic_loop_is_noticed(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", __file__)

    class Planted:
        def __call__(self, text: str) -> Any:
            self.n = sum(pairs(list(range(len(text) // 100))))
            return self

        spans: dict[str, list[Any]] = {}

    planted = Planted()
    assert lines_run(planted, "a" * LONG) > MAX_RATIO * lines_run(planted, "a" * SHORT)

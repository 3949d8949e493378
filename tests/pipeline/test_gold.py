from __future__ import annotations

import pytest
from spacy.tokens import Span
from spacy.training import Example
from tiny import blank, examples

from spacy_bioel.corpus import text_to_doc
from spacy_bioel.pipeline.annotate import (
    GoldSpan,
    add_gold,
    gold_spans,
    mention_spans,
    split_ids,
    with_gold_mentions,
)
from spacy_bioel.types import AnnotatedText, Mention

# "adenoma" begins inside a token; "lung and breast cancer" is a composite with one nested in it.
TEXT = AnnotatedText(
    "7",
    "cystadenoma, lung and breast cancer, odd",
    (
        Mention(4, 11, "Disease", ("X:1",)),
        Mention(13, 35, "Disease", ("X:2", "X:3")),
        Mention(22, 35, "Disease", ("X:3",)),
        Mention(37, 40, "Sign"),
    ),
)
KEPT = [("lung and breast cancer", "X:2|X:3"), ("breast cancer", "X:3"), ("odd", "")]


@pytest.mark.parametrize(
    ("widen", "widened", "lost", "spans"),
    [
        (False, 0, ["7:4-11 'adenoma'"], KEPT),
        (True, 1, [], [("cystadenoma", "X:1"), *KEPT]),
    ],
)
def test_alignment_counts(
    widen: bool, widened: int, lost: list[str], spans: list[tuple[str, str]]
) -> None:
    doc, alignment = text_to_doc(blank(), TEXT, widen=widen)
    assert (alignment.n, alignment.widened, alignment.lost) == (4, widened, lost)
    assert [(span.text, span.kb_id_) for span in doc.spans["bioel_gold"]] == spans


def test_counts_add_up() -> None:
    _, total = text_to_doc(blank(), TEXT)
    total.add(text_to_doc(blank(), TEXT, widen=True)[1])
    assert (total.n, total.widened, len(total.lost)) == (8, 1, 1)


def test_gold_spans_go_by_characters_not_by_tokens() -> None:
    (example,) = examples(blank(), [TEXT])
    merged = blank().make_doc(TEXT.text)
    with merged.retokenize() as retokenizer:
        retokenizer.merge(merged[2:4])  # "lung and"
    moved = Example(merged, example.reference)
    assert list(gold_spans(moved)) == [
        GoldSpan(2, 5, "Disease", ("X:2", "X:3")),
        GoldSpan(3, 5, "Disease", ("X:3",)),
        GoldSpan(6, 7, "Sign", ()),
    ]


def test_no_gold() -> None:
    doc = blank().make_doc("x")
    assert list(gold_spans(Example(doc, doc.copy()))) == []
    assert add_gold(doc, AnnotatedText("1", "x")).n == 0
    assert len(doc.spans["bioel_gold"]) == 0


def test_gold_mentions_for_the_linker_have_no_ids() -> None:
    doc = with_gold_mentions(blank().make_doc(TEXT.text), TEXT)
    assert [(span.text, span.label_, span.kb_id_) for span in doc.spans["bioel"]] == [
        ("cystadenoma", "Disease", ""),
        ("lung and breast cancer", "Disease", ""),
        ("breast cancer", "Disease", ""),
        ("odd", "Sign", ""),
    ]


@pytest.mark.parametrize(
    ("kb_id", "ids"), [("", ()), ("NIL", ()), ("X:1", ("X:1",)), ("X:1|X:2", ("X:1", "X:2"))]
)
def test_ids_of_a_kb_id(kb_id: str, ids: tuple[str, ...]) -> None:
    assert split_ids(kb_id) == ids


@pytest.mark.parametrize(
    ("mentions", "with_group", "expected"),
    [
        ("auto", True, ["b c"]),
        ("auto", False, ["a"]),
        ("spans", True, ["b c"]),
        ("spans", False, []),
        ("ents", True, ["a"]),
    ],
)
def test_what_is_to_be_linked(mentions: str, with_group: bool, expected: list[str]) -> None:
    doc = blank().make_doc("a b c")
    doc.ents = [Span(doc, 0, 1, label="X")]
    if with_group:
        doc.spans["bioel"] = [Span(doc, 1, 3, label="Y")]
    assert [span.text for span in mention_spans(doc, mentions)] == expected

"""A document that fails is a row with its error, in any batch; the others are linked."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from spacy.language import Language
from spacy.tokens import Doc
from tiny import linking_nlp

from spacy_bioel.cli.inputs import write_links
from spacy_bioel.export.rows import Document, LinkedText, Totals, link_mentions, link_texts, to_row
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import AnnotatedText, Concept, Mention

DOCUMENTS: list[Document] = [
    ("Narcan was given.", "a"),
    ("break here", "b"),
    (None, "c"),
    ("clonidine", None),
]


@Language.component("breaks")
def breaks(doc: Doc) -> Doc:
    if doc.text.startswith("break"):
        raise IndexError("no such thing")
    return doc


@pytest.fixture(scope="module")
def nlp(tmp_path_factory) -> Language:
    kb = tmp_path_factory.mktemp("rows") / "kb"
    build_kb([Concept("X:1", ("Naloxone", "Narcan")), Concept("X:2", ("Clonidine",))], kb)
    nlp = linking_nlp(kb, mentions="dictionary", model={"dim": 16})
    nlp.add_pipe("breaks", first=True)
    return nlp


def found(nlp: Language, documents: list[Document], **settings: Any) -> list[tuple[Any, ...]]:
    rows = [to_row(one) for one in link_texts(nlp, documents, **settings)]
    return [
        (row["id"], row["text"], [link["id"] for link in row["links"]], row["error"])
        for row in rows
    ]


NO_STRING = (
    "The document's text has type NoneType, expected a string. Correct the source, or leave "
    "the document out."
)
EXPECTED = [
    ("a", "Narcan was given.", ["X:1"], None),
    ("b", "break here", [], {"code": "IndexError", "message": "no such thing"}),
    ("c", None, [], {"code": "B190", "message": NO_STRING}),
    (None, "clonidine", ["X:2"], None),
]


def totals_of(linked: Iterable[LinkedText]) -> Totals:
    totals = Totals()
    for one in linked:
        totals.add(one)
    return totals


@pytest.mark.parametrize(("batch_size", "n_process"), [(1, 1), (2, 1), (64, 1), (2, 2)])
def test_a_document_that_fails_is_a_row(nlp, batch_size, n_process):
    assert found(nlp, DOCUMENTS, batch_size=batch_size, n_process=n_process) == EXPECTED
    assert found(nlp, []) == []
    totals = totals_of(link_texts(nlp, DOCUMENTS))
    assert totals == Totals(documents=4, mentions=2, nil=0, failed=2)


@pytest.fixture
def fail_at(monkeypatch) -> Callable[[Any, str], None]:
    """Let a linker fail at batches with a document that has this word."""

    def fail_at(linker: Any, word: str) -> None:
        predict = linker.predict

        def predict_or_fail(docs: Any) -> Any:
            if any(word in doc.text for doc in docs):
                raise MemoryError
            return predict(docs)

        monkeypatch.setattr(linker, "predict", predict_or_fail, raising=False)

    return fail_at


def test_a_batch_that_fails_in_the_linker_is_done_one_by_one(nlp, fail_at):
    fail_at(nlp.get_pipe("bioel_linker"), "fails")
    rows = found(nlp, [("Narcan", "1"), ("fails", "2"), ("clonidine", "3"), ("Narcan", "4")])
    assert [row[2] for row in rows] == [["X:1"], [], ["X:2"], ["X:1"]]
    assert [row[3] for row in rows] == [None, {"code": "MemoryError", "message": ""}, None, None]


def test_errors_of_spacy_keep_their_code(nlp, monkeypatch):
    monkeypatch.setattr(nlp, "max_length", 20)
    (row,) = found(nlp, [("Narcan " * 4, "long")])
    assert row[:3] == ("long", "Narcan " * 4, []) and row[3]["code"] == "E088"
    assert row[3]["message"].startswith("Text of length 28 exceeds maximum of 20.")


def test_documents_are_streamed(nlp):
    taken = []

    def endless() -> Iterator[Document]:
        while True:
            taken.append(1)
            yield "break", "x"

    linked = link_texts(nlp, endless(), batch_size=2)
    assert [next(linked).id, next(linked).id] == ["x", "x"]
    assert len(taken) <= 4


def test_words_of_a_batch_are_forgotten(nlp):
    words = [f"Narcanlike{i}" for i in range(6)]
    n_strings = len(nlp.vocab.strings)
    linked = link_texts(nlp, [(f"{word} or Narcan", word) for word in words], batch_size=2)
    assert [len(one.links) for one in linked] == [1] * 6
    assert not any(word in nlp.vocab.strings for word in words)
    assert len(nlp.vocab.strings) == n_strings


def test_a_generator_that_nobody_finishes_leaves_the_pipeline_alone(nlp):
    linked = link_texts(nlp, DOCUMENTS, batch_size=2)
    first = next(linked)
    assert not nlp.vocab.in_memory_zone  # type: ignore[attr-defined]
    with pytest.raises(IndexError, match="no such thing"):
        nlp("break")
    doc = nlp("Unheardof Narcan")
    linked.close()
    assert [token.text for token in doc] == ["Unheardof", "Narcan"]
    assert [(link.ids, link.candidates[0].id) for link in first.links] == [(("X:1",), "X:1")]


def test_within_a_zone_of_the_caller(nlp):
    with nlp.memory_zone():
        doc = nlp("Otherunheard Narcan")
        assert [one.id for one in link_texts(nlp, DOCUMENTS, batch_size=2)] == ["a", "b", "c", None]
        assert doc[0].text == "Otherunheard"
    assert "Otherunheard" not in nlp.vocab.strings


def test_half_a_surrogate_pair_is_the_error_of_its_document(nlp):
    documents: list[Document] = [
        ("Narcan", "1"),
        ("Narcan \ud800.", "2"),
        ("clonidine", "\udcff"),
        ("clonidine", "4"),
    ]
    rows = found(nlp, documents)
    assert [row[:3] for row in rows] == [
        ("1", "Narcan", ["X:1"]),
        ("2", "Narcan \ufffd.", []),
        ("\ufffd", "clonidine", []),
        ("4", "clonidine", ["X:2"]),
    ]
    assert [row[3] and row[3]["code"] for row in rows] == [None, "B251", "B251", None]
    assert rows[1][3]["message"].startswith("Character 7 of the text is U+D800, which cannot be")
    assert rows[2][3]["message"].startswith("Character 0 of the id is byte 0xff, which is not")


# Mentions that are given.

TEXTS = [
    AnnotatedText("1", "anti-Narcan, rash", (Mention(5, 11, "Drug"), Mention(13, 17, "Sign"))),
    AnnotatedText("2", ""),
    AnnotatedText("3", "breaks", (Mention(0, 6, "Drug"),)),
    AnnotatedText("4", "rash", (Mention(0, 4, "Drug", ("D:9",)), Mention(0, 4, "Sign"))),
]


@pytest.mark.parametrize("batch_size", [1, 64])
def test_each_mention_is_linked_where_its_label_says(batch_size, fail_at, tmp_path):
    drugs = [Concept("D:1", ("Naloxone", "Narcan")), Concept("D:2", ("Rash",))]
    build_kb(drugs, tmp_path / "drugs")
    build_kb([Concept("S:1", ("Rash",))], tmp_path / "signs")
    nlp = linking_nlp(tmp_path / "drugs", mentions="dictionary", model={"dim": 16})
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.cfg["kb"] = {"Drug": str(tmp_path / "drugs"), "Sign": str(tmp_path / "signs")}
    fail_at(linker, "breaks")
    found = list(link_mentions(nlp, TEXTS, batch_size=batch_size))
    assert [one.id for one in found] == ["1", "2", "3", "4"]
    assert [[(x.start, x.end, x.label, x.ids) for x in one.links] for one in found] == [
        [(5, 11, "Drug", ("D:1",)), (13, 17, "Sign", ("S:1",))],
        [],
        [],
        [(0, 4, "Drug", ("D:2",)), (0, 4, "Sign", ("S:1",))],
    ]
    assert [one.error and one.error.code for one in found] == [None, None, "MemoryError", None]
    assert linker.cfg["mentions"] == "dictionary"


IMPOSSIBLE: list[tuple[Any, Any]] = [
    *[(4, 4), (9, 4), (-3, 4), (-6, -1), (0, 900), (50, 60), (6, 7), (0.0, 6.0), ("0", "6")],
    *[(None, 6), (True, 6), (0, float("nan")), ("Narcan was given. " * 50, 6)],
]


@pytest.mark.parametrize("place", IMPOSSIBLE)
@pytest.mark.parametrize("batch_size", [1, 64])
def test_an_impossible_mention_is_refused_and_the_others_are_linked(nlp, place, batch_size):
    good, bad = (Mention(0, 6, "D"), Mention(11, 20, "D")), Mention(*place, "D")
    texts = [
        AnnotatedText("0", "clonidine", (Mention(0, 9, "D"),)),
        AnnotatedText("1", "Narcan and clonidine", (good[0], bad, good[1])),
        AnnotatedText("2", "Narcan", (bad, bad)),
        AnnotatedText("3", "Narcan", (Mention(0, 6, "D"),)),
    ]
    found = list(link_mentions(nlp, texts, batch_size=batch_size))
    assert [[link.ids for link in one.links] for one in found] == [
        [("X:2",)],
        [("X:1",), ("X:2",)],
        [],
        [("X:1",)],
    ]
    assert [one.error and one.error.code for one in found] == [None, "B554", "B554", None]
    assert found[1].error.message.startswith("1 of 3 mentions are not linked; the offsets of the")
    assert found[2].error.message.startswith("2 of 2 ") and "<= 6 around" in found[2].error.message
    assert len(found[1].error.message) < 300
    assert totals_of(found) == Totals(documents=4, mentions=4, nil=0, failed=2)


@pytest.mark.parametrize("suffix", [".csv", ".pubtator", ".bioc.xml", ".ann", ".html", ".jsonl"])
def test_no_format_leaves_out_the_other_mentions(nlp, tmp_path, suffix):
    mentions = (Mention(0, 6, "D"), Mention(0, 600, "D"))
    linked = link_mentions(nlp, [AnnotatedText("1", "Narcan.", mentions)])
    path, totals = tmp_path / f"out{suffix}", Totals()
    write_links(linked, {str(path): suffix}, totals)
    assert (totals.mentions, totals.failed) == (1, 1)
    files = [path, *path.glob("*")] if path.is_dir() else [path]
    assert "X:1" in "".join(file.read_text() for file in files if file.is_file())

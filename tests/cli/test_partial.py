"""Linked documents in a partial file: each comes back as it was."""

from collections.abc import Iterator
from typing import Any

import pytest

from spacy_bioel.cli.partial import PartialLinks
from spacy_bioel.errors import BioelError
from spacy_bioel.export.rows import Document, Failure, LinkedText
from spacy_bioel.types import AnnotatedText, Candidate, Link, Mention

CANDIDATES = (Candidate("X:1", 0.1 + 0.2, "é", "exact", "kb1"), Candidate("X:2", 1e-17))
CONTEXT = {"negated": True, "cues": [{"start": 0, "end": 2, "says": "negated"}]}
LINKED = [
    LinkedText(None, "a\u2028b\x00", (Link(0, 1, "D"),)),
    LinkedText("1", "text", (Link(0, 4, "D", ("X:1", "Y:1"), CANDIDATES, {"context": CONTEXT}),)),
    LinkedText("2", "😀", (Link(0, 1, "", facts={"many": [1, None, {"a": "ü"}], "x": True}),)),
    LinkedText("3", {"a": ["b", 1.5]}, error=Failure("B190", "no text")),
    LinkedText("\ufffd", None, error=Failure("B190", "no text")),
]
TEXTS: list[Document] = [(one.text, "\ud800") for one in LINKED]


def interrupted(n: int) -> Any:
    def link_all(documents: Any) -> Iterator[LinkedText]:
        for number, (_, linked) in enumerate(zip(documents, LINKED, strict=True)):
            if number == n:
                raise KeyboardInterrupt
            yield linked

    return link_all


def not_called(documents: Any) -> Iterator[LinkedText]:
    assert list(documents) == []
    yield from ()


def test_all_values_are_restored(tmp_path):
    partial = PartialLinks(tmp_path / "x.partial", resume=False)
    partial.check({"MODEL": "m"})
    assert list(partial.link(TEXTS, interrupted(9))) == LINKED
    again = PartialLinks(partial.path, resume=True)
    again.check({"MODEL": "m"})
    assert (again.n_earlier, again.n_kept) == (5, 5)
    restored = list(again.link(TEXTS, not_called))
    assert restored == LINKED
    assert [repr(one) for one in restored] == [repr(one) for one in LINKED]  # tuples stay tuples
    assert restored[1].links[0].candidates[0].kb == "kb1"


@pytest.mark.parametrize("cut", [1, 5, 30, 100])
def test_any_torn_end(tmp_path, cut):
    partial = PartialLinks(tmp_path / "x.partial", resume=False)
    list(partial.link(TEXTS, interrupted(9)))
    whole = partial.path.read_bytes()
    for size in range(0, len(whole), cut):
        partial.path.write_bytes(whole[:size])
        again = PartialLinks(partial.path, resume=True)
        assert again.n_earlier == max(whole[:size].count(b"\n") - 1, 0)
        rest = LINKED[again.n_earlier :]
        linked = again.link(
            TEXTS, lambda texts, rest=rest: (r for r, _ in zip(rest, texts, strict=True))
        )
        assert list(linked) == LINKED
        assert partial.path.read_bytes() == whole


def test_other_mentions_of_the_same_text_are_another_document(tmp_path):
    texts = [AnnotatedText("1", "Fever", (Mention(0, 5, "D"),))]
    partial = PartialLinks(tmp_path / "x.partial", resume=False)
    list(partial.link(texts, lambda texts: (LinkedText("1", t.text) for t in texts)))
    texts = [AnnotatedText("1", "Fever", (Mention(0, 4, "D"),))]
    with pytest.raises(BioelError, match="B553"):
        list(PartialLinks(partial.path, resume=True).link(texts, not_called))


def test_a_run_that_was_killed_before_its_first_document_is_no_obstacle(tmp_path):
    path = tmp_path / "x.partial"
    other = '{"partial output of": "bioel link", "MODEL": "other"}'
    for start in ("", other[:9], other[:-3], f"{other}\n", f"{other}\nabc"):
        path.write_text(start)
        partial = PartialLinks(path, resume=False)
        partial.check({"MODEL": "m"})
        assert list(partial.link(TEXTS, interrupted(9))) == LINKED
        assert path.read_text().startswith(other.replace("other", "m") + "\n")
        path.unlink()


@pytest.mark.parametrize(
    "content", [b"garbage", b"\xff\x00", b"a}\nb}\n", b'{"id": 1}\n{"id": 2}\n']
)
def test_a_file_of_another_program_is_kept(tmp_path, content):
    path = tmp_path / "x.partial"
    path.write_bytes(content)
    for resume in (False, True):
        with pytest.raises(BioelError, match="B556"):
            PartialLinks(path, resume=resume)
    assert path.read_bytes() == content

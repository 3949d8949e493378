import json

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.jsonl import (
    read_concepts_jsonl,
    read_documents_jsonl,
    read_texts_jsonl,
    write_texts_jsonl,
)
from spacy_bioel.types import AnnotatedText, Concept, Mention

TEXTS = [
    AnnotatedText(
        "1",
        "renal and liver failure",
        (Mention(0, 23, "Disease", ("D1", "D2"), ((0, 5), (16, 23))), Mention(10, 15, "")),
    ),
    AnnotatedText("2", "naïve"),
]


def lines(write, *records: object):
    return write("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records))


def test_concepts(write):
    more = {"types": ["C05", "C"], "parents": ["D0"], "definition": "Dry mouth."}
    # Concepts without names are dropped and counted by the build.
    others = {"id": "D9", "replaced_by": "MESH:D1"}, {"id": "D2", "names": []}, {"id": "HP:3"}
    path = lines(write, {"id": "D1", "names": ["Sjögren"]} | more, *others)
    assert list(read_concepts_jsonl(path, prefix="MESH")) == [
        Concept("MESH:D1", ("Sjögren",), ("C05", "C"), ("MESH:D0",), "Dry mouth."),
        Concept("MESH:D9", (), replaced_by="MESH:D1"),
        Concept("MESH:D2", ()),
        Concept("HP:3", ()),
    ]


def test_texts_round_trip(tmp_path):
    path = tmp_path / "texts.jsonl"
    assert write_texts_jsonl(path, iter(TEXTS)) == 2
    assert list(read_texts_jsonl(path)) == TEXTS


def test_texts_of_other_shapes(write):
    path = lines(
        write,
        {"pmid": 5, "text": "a fever", "mentions": [[2, 7, "fever", "UMLS:C0015967"]]},
        "",
        {"text": "no id", "source": "web"},
        {"id": "x", "text": "flu", "mentions": [{"start": 0, "end": 3, "ids": "D1|D2"}]},
    )
    assert list(read_texts_jsonl(path)) == [
        AnnotatedText("5", "a fever", (Mention(2, 7, "", ("C0015967",)),)),
        AnnotatedText("2", "no id"),
        AnnotatedText("x", "flu", (Mention(0, 3, "", ("D1", "D2")),)),
    ]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{", "B131.*line 2"),
        ("[1]", "B131.*line 2"),
        ({"names": ["a"]}, "B132.*line 2: key 'id' is missing"),
        ({"id": "D1", "names": "a"}, "B132.*line 2: 'names' is 'a', of type str"),
        ({"id": "D1", "names": [1]}, "B132.*line 2: 'names'"),
        ({"id": 1, "names": ["a"]}, "B132.*line 2: 'id' is 1, of type int"),
        ({"id": " ", "names": ["a"]}, "B132.*line 2.*empty 'id'"),
        ({"id": "D1", "names": ["a"], "synonyms": []}, "B132.*unknown key 'synonyms'"),
    ],
)
def test_malformed_concepts(write, record, message):
    with pytest.raises(BioelError, match=message):
        list(read_concepts_jsonl(lines(write, {"id": "D1", "names": ["a"]}, record)))


@pytest.mark.parametrize(
    ("mention", "message"),
    [
        ([0, 3, "cold", "D1"], "B106.*line 1, mention 1.*'flu'.*'cold'"),
        ([0, 4, "flu", "D1"], "B105.*line 1, mention 1"),
        ([0, 3, "flu"], "B132.*line 1, mention 1"),
        ("flu", "B132.*line 1, mention 1"),
        ({"start": 0}, "B132.*key 'end' is missing"),
        ({"start": "0", "end": 3}, "B132.*'start'"),
        ({"start": 0, "end": 3, "ids": [7]}, "B132.*'ids'"),
        ({"start": 0, "end": 3, "fragments": [[0]]}, "B132.*'fragments'"),
        ({"start": 0, "end": 3, "fragments": [[0, 9]]}, "B105.*0-9"),
    ],
)
def test_malformed_mentions(write, mention, message):
    with pytest.raises(BioelError, match=message):
        list(read_texts_jsonl(lines(write, {"id": "1", "text": "flu", "mentions": [mention]})))
    with pytest.raises(BioelError, match="B132.*line 1: key 'text' is missing"):
        list(read_texts_jsonl(lines(write, {"id": "1"})))


def test_output_of_bioel_link_is_read(write, caplog):
    candidates = [{"id": "MESH:D1", "score": 0.9, "name": "flu", "evidence": "exact"}]
    link = {"start": 4, "end": 7, "text": "flu", "label": "", "candidates": candidates}
    rows = [
        {"id": "1", "text": "The flu", "error": None, "links": [
            {**link, "id": "MESH:D1", "ids": ["MESH:D1", "MESH:D2"]},
            {**link, "id": None, "ids": []},
        ]},
        {"id": "2", "text": None, "links": [], "error": {"code": "B190", "message": "no text"}},
        {"id": "3", "text": "Nothing", "links": [], "error": None},
    ]  # fmt: skip
    path = write("".join(json.dumps(row) + "\n" for row in rows), "links.jsonl")
    assert list(read_texts_jsonl(path)) == [
        AnnotatedText(
            "1", "The flu", (Mention(4, 7, "", ("MESH:D1", "MESH:D2")), Mention(4, 7, ""))
        ),
        AnnotatedText("3", "Nothing"),
    ]
    assert "[W260]" in caplog.text and "line 2" in caplog.text and "B190" in caplog.text


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("[" * 100_000 + "]" * 100_000, "more than 100 deep"),
        ("[" * 101 + "]" * 101, "more than 100 deep"),
        ("9" * 5000, "thousands of digits"),
        ('"\\ud800"', r"\\ud800, which is half"),
    ],
)
def test_unusual_json_is_refused(write, value, found):
    path = write(f'{{"id": "1", "names": [], "x": {value}}}\n', "x.jsonl")
    with pytest.raises(BioelError, match=rf"\[B131\] .*line 1: .*{found}"):
        list(read_concepts_jsonl(path))


def test_brackets_and_escaped_surrogates_inside_a_text(tmp_path):
    path = tmp_path / "x.jsonl"
    text = "[" * 200 + "\\ud800"
    path.write_text(json.dumps({"text": text + "🙂"}) + "\n")
    assert [t.text for t in read_texts_jsonl(path)] == [text + "🙂"]
    path.write_text('{"text": "\\ud800"}\n')
    assert list(read_documents_jsonl(path)) == [("\ud800", "1")]  # linking will report the error

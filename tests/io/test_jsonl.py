import json

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import detect_corpus_format
from spacy_bioel.io.jsonl import (
    read_concepts_jsonl,
    read_documents_jsonl,
    read_texts_jsonl,
    write_texts_jsonl,
)
from spacy_bioel.io.open import BadRecord, skipping_bad
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


@pytest.mark.parametrize("form", ["[{},{}]", "[\n{},\n{}\n]\n", "\n[ \n{},\n\n  {}\n]"])
def test_an_array(write, form):
    path = write(form.format('{"text": "a[],", "mentions": []}', '{"text": "b", "id": "x"}'))
    assert detect_corpus_format(path) == "jsonl"
    assert [(t.id, t.text) for t in read_texts_jsonl(path)] == [("1", "a[],"), ("x", "b")]
    assert list(read_documents_jsonl(path)) == [("a[],", "1"), ("b", "x")]
    assert list(read_texts_jsonl(write("[]"))) == list(read_texts_jsonl(write("[\n]\n"))) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[\n{"text": "a"},\n5\n]', 3),
        ('[\n{"text": "a"},\n{"text": "b"\n]', 3),
        ('[{"text": "a"}, 5]', 1),
        ('[\n{\n"text": "a"\n}\n]', 2),  # over several lines
        ('{"text": "a"}\n[5]', 2),
    ],
)
def test_an_array_that_is_wrong(write, text, line):
    with pytest.raises(BioelError, match=rf"\[B131\] .*, line {line}: expected.* jq -c \.\[\]"):
        list(read_texts_jsonl(write(text)))


def test_an_array_that_was_cut_off(write):
    with pytest.raises(BioelError, match=r"\[B131\] .*no \] in its last line"):
        list(read_texts_jsonl(write('[\n{"text": "a"},\n{"text": "b"},\n')))


def test_bad_records_of_an_array(write):
    bad: list[BadRecord] = []
    with skipping_bad(bad.append):
        texts = list(
            read_texts_jsonl(write('[\n{"text": "a"},\n5,\n{"text": 1},\n{"text": "b"}\n]'))
        )
    assert [text.text for text in texts] == ["a", "b"]
    assert [(record.line, record.code) for record in bad] == [(3, "B131"), (4, "B132")]


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
        ({"start": 0, "end": 3, "ids": [7.5]}, "B132.*'ids'"),
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


TEXT = "Fever and flu"
FEVER, FLU = Mention(0, 5, "Sign", ("X:1",)), Mention(10, 13, "Disease", ("X:2", "X:3"))
BARE = (Mention(0, 5, "Sign"), Mention(10, 13, "Disease"))
AS_PEOPLE_HAVE_THEM = {
    "our output": (
        {"links": [
            {"start": 0, "end": 5, "text": "Fever", "label": "Sign", "id": "X:1"},
            {"start": 10, "end": 13, "label": "Disease", "id": "X:2", "ids": ["X:2", "X:3"]},
        ]},
        (FEVER, FLU),
    ),
    "our output with NIL": (
        {"links": [{"start": 0, "end": 5, "label": "Sign", "id": None, "ids": []}]}, BARE[:1],
    ),
    "Prodigy": (
        {
            "spans": [
                {"start": 0, "end": 5, "token_start": 0, "token_end": 0, "label": "Sign"},
                {"start": 10, "end": 13, "label": "Disease"},
            ],
            "tokens": [{"text": "Fever", "start": 0, "end": 5, "id": 0, "ws": True}],
            "_input_hash": 17, "_task_hash": -5, "_view_id": "ner_manual", "answer": "accept",
        },
        BARE,
    ),
    "Prodigy with ids": (
        {"spans": [
            {"start": 0, "end": 5, "label": "Sign", "kb_id": "X:1"},
            {"start": 10, "end": 13, "label": "Disease", "link": "X:2|X:3"},
        ]},
        (FEVER, FLU),
    ),
    "numbered mentions": (
        {"mentions": [
            {"id": 1, "start": 0, "end": 5, "label": "Sign", "ids": ["X:1"]},
            {"id": "T2", "start": 10, "end": 13, "label": "Disease", "ids": []},
        ]},
        (FEVER, BARE[1]),
    ),
    "other keys for ids": (
        {"entities": [
            {"id": "T1", "start": 0, "end": 5, "label": "Sign", "cui": "X:1"},
            {"start": 10, "end": 13, "label": "Disease", "concept_id": "X:2,X:3"},
        ]},
        (FEVER, FLU),
    ),
    "Prodigy without spans": (
        {"spans": [], "tokens": [{"text": "Fever", "start": 0, "end": 5, "id": 0}]}, (),
    ),
    "doccano": ({"label": [[0, 5, "Sign"], [10, 13, "Disease"]], "Comments": []}, BARE),
    "doccano, plural": ({"labels": [[0, 5, "Sign"], [10, 13, "Disease"]]}, BARE),
    "doccano with relations": (
        {
            "entities": [
                {"id": 31, "label": "Sign", "start_offset": 0, "end_offset": 5},
                {"id": 32, "label": "Disease", "start_offset": 10, "end_offset": 13},
            ],
            "relations": [{"id": 1, "from_id": 31, "to_id": 32, "type": "of"}],
        },
        BARE,
    ),
    "classes of the whole text": ({"label": ["sick"], "labels": "sick", "score": 0.5}, ()),
    "offsets of something else": (
        {"mentions": [[0, 5, "Fever", "X:1"]], "marks": [{"start": 0, "end": 5}]},
        (Mention(0, 5, "", ("X:1",)),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("tool", AS_PEOPLE_HAVE_THEM)
def test_annotations_of_other_tools(write, tool):
    record, mentions = AS_PEOPLE_HAVE_THEM[tool]
    path = lines(write, {"text": TEXT, **record})
    assert list(read_texts_jsonl(path)) == [AnnotatedText("1", TEXT, mentions)]


def test_older_doccano_files_name_the_text_data(write):
    path = lines(write, {"id": 4, "data": TEXT, "label": [[0, 5, "Sign"]]})
    assert detect_corpus_format(path) == "jsonl"
    assert list(read_texts_jsonl(path)) == [AnnotatedText("4", TEXT, BARE[:1])]
    assert list(read_documents_jsonl(path)) == [(TEXT, "4")]


def test_texts_that_annotators_did_not_accept_are_left_out_and_counted(write, caplog):
    spans = [{"start": 0, "end": 5, "label": "Sign"}]
    answers = ["accept", "reject", "ignore", "reject", None]
    path = lines(write, *({"text": TEXT, "spans": spans, "answer": a} for a in answers))
    assert [text.id for text in read_texts_jsonl(path)] == ["1", "5"]
    (said,) = [r.getMessage() for r in caplog.records]
    assert said.startswith("[W336]") and "3 of 5 (2 reject, 1 ignore)" in said
    assert len(list(read_documents_jsonl(path))) == 5


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"annotations": [{"start": 0, "end": 5}]}, r"B523.*line 2.*'annotations'"),
        ({"mentions": [], "ents": [{"start_char": 0, "end_char": 5}]}, r"B523.*'ents'"),
        ({"highlights": [[0, 5, "Sign"]]}, r"B523.*'highlights'"),
        ({"gold": {"spans": [{"begin": 0, "end": 5}]}}, r"B523.*'gold'"),
        ({"spans": [{"from": 0, "to": 5}]}, "B132.*line 2, mention 1: key 'start' is missing"),
        ({"spans": ["Fever"]}, "B132.*mention 1: expected an object"),
        ({"spans": {"0": "Sign"}}, "B132.*'spans' is"),
        ({"entities": ["X:1"]}, "B132.*mention 1: expected an object"),
        ({"label": [[0, 5]]}, r"B132.*expected an object or \[start, end, label\]"),
        ({"label": [[0, 99, "Sign"]]}, "B105.*0-99"),
        (
            {"spans": [{"start": 0, "end": 5, "id": 7.5}]},
            r"B132.*'id' is \[7.5\], expected a list of str",
        ),
        ({"spans": [[0, 5, "Sign"]], "label": [[0, 5, "X"]]}, "B132.*'spans' and 'label' both"),
    ],
)
def test_annotations_in_no_known_form_are_refused(write, record, message):
    good = {"text": TEXT, "mentions": [[0, 5, "Fever", "X:1"]]}
    with pytest.raises(BioelError, match=message):
        list(read_texts_jsonl(lines(write, good, {"text": TEXT, **record})))


def test_bad_documents_are_skipped(write):
    good = {"text": TEXT, "mentions": [[0, 5, "Fever", "X:1"]]}
    bad = [{"text": TEXT, "spans": [[0, 99, "X"]]}, {"text": TEXT, "marks": [[0, 5, "X"]]}, {}]
    skipped: list[BadRecord] = []
    with skipping_bad(skipped.append):
        found = [text.id for text in read_texts_jsonl(lines(write, bad[0], good, *bad[1:], good))]
    assert found == ["2", "5"]
    assert [(r.line, r.code) for r in skipped] == [(1, "B105"), (3, "B523"), (4, "B132")]


@pytest.mark.parametrize(
    ("more", "label", "ids"),
    [
        ({"type": "Sign", "ids": ["X:1"]}, "Sign", ("X:1",)),
        ({"entity": "Sign", "ids": "X:1"}, "Sign", ("X:1",)),
        ({"entity": "Fever", "type": "Sign", "id": "X:1"}, "Sign", ("X:1",)),  # the words
        ({"labels": ["Sign"], "identifiers": ["X:1", "X:2"]}, "Sign", ("X:1", "X:2")),
        ({"label": "Fever", "type": "other", "ids": []}, "Fever", ()),
        ({"label": "Sign", "type": "other", "concept": "X:1"}, "Sign", ("X:1",)),
        ({"label": "Sign", "ids": [9606, "X:1"]}, "Sign", ("9606", "X:1")),
        ({"label": "Sign", "id": 12640}, "Sign", ("12640",)),
        ({"label": "Sign", "surface": "Fever", "token_start": 0, "score": 0.5}, "Sign", ()),
        ({"label": "Sign", "ids": [], "normalized": "fever"}, "Sign", ()),
    ],
)
def test_other_keys_of_mentions(write, caplog, more, label, ids):
    path = lines(write, {"text": TEXT, "mentions": [{"start": 0, "end": 5, **more}]})
    assert [text.mentions for text in read_texts_jsonl(path)] == [(Mention(0, 5, label, ids),)]
    assert not caplog.messages


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ({"label": "Sign", "normalized": ["X:1"]}, "'normalized' (3)"),
        ({"label": "Sign", "kb": "X:1", "token_end": 0}, "'kb' (3)"),
        ({"ids": ["X:1"], "category": "Sign"}, "'category' (3)"),
        ({"ids": ["X:1"], "labels": ["Sign", "Disease"]}, "'labels' (3)"),
        ({"label": "Sign", "concept": {"code": "X:1"}}, "'concept' (3)"),
        ({"label": "Sign", "ids": ["X:1"], "id": "X:2"}, "'id' (3)"),
        ({"label": "Sign", "ids": ["X:1"], "identifiers": [{"MESH": 1}]}, "'identifiers' (3)"),
    ],
)
def test_keys_of_mentions_that_are_not_read_are_counted_once(write, caplog, more, keys):
    record = {"text": TEXT, "spans": [{"start": 0, "end": 5, **more}]}
    assert len(list(read_texts_jsonl(lines(write, record, record, record)))) == 3
    (message,) = caplog.messages
    assert "[W370]" in message and "x.txt" in message and f": {keys}. " in message

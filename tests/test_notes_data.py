"""The form of the notes and lines that measure how layout and cues are read."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
ASSERTIONS = {"absent", "family", "other", "conditional", "possible", "historical", "present"}
FILES = {"notes_layout": 20, "assertion_lines": 150, "finding_lines": 60}


def rows(name):
    lines = (BENCHMARKS / f"{name}.jsonl").read_text("utf8").splitlines()
    return [json.loads(line) for line in lines]


def is_word(text, start, end):
    """Say whether a stretch of text begins and ends where words do."""
    around = text[max(start - 1, 0) : start], text[end : end + 1]
    return text[start:end] == text[start:end].strip() != "" and not any(map(str.isalnum, around))


def faults_of_mention(text, mention, start=0):
    if not start <= mention["start"] < mention["end"] <= len(text):
        yield "offsets"
    elif not is_word(text, mention["start"], mention["end"]):
        yield "borders"
    if not re.fullmatch(r"HP:\d{7}", mention["id"]):
        yield "id"
    if mention["is"] not in ASSERTIONS:
        yield "word"
    if "relative" in mention and mention["is"] not in {"family", "absent"}:
        yield "relative"


def faults_of_line(row):
    text, expected = row["text"], row.get("expect", {})
    for surface in [*expected, *row.get("ids", {})]:
        places = [m.span() for m in re.finditer(re.escape(surface), text)]
        if len(places) != 1 or not is_word(text, *places[0]):
            yield f"{surface!r} is in the text {len(places)} times"
    yield from set(expected.values()) - ASSERTIONS
    yield from set(row.get("relative", {})) - set(expected)
    ids = [
        i
        for value in row.get("ids", {}).values()
        for i in ([value] * isinstance(value, str) or value)
    ]
    yield from (i for i in ids + row.get("never", []) if not re.fullmatch(r"HP:\d{7}", i))
    yield from set(ids) & set(row.get("never", []))
    if not expected and not ids and not row.get("never"):
        yield "nothing expected"


@pytest.mark.parametrize("name, least", FILES.items())
def test_texts_are_many_and_differ(name, least):
    texts = Counter(" ".join(row["text"].split()) for row in rows(name))
    assert len(texts) >= least
    assert texts.most_common(1)[0][1] == 1


@pytest.mark.parametrize("note", rows("notes_layout"), ids=lambda note: note["id"])
def test_mentions_of_a_note(note):
    end = 0
    for mention in note["mentions"]:
        assert not list(faults_of_mention(note["text"], mention, end)), mention
        end = mention["end"]


def test_a_surface_has_one_id_in_all_notes():
    ids = {}
    for note in rows("notes_layout"):
        for mention in note["mentions"]:
            surface = note["text"][mention["start"] : mention["end"]].lower()
            surface = " ".join(re.sub(r"-\s*\n\s*", "", surface).split())
            assert ids.setdefault(surface, mention["id"]) == mention["id"], surface
    assert len(ids) >= 150


def test_notes_have_every_assertion():
    found = Counter(m["is"] for note in rows("notes_layout") for m in note["mentions"])
    assert set(found) == ASSERTIONS
    assert len({note["id"] for note in rows("notes_layout")}) == len(rows("notes_layout"))


@pytest.mark.parametrize("name", ["assertion_lines", "finding_lines"])
def test_lines(name):
    assert {row["text"]: found for row in rows(name) if (found := list(faults_of_line(row)))} == {}


def test_every_kind_of_cue_has_lines_where_it_must_not_act():
    traps = Counter((row["kind"], row["trap"]) for row in rows("assertion_lines"))
    assert min(traps[kind, trap] for kind, _ in traps for trap in (True, False)) >= 4


@pytest.mark.parametrize(
    "change, fault",
    [
        ({"start": 1}, "borders"),
        ({"end": 6}, "borders"),
        ({"end": 90}, "offsets"),
        ({"id": "HP:12"}, "id"),
        ({"is": "negated"}, "word"),
        ({"relative": "mother"}, "relative"),
    ],
)
def test_faults_are_seen(change, fault):
    mention = {"start": 0, "end": 5, "id": "HP:0001945", "is": "present"}
    assert list(faults_of_mention("fever now", mention)) == []
    assert list(faults_of_mention("fever now", mention | change)) == [fault]


@pytest.mark.parametrize(
    "row",
    [
        {"text": "fever, fever", "expect": {"fever": "present"}},
        {"text": "feverish", "expect": {"fever": "present"}},
        {"text": "fever", "expect": {"fever": "affirmed"}},
        {"text": "fever", "expect": {"fever": "family"}, "relative": {"cough": "mother"}},
        {"text": "fever", "ids": {"fever": "HP:1"}},
        {"text": "fever", "ids": {"fever": "HP:0001945"}, "never": ["HP:0001945"]},
        {"text": "fever"},
    ],
)
def test_faults_of_lines_are_seen(row):
    assert len(list(faults_of_line(row))) == 1

"""`bioel suggest`: texts to annotate, with what the pipeline finds in them."""

import json

import pytest

TEXTS = [
    "Naloxone and clonidine were given.",
    "Naloxone and clonidine were given!",
    "Hypertension of rats fell.",
    "Nothing was found in these rats.",
]


@pytest.fixture()
def texts(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def suggested(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_prodigy(bioel, model, texts, tmp_path):
    out = tmp_path / "to_annotate.jsonl"
    shown = bioel("suggest", model, texts, "-o", out).err
    assert "3 of 4 texts suggested" in shown
    tasks = suggested(out)
    assert {task["text"] for task in tasks} == set(TEXTS[:1] + TEXTS[2:])
    task = next(task for task in tasks if task["text"] == TEXTS[0])
    first, second = task["spans"]
    assert (first["start"], first["end"], first["token_start"], first["token_end"]) == (0, 8, 0, 0)
    assert first["label"] and first["kb_id"] == "MESH:D009270"
    assert task["id"] == task["meta"]["id"] == "1"
    assert [token["text"] for token in task["tokens"]][:3] == ["Naloxone", "and", "clonidine"]
    for token in task["tokens"]:
        assert task["text"][token["start"] : token["end"]] == token["text"]
    assert task["tokens"][second["token_start"]]["start"] == second["start"]
    assert "".join(t["text"] + " " * t["ws"] for t in task["tokens"]) == task["text"]


@pytest.mark.parametrize("tool", ["prodigy", "doccano"])
def test_accepted_suggestions_are_read_back(bioel, model, texts, tmp_path, tool):
    out, gold = tmp_path / "to_annotate.jsonl", tmp_path / "gold.jsonl"
    bioel("suggest", model, texts, "-o", out, "--to", tool)
    tasks = suggested(out)
    out.write_text("".join(json.dumps(task | {"answer": "accept"}) + "\n" for task in tasks))
    shown = bioel("convert", out, gold).err
    assert "3 documents" in shown and "[W" not in shown
    bioel("link", model, texts, "-o", tmp_path / "links.jsonl")
    links = {row["text"]: row for row in suggested(tmp_path / "links.jsonl")}
    for text in suggested(gold):
        linked = links[text["text"]]
        assert text["id"] == linked["id"]
        keys = ("start", "end", "ids") if tool == "prodigy" else ("start", "end")
        found, expected = (
            [[x[key] for key in keys] for x in of] for of in (text["mentions"], linked["links"])
        )
        assert found == expected


def test_doccano_to_stdout(bioel, model, texts):
    rows = bioel("suggest", model, texts, "--to", "doccano", "-n", 2).rows
    assert len(rows) == 2
    assert all(isinstance(row["label"], list) and "spans" not in row for row in rows)
    labelled = [x for row in rows for x in row["label"]]
    assert labelled and all(isinstance(label, str) and label for *_, label in labelled)


def test_a_dictionary_has_no_probabilities(bioel, model, texts):
    assert "[W580]" in bioel("suggest", model, texts).err


def test_the_same_texts_come_in_the_same_order(bioel, model, texts):
    assert bioel("suggest", model, texts).out == bioel("suggest", model, texts).out


def test_annotated_texts_are_not_suggested_again(bioel, model, texts, tmp_path):
    gold = tmp_path / "gold.jsonl"
    mention = {"start": 0, "end": 12, "label": "Disease", "ids": ["MESH:D006973"]}
    gold.write_text(json.dumps({"text": TEXTS[2], "mentions": [mention]}) + "\n")
    rows = bioel("suggest", model, texts, "--annotated", gold).rows
    assert [row["text"] for row in rows if row["text"] == TEXTS[2]] == [] and len(rows) == 2


def test_texts_that_fail_are_left_out_and_named(bioel, model, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"id": "a", "text": "Narcan was given"}\n{"id": "b", "text": 7}\n')
    shown = bioel("suggest", model, path)
    assert [row["id"] for row in shown.rows] == ["a"]
    assert "Document b failed: [B190]" in shown.err and "1 of 2 texts" in shown.err


BAD = {
    "no text at all": ('{"id": "a", "text": null}\n', "B580"),
    "only blank texts": ('{"text": " "}\n', "B580"),
    "only annotated texts": ('{"text": "Hypertension."}\n', "B580"),
}


@pytest.mark.parametrize(("content", "code"), BAD.values(), ids=BAD)
def test_nothing_to_suggest(bioel, model, tmp_path, content, code):
    path, gold = tmp_path / "texts.jsonl", tmp_path / "gold.jsonl"
    path.write_text(content)
    gold.write_text('{"text": "Hypertension.", "mentions": [[0, 12, "Hypertension", "X:1"]]}\n')
    out = tmp_path / "out.jsonl"
    shown = bioel("suggest", model, path, "--annotated", gold, "-o", out, status=2).err
    assert f"[{code}]" in shown
    assert not out.exists()


def test_other_bad_input(bioel, model, texts, tmp_path):
    assert "[B493]" in bioel("suggest", model, texts, "-o", texts, status=2).err
    assert "[B335]" in bioel("suggest", model, status=2).err
    assert "[B101]" in bioel("suggest", model, tmp_path / "nowhere.txt", status=2).err
    bioel("suggest", model, texts, "--to", "brat", status=2)
    bioel("suggest", model, texts, "-n", 0, status=2)

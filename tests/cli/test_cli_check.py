"""`bioel corpus check` on a good corpus, and on corpora with planted faults."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

NAMES = {"D1": "fever", "D2": "cough", "D3": "aspirin", "D4": "gout"}
WORDS = "ward clinic home letter visit".split()
Texts = list[dict[str, Any]]


def text(number: int, *ids: str, prefix: str = "X:", label: str = "Disease") -> dict[str, Any]:
    """A document with its own words, and a mention of each concept."""
    words, mentions = f"Note {number} from the {WORDS[number % 5]}:", []
    for id in ids:
        words += " "
        start = len(words)
        words += NAMES[id]
        mentions.append({"start": start, "end": len(words), "label": label, "ids": [prefix + id]})
    return {"id": str(number), "text": words, "mentions": mentions}


def good() -> tuple[Texts, Texts]:
    train = [text(n, "D1", "D2") for n in range(6)] + [text(7, "D3", label="Chemical")]
    return train, [text(8, "D1", "D4"), text(9, "D3", label="Chemical")]


@pytest.fixture
def check(bioel, tmp_path) -> Callable[..., Any]:
    build_kb([Concept(f"X:{id}", (name,)) for id, name in NAMES.items()], tmp_path / "kb")

    def run(train: Sequence[Any], dev: Sequence[Any], *options: object, status: int = 0) -> Any:
        for name, texts in (("train", train), ("dev", dev)):
            path: Path = tmp_path / f"{name}.jsonl"
            path.write_text("".join(json.dumps(one) + "\n" for one in texts), encoding="utf8")
        files = (tmp_path / "train.jsonl", tmp_path / "dev.jsonl")
        kb = () if "--kb" in options else ("--kb", tmp_path / "kb")
        return bioel("corpus", "check", *files, *kb, *options, status=status)

    return run


def test_a_good_corpus(check):
    done = check(*good())
    assert done.err.strip() == ""
    for row in (
        "documents 7 2",
        "mentions 13 3",
        "Disease: mentions 12 2",
        "Chemical: mentions 1 1",
        "Disease: ids 12 2",
        "Disease: distinct ids 2 2",
        "Disease: % of ids in the knowledge base 100.0 100.0",
        "% of distinct ids that train lacks 33.3",
        "% of distinct strings that train lacks 33.3",
        "documents that are also in train 0",
    ):
        assert row in done.words


def test_eight_planted_faults_are_all_named(check, tmp_path):
    train, dev = good()
    for one in train[:6]:  # 1: a forgotten prefix
        for mention in one["mentions"]:
            mention["ids"] = [mention["ids"][0].removeprefix("X:")]
    train += [text(20, "D1"), {**text(20, "D1"), "id": "21"}]  # 2: the same text twice
    train += [{**text(22, "D1"), "id": "7"}]  # 3: the same id twice
    train += [text(23, "D2", "D4")]
    shifted = train[-1]["mentions"][0]  # 4: off by one
    shifted["start"], shifted["end"] = shifted["start"] + 1, shifted["end"] + 1
    train += [text(24, "D2")]  # 5: a mention inside another
    train[-1]["mentions"].append({**train[-1]["mentions"][0], "start": 0, "label": "Chemical"})
    train += [text(25, "D2")]  # 6: white space in an id
    train[-1]["mentions"][0]["ids"] = ["X:D1 X:D2"]
    dev += [text(26, "D2", label="Device")]  # 7: a label that train lacks
    dev += [train[0]]  # 8: a document of train
    done = check(train, dev, "--json", tmp_path / "report.json", status=1)
    report = json.loads((tmp_path / "report.json").read_text("utf8"))
    codes = [message[1:5] for message in report["warnings"] + report["errors"]]
    assert sorted(codes) == ["B077", "B530", "W300", "W341", "W341", "W342", "W343", "W344", "W371"]
    for message in report["warnings"] + report["errors"]:
        assert " ".join(message.split()) in done.words
    for named in (
        "try --prefix X (before",
        "documents with the text of an earlier one: 1 (first: 21)",
        "documents with the id of an earlier one: 1 (first: 7)",
        "1 of 21 mentions start or end inside a word (first: document 23, 26-31, 'ough ')",
        "1 of 21 gold mentions overlap longer mentions",
        "ids that contain white space: 1 (first: 'X:D1 X:D2')",
        "has mentions labelled ['Device']",
        "1 of the 4 documents in",
    ):
        assert named in done.words, named
    assert "mentions inside another mention 1 0" in done.words
    assert report["train"]["Disease: ids"] == 19
    assert report["train"]["Disease: % of ids in the knowledge base"] < 50
    assert report["dev"]["documents that are also in train"] == 1


def without_mentions(texts: Texts) -> Texts:
    return [{**one, "mentions": []} for one in texts]


def changed(texts: Texts, **fields: Any) -> Texts:
    return [{**x, "mentions": [{**m, **fields} for m in x["mentions"]]} for x in texts]


def shifted(texts: Texts) -> Texts:
    for mention in (mention for one in texts for mention in one["mentions"]):
        mention["start"], mention["end"] = mention["start"] - 1, mention["end"] - 1
    return texts


@pytest.mark.parametrize(
    "spoil, codes",
    [
        (lambda train, dev: (train, train), {"B530"}),
        (lambda train, dev: (train, [*dev, train[2]]), {"B530"}),
        (lambda train, dev: (train, without_mentions(dev)), {"B076"}),
        (lambda train, dev: (without_mentions(train), dev), {"B076"}),
        (lambda train, dev: (without_mentions(train), without_mentions(dev)), {"B076"}),
        (lambda train, dev: (train, changed(dev, label="Problem")), {"B532"}),
        (lambda train, dev: (changed(train, ids=[]), dev), {"B533"}),
        (lambda train, dev: (train, changed(dev, ids=["Y:1"])), {"B077"}),
        (lambda train, dev: (shifted(train), dev), {"B531"}),
        (lambda train, dev: (shifted(train), changed(train, ids=["1"])), {"B077", "B530", "B531"}),
    ],
)
def test_corpora_that_cannot_be_trained_on(check, spoil, codes):
    found = json.loads(check(*spoil(*good()), "--json", "-", status=1).out)["errors"]
    assert {message[1:5] for message in found} == codes


def test_a_label_whose_ids_are_unknown(check):
    train, dev = good()
    done = check([*train, text(30, "D3", label="Chemical", prefix="Y:"), train[-1] | {"id": "31",
        "text": train[-1]["text"].replace("Note", "Page")}], dev)  # fmt: skip
    assert "W340" not in done.err  # one of three
    train[-1] = text(30, "D3", label="Chemical", prefix="")
    assert "labelled Chemical are in" in check(train, dev).words


def test_phrases_may_be_in_both_files(check):
    phrase = {"text": "fever", "mentions": [{"start": 0, "end": 5, "ids": ["X:D1"]}]}
    assert check([phrase, phrase], [phrase]).err == ""


def test_scripts_without_spaces_have_no_words(check):
    chinese = {"text": "患者有发热。", "mentions": [{"start": 3, "end": 5, "ids": ["X:D1"]}]}
    other = {"text": "没有发热。", "mentions": [{"start": 2, "end": 4, "ids": ["X:D1"]}]}
    assert "inside a word 0 0" in check([chinese], [other]).words


def test_labels_and_prefixes_are_mapped_as_by_other_commands(check):
    train = changed(good()[0], label="Illness")
    for one in train:
        for mention in one["mentions"]:
            mention["ids"] = [mention["ids"][0].removeprefix("X:")]
    options = ("--label", "Illness=Disease", "--prefix", "X")
    dev = changed(good()[1], label="Illness")
    assert (
        "Disease: % of ids in the knowledge base 100.0 100.0" in check(train, dev, *options).words
    )
    assert "[B364]" in check(train, dev, *options, "--annotates", "Gene", status=2).err
    assert "[B363]" in check(train, dev, "--label", "Drug=Disease", status=2).err


@pytest.mark.parametrize("spoilt", [0, 1])
def test_an_option_may_apply_to_one_of_the_files(check, spoilt):
    texts = list(good())
    texts[spoilt] = changed(texts[spoilt], label="Illness")
    assert "[B532]" in check(*texts, status=1).err
    assert "[B" not in check(*texts, "--label", "Illness=Disease").err


def test_ids_that_the_knowledge_base_lacks_are_named(check):
    train, dev = good()
    train[0] = text(0, "D1", prefix="Y:")
    done = check(train, dev)
    assert "[W371]" in done.err and "1 of 12 gold ids are not in" in done.words
    assert "the most frequent: Y:D1." in done.words
    (warning,) = json.loads(check(train, dev, "--json", "-").out)["warnings"]
    assert "Y:D1" in warning


def test_several_knowledge_bases(check, tmp_path):
    build_kb([Concept("Y:D3", ("aspirin",))], tmp_path / "other")
    train, dev = good()
    train[-1] = text(30, "D3", label="Chemical", prefix="Y:")
    kbs = ("--kb", tmp_path / "kb", "--kb", tmp_path / "other")
    assert "Chemical: % of ids in the knowledge base 100.0 100.0" in check(train, dev, *kbs).words

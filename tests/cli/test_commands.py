"""Commands write and say what commands.yml has; a command that is refused changes nothing."""

import io
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import srsly
from kb_files import encode, names_of
from tiny import is_installed

from spacy_bioel.kb.knowledge_base import KnowledgeBase

TABLE = {
    f"{section}: {name}": case
    for section, cases in srsly.read_yaml(Path(__file__).with_name("commands.yml")).items()
    for name, case in cases.items()
}


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def match(expected: Any, found: Any) -> bool:
    """Whether a value has what is expected; of an object, some keys."""
    if isinstance(expected, dict):
        return all(key in found and match(one, found[key]) for key, one in expected.items())
    if isinstance(expected, list):
        return len(expected) == len(found) and all(map(match, expected, found))
    return bool(expected == (pytest.approx(found) if isinstance(found, float) else found))


def check_file(name: str, expected: Any) -> None:
    path = Path(name)
    if expected is None:
        assert not path.exists()
    elif isinstance(expected, str):
        assert path.read_bytes().decode("utf8") == expected
    elif isinstance(expected, dict):
        assert match(expected, found := json.loads(path.read_text("utf8"))), found
    else:
        text = path.read_text("utf8")
        assert [words for words in expected if words not in text] == [], text


@pytest.mark.parametrize("name", TABLE)
def test_command(name, request, bioel, concepts_file, corpus, monkeypatch, caplog):
    case = TABLE[name]
    for plugin in case.get("needs", ()):
        if not is_installed(f"spacy_bioel.plugins.{plugin}"):
            pytest.skip(f"needs the plugin {plugin}")
    monkeypatch.chdir(concepts_file.parent)
    for step in case["steps"] if "steps" in case else [case]:
        for file, content in step.get("write", {}).items():
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_bytes(content.encode(step.get("encoding", "utf8")))
        for old, new in step.get("link", {}).items():
            os.link(old, new)
        for folder, fingerprint in step.get("encode", {}).items():
            encode(Path(folder), fingerprint)
        stdin = io.TextIOWrapper(io.BytesIO(step.get("stdin", "").encode()), encoding="ascii")
        monkeypatch.setattr("sys.stdin", stdin)
        caplog.clear()
        before, status = contents(), step.get("status", 0)
        words = step["run"].replace("{model}", "MODEL").replace("{labels}", "LABELS")
        folders = {"MODEL": "model", "LABELS": "by_label"}
        argv = [
            str(request.getfixturevalue(folders[word])) if word in folders else word
            for word in shlex.split(words)
        ]
        done = bioel(*argv, status=status)
        said = " ".join(f"{done.words} {caplog.text}".split())
        assert [words for words in step.get("says", ()) if words not in said] == [], said
        assert [words for words in step.get("not", ()) if words in said] == []
        if "json" in step:
            assert match(step["json"], done.json), done.out
        if "rows" in step:
            assert match(step["rows"], done.rows), done.out
        for key, value in step.get("scores", {}).items():
            protocol, metric, *label = key.split()
            of = {"protocol": protocol, "metric": metric, "label": "".join(label)}
            (row,) = (row for row in done.json if of.items() <= row.items())
            assert row["value"] == pytest.approx(value), key
        files = step.get("files", {})
        for file, expected in files.items():
            check_file(file, expected)
        for folder, concepts in step.get("concepts", {}).items():
            kb = KnowledgeBase.open(folder)
            assert {id: names_of(kb, id) for id in kb.ids} == concepts
        if status == 2:
            after = contents()
            assert {name for name in before | after if before.get(name) != after.get(name)} <= {
                *files
            }

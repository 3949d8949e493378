"""Outputs of a command never replace its input, nor each other."""

import json
import os

import pytest

from spacy_bioel.cli.console import check_distinct
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

TABLE = "id,name,text\nX:1,Gout,Gout of the toe\n"
GOLD = {"text": "Gout", "mentions": [{"start": 0, "end": 4, "label": "Disease", "ids": ["X:1"]}]}
COMMANDS = {
    "link kb in.csv -o out.tsv --skip-bad in.csv": ("B493", "in.csv"),
    "link kb in.csv -o out.tsv --skip-bad out.tsv": ("B555", "out.tsv"),
    "link kb in.csv -o out.tsv -o ./out.tsv": ("B555", "./out.tsv"),
    "link kb in.csv -o in.csv": ("B493", "in.csv"),
    "link kb in.csv --code rules.py --skip-bad rules.py": ("B493", "rules.py"),
    "explain kb Gout --json out.html --html out.html": ("B555", "out.html"),
    "kb build kbx in.csv --skip-bad in.csv": ("B493", "in.csv"),
    "kb build kbx in.csv --json in.csv": ("B493", "in.csv"),
    "kb build kbx in.csv --json out.txt --skip-bad out.txt": ("B555", "out.txt"),
    "kb build kbx in.csv --retired retired.tsv --json retired.tsv": ("B493", "retired.tsv"),
    "kb add kb in.csv --skip-bad in.csv": ("B493", "in.csv"),
    "kb retire kb --pairs retired.tsv --json retired.tsv": ("B493", "retired.tsv"),
    "convert gold.jsonl o.spacy --skip-bad gold.jsonl": ("B493", "gold.jsonl"),
    "convert gold.jsonl gold.jsonl": ("B493", "gold.jsonl"),
    "convert gold.jsonl linked.jsonl": ("B493", "linked.jsonl"),
    "convert gold.jsonl b.jsonl --json b.jsonl": ("B555", "b.jsonl"),
    "evaluate kb gold.jsonl --json gold.jsonl": ("B493", "gold.jsonl"),
    "evaluate kb gold.jsonl --html gold.jsonl": ("B493", "gold.jsonl"),
    "evaluate kb gold.jsonl --errors gold.jsonl": ("B493", "gold.jsonl"),
    "evaluate kb gold.jsonl --errors e.tsv --html e.tsv": ("B555", "e.tsv"),
    "tune kb gold.jsonl tuned --json gold.jsonl": ("B493", "gold.jsonl"),
    "corpus check gold.jsonl b.jsonl --kb kb --json gold.jsonl": ("B493", "gold.jsonl"),
    "corpus check b.jsonl gold.jsonl --kb kb --json gold.jsonl": ("B493", "gold.jsonl"),
}


@pytest.mark.parametrize(("command", "expected"), COMMANDS.items())
def test_no_file_is_lost(bioel, tmp_path, monkeypatch, command, expected):
    build_kb([Concept("X:1", ("Gout",))], tmp_path / "kb")
    (tmp_path / "in.csv").write_text(TABLE)
    (tmp_path / "gold.jsonl").write_text(json.dumps(GOLD) + "\n")
    (tmp_path / "retired.tsv").write_text("X:9\tX:1\n")
    (tmp_path / "rules.py").write_text("")
    os.link(tmp_path / "gold.jsonl", tmp_path / "linked.jsonl")
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    shown = bioel(*command.split(), status=2).err
    code, name = expected
    assert f"[{code}] {name} is" in shown
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_what_is_no_file_may_be_given_twice(tmp_path):
    check_distinct(["-", None, "/dev/null", tmp_path], ["-", "-", "/dev/null", None])
    check_distinct([tmp_path / "a"], [tmp_path / "b", tmp_path / "c"])
    (tmp_path / "a").touch()
    (tmp_path / "b").symlink_to("a")
    for inputs, outputs in (["a"], ["b"]), ([], ["new", "x/../new"]), ([], ["a", "b"]):
        with pytest.raises(BioelError, match=r"\[B493\]|\[B555\]"):
            check_distinct(map(tmp_path.joinpath, inputs), map(tmp_path.joinpath, outputs))

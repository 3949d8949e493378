"""Mistakes of users get the codes that mistakes.yml says."""

import gzip
import json
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpora
import pytest
import spacy
import srsly
import typer
from athena import FILES
from kb_files import all_files, columns_of
from spacy.tokens import DocBin, Span
from spacy.training import Example

from spacy_bioel.cli import app, main
from spacy_bioel.errors import BioelError
from spacy_bioel.export.rows import link_texts
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

ROOT = Path(__file__).parents[1]
TABLE = srsly.read_yaml(ROOT / "tests/mistakes.yml")
# Any text will do; a report is written to --json, and --code imported, by one function.
NEVER_WRONG = "--prefix --source-name --release --licence --corpus --split --json --code".split()
NEVER_WRONG += "--author --domain --limit --version".split()  # of `bioel card`
NO_TRAINING = ("B530", "B531", "B532", "B533")  # of `bioel corpus check`, with its table
GIVEN = {
    "spacy": spacy,
    "shutil": shutil,
    "Example": Example,
    "link_texts": link_texts,
    "patterns": [{"label": "Disease", "pattern": "Fever"}],
}
CONCEPTS = [
    Concept("X:1", ("Fever", "pyrexia"), types=("T1",)),
    Concept("X:2", ("Cough",), types=("T2",)),
    Concept("X:9", (), replaced_by="X:1"),
    Concept("X:0", (), consider=("X:1",)),
]


def one_mention(text: str, start: int, label: str, ids: list[str]) -> str:
    """A line of JSON with a mention from an offset to the end."""
    mention = {"start": start, "end": len(text), "label": label, "ids": ids}
    return json.dumps({"text": text, "mentions": [mention]}) + "\n"


GOLD = "1|t|Fever.\n1|a|None.\n"
TEXTS = {
    "notes.txt": "Fever and cough.\n",
    "letter.pdf": "%PDF-1.7\n1 0 obj\n",
    "foreign.csv.partial": "My notes.\n",
    "blank.txt": "\n\n",
    "mine.tsv": "id\tname\nX:1\tFever\nX:2\tCough\n",
    "mine.csv": "Code,Label\nX:1,Fever\n",
    "no_name.tsv": "id\tname\nX:1\tFever\nX:2\t\n",
    "spaces.tsv": "id\tname\nX 1\tFever\n",
    "quotes.csv": 'id,name\nX:1,"Fever\nX:2,Cough\n',
    "comma.csv": "id,name\nX:1,Gout, of the toe\n",
    "comma_in_text.csv": "id,text\n1,Fever, cough\n",
    "same_ids.csv": "id,text\n1,Fever\n1,Cough\n",
    "two_texts.csv": "id,text,text\n1,Fever,Cough\n",
    "same_names/a.txt": "Fever",
    "same_names/a.TXT": "Cough",
    "empty.tsv": "",
    "page.html": "<html><body>Not found</body></html>",
    "other_ids.jsonl": '{"id": "1", "text": "Fever and cough.", "links": [{"ids": ["Y:1"], '
    '"candidates": [{"id": "Y:1", "score": 1, "name": "fever", "evidence": "exact"}]}]}\n',
    "by_pipeline.jsonl": '{"id": "1", "text": "Fever and cough.", "links": [{"ids": ["X:1"], '
    '"candidates": [{"id": "X:1", "score": 1, "name": "fever", "evidence": "dense"}]}]}\n',
    "broken.jsonl": '{"id": "X:1", "names": ["Fever"]}\n{"id": "X:2", "names": ["Cough"]\n',
    "name.jsonl": '{"id": "X:1", "name": "Fever"}\n',
    "number.jsonl": '{"id": 1, "names": ["Fever"]}\n',
    "no_text.jsonl": '{"id": "1", "body": "Fever"}\n',
    "binary.dat": "\0\1\n",
    "broken.yaml": "a: [\n",
    "broken.obo": "format-version: 1.2\n\n[Term]\nid: X:1\nname: fever\nsynonym: pyrexia\n",
    "synonims.csv": "id,name,synonims\nX:1,Fever,pyrexia\n",
    "synonim.obo": 'format-version: 1.2\n\n[Term]\nid: X:1\nname: fever\nsynonim: "hot" []\n',
    "tern.obo": "[Term]\nid: X:1\nname: fever\n\n[Tern]\nid: X:2\nname: cough\n",
    "cut.xml": "<?xml version='1.0'?>\n<DescriptorRecordSet>\n<DescriptorRecord>",
    "circle.tsv": "X:5\tX:6\nX:6\tX:5\n",
    "pairs.tsv": "X:1\tX:2\nX:1\tX:9\n",
    "gold.txt": f"{GOLD}1\t0\t5\tFever\tDisease\tX:1\n\n",
    "no_gold.txt": f"{GOLD}\n",
    "other_ids.txt": f"{GOLD}1\t0\t5\tFever\tDisease\tD005334\n\n",
    "offsets.txt": f"{GOLD}1\t1\t6\tFever\tDisease\tX:1\n\n",
    "dev.jsonl": one_mention("A fever", 2, "Disease", ["X:1"]),
    "inside.jsonl": one_mention("That fever", 6, "Disease", ["X:1"]),
    "problem.jsonl": one_mention("That fever", 5, "Problem", ["X:1"]),
    "no_ids.jsonl": one_mention("That fever", 5, "Disease", []),
    "annotated.jsonl": one_mention("Fever and cough", 10, "Disease", []),
    "outside.jsonl": '{"text": "Fever", "mentions": [{"start": 0, "end": 50}]}\n',
    "unknown_key.jsonl": '{"text": "Fever", "annotations": [{"start": 0, "end": 5}]}\n',
    "two_keys.jsonl": '{"text": "Fever", "spans": [[0, 5, "D"]], "label": [[0, 5, "D"]]}\n',
    "alone.ann": "T1\tDisease 0 5\tFever\n",
    "fake.spacy": "not a DocBin",
    "rules.py": "import spacy\n\nraise ValueError('no table')\n",
    "kept.jsonl.partial": '{"partial output of": "bioel link", "--context": "False"}\n0 {}\n',
    "visits.csv": "text,patient,sex,date\nFever,Ann,F,2024-03-05\nCough,Bob,,March 2024\n",
    "header.csv": "text,patient\n",
    "patients/Ann/1.txt": "Fever",
    "others/Ann/note.txt": "Fever",
    "beside/Ann/1.txt": "Fever",
    "beside/stray.txt": "Fever",
    "unclear/note 03-04-2024.txt": "Fever",
    "two_dates/2024-01-01 to 2024-02-01.txt": "Fever",
    "full.phenopackets/x": "x",
    "a_folder/file": "x",
    "META/MRCONSO.RRF": "C0000001|ENG\n",
    "half/CONCEPT.csv": FILES["CONCEPT"],
    **{f"athena/{name}.csv": text for name, text in FILES.items()},
    **{f"maps/{name}.csv": text.replace("Maps to", "Maps") for name, text in FILES.items()},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("mistakes")
    for name, text in TEXTS.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf8")
    (home / "latin1.tsv").write_bytes("id\tname\nX:1\tMénière\n".encode("latin1"))
    (home / "cut.tsv.gz").write_bytes(gzip.compress(b"id\tname\nX:1\tFever\n" * 200)[:-20])
    build_kb(CONCEPTS, home / "kb", source="mine")
    build_kb([Concept("HP:0001945", ("Fever",))], home / "hpo")
    shutil.copytree(home / "kb", home / "damaged")
    columns = columns_of(home / "damaged")
    columns.write_bytes(columns.read_bytes()[:-1])
    spacy.blank("en").to_disk(home / "blank")
    doc = spacy.blank("en")("Fever and cough")
    doc.ents, doc.spans["sc"] = [Span(doc, 0, 1, "D")], [Span(doc, 2, 3, "D")]
    DocBin(docs=[doc]).to_disk(home / "places.spacy")
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_context")
    nlp.to_disk(home / "misspelt")
    config = (home / "misspelt/config.cfg").read_text("utf8")
    (home / "misspelt/config.cfg").write_text(config.replace("spans_key", "span_key"), "utf8")
    shutil.copytree(home / "blank", home / "with_rules")
    config = (home / "blank/config.cfg").read_text("utf8")
    mine = config.replace("spacy.Tokenizer.v1", "my-tokenizer.v1")
    (home / "with_rules/config.cfg").write_text(mine, encoding="utf8")
    shutil.copy(ROOT / "project.yml", home)
    return home


@pytest.mark.parametrize("section", TABLE)
def test_codes_of_mistakes(section, home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    wrong, before = {}, all_files(home / "kb")
    for about, what in TABLE[section].items():
        if what.startswith(("bioel ", "python ")):
            monkeypatch.setattr(sys, "argv", shlex.split(what)[1:])
            with pytest.raises(SystemExit) as ended:
                main(sys.argv) if what.startswith("bioel ") else corpora.main()
            said = capsys.readouterr().err
            assert ended.value.code == (1 if about[:4] in NO_TRAINING else 2), what
            assert not said.startswith("error: [") or said.count("\n") == 1, said
        else:
            said = in_python(what)
        found = re.search(r"\[([A-Z]\d{3})\]", said)
        code = found[1] if found else "usage" if "Usage:" in said else said
        if code != about.partition(" ")[0]:
            wrong[about] = said
    assert wrong == {}
    assert not [path for path in home.iterdir() if path.stem in ("out", "tuned")]
    assert all_files(home / "kb") == before


def test_each_code_of_the_steps_is_of_one_message():
    texts = [path.read_text("utf8") for path in (ROOT / "training/scripts").glob("*.py")]
    codes = re.findall(r'"\[(T\d{3})\] ', "".join(texts))
    assert "T010" in codes
    assert sorted(codes) == sorted(set(codes))


def in_python(code: str) -> str:
    printed: list[str] = []
    given = GIVEN | {"nlp": spacy.blank("en"), "print": lambda e: printed.append(f"[{e.code}]")}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            exec(code, given)
        except BioelError as error:
            return str(error)
    return printed[0] if printed else str(warned[0].message)


def test_every_option_of_every_command_is_wrong_once():
    commands = dict(commands_of(typer.main.get_command(app), ["bioel"]))
    argvs = [shlex.split(what) for found in TABLE.values() for what in found.values()
             if what.startswith("bioel ")]  # fmt: skip
    missing = set(commands) - {name for argv in argvs for name in commands if is_of(argv, name)}
    for name, options in commands.items():
        shown = {word for argv in argvs if is_of(argv, name) for word in argv}
        missing |= {
            f"{name} {option.opts[0]}"
            for option in options
            if shown.isdisjoint(option.opts) and option.opts[0] not in NEVER_WRONG
        }
    # Of types that no new concept has, the counts say that nothing was added.
    assert missing == {"bioel kb add --types"}
    assert any("--json" in argv for argv in argvs) and len(argvs) > 90


def commands_of(command: Any, words: list[str]) -> Iterator[tuple[str, list[Any]]]:
    """The commands below a command, each with its options that take a value."""
    for below, one in getattr(command, "commands", {}).items():
        yield from commands_of(one, [*words, below])
    if not hasattr(command, "commands"):
        options = [p for p in command.params if p.param_type_name == "option" and not p.is_flag]
        yield " ".join(words), options


def is_of(argv: list[str], command: str) -> bool:
    return argv[: command.count(" ") + 1] == command.split()

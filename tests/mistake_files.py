"""Files that the mistakes of `mistakes.yml` are made with."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import spacy

from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.types import Concept

CONCEPTS = [
    Concept("X:1", ("Fever", "pyrexia"), types=("T1",)),
    Concept("X:2", ("Cough",), types=("T2",)),
    Concept("X:9", (), replaced_by="X:1"),
]
GOLD = "1|t|Fever.\n1|a|None.\n"
TEXTS = {
    "notes.txt": "Fever and cough.\n",
    "blank.txt": "\n\n",
    "mine.tsv": "id\tname\nX:1\tFever\nX:2\tCough\n",
    "mine.csv": "Code,Label\nX:1,Fever\n",
    "no_name.tsv": "id\tname\nX:1\tFever\nX:2\t\n",
    "spaces.tsv": "id\tname\nX 1\tFever\n",
    "quotes.csv": 'id,name\nX:1,"Fever\nX:2,Cough\n',
    "empty.tsv": "",
    "page.html": "<html><body>Not found</body></html>",
    "broken.jsonl": '{"id": "X:1", "names": ["Fever"]}\n{"id": "X:2", "names": ["Cough"]\n',
    "number.jsonl": '{"id": 1, "names": ["Fever"]}\n',
    "no_text.jsonl": '{"id": "1", "body": "Fever"}\n',
    "broken.obo": "format-version: 1.2\n\n[Term]\nid: X:1\nname: fever\nsynonym: pyrexia\n",
    "cut.xml": "<?xml version='1.0'?>\n<DescriptorRecordSet>\n<DescriptorRecord>",
    "circle.tsv": "X:5\tX:6\nX:6\tX:5\n",
    "pairs.tsv": "X:1\tX:2\nX:1\tX:9\n",
    "gold.txt": f"{GOLD}1\t0\t5\tFever\tDisease\tX:1\n\n",
    "no_gold.txt": f"{GOLD}\n",
    "other_ids.txt": f"{GOLD}1\t0\t5\tFever\tDisease\tD005334\n\n",
    "offsets.txt": f"{GOLD}1\t1\t6\tFever\tDisease\tX:1\n\n",
    "outside.jsonl": '{"text": "Fever", "mentions": [{"start": 0, "end": 50}]}\n',
    "alone.ann": "T1\tDisease 0 5\tFever\n",
    "fake.spacy": "not a DocBin",
    "a_folder/file": "x",
    "META/MRCONSO.RRF": "C0000001|ENG\n",
}


def write_files(folder: Path) -> None:
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf8")
    (folder / "latin1.tsv").write_bytes("id\tname\nX:1\tMénière\n".encode("latin1"))
    (folder / "cut.tsv.gz").write_bytes(gzip.compress(b"id\tname\nX:1\tFever\n" * 200)[:-20])
    build_kb(CONCEPTS, folder / "kb", source="mine")
    shutil.copytree(folder / "kb", folder / "damaged")
    (ids,) = (folder / "damaged").rglob("ids.txt")
    ids.write_bytes(b"X")
    spacy.blank("en").to_disk(folder / "blank")

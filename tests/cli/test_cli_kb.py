"""`bioel kb`: build, look at, encode and change knowledge bases."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import spacy
from kb_files import encode, names_of
from spacy.training import Example

from spacy_bioel.cli import main
from spacy_bioel.errors import BioelError
from spacy_bioel.io.table import COLUMN_KEYS
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.bundled import list_bundled
from spacy_bioel.kb.edit import add_concepts
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import has_vectors
from spacy_bioel.types import Concept

TINY_ENCODER = {
    "@architectures": "spacy-bioel.ResCNN.v1",
    **{"dim": 8, "blocks": 1, "filters": 4, "widths": [1], "pooling": "max"},
    **{"dropout": 0.0, "max_tokens": 8},
}
OBO = """\
format-version: 1.2
data-version: x/2025-01-16
property_value: terms:license https://x.org/a

[Term]
id: X:1
name: Abnormality

[Term]
id: X:2
name: Hypertension
is_a: X:1

[Term]
id: X:3
name: Pulmonary hypertension
is_a: X:2

[Term]
id: X:4
name: Onset
"""


@pytest.fixture()
def kb(bioel, tmp_path, concepts_file) -> Path:
    bioel("kb", "build", tmp_path / "kb", concepts_file)
    return tmp_path / "kb"


def test_build_and_info(bioel, tmp_path, concepts_file):
    out, report = tmp_path / "made" / "kb", tmp_path / "report.json"
    bioel("kb", "build", out, concepts_file, "--release", "2024", "--json", report)
    counts = json.loads(report.read_text())
    assert (counts["concepts"], counts["names"], counts["retired"]) == (3, 5, 1)
    base = KnowledgeBase.open(out)
    assert base.canonical("MESH:D000001") == "MESH:D009270"
    assert (base.meta["source"], base.meta["release"]) == ("concepts.jsonl", "2024")
    encode(out)
    assert f"run bioel kb encode {out} MODEL" in bioel("kb", "build", out, concepts_file).words
    bioel("kb", "build", out, concepts_file, "--release", "2024")
    about = bioel("kb", "info", out, "--verify", "--json", "-").json
    assert about["fingerprint"] == counts["fingerprint"]
    assert (about["types"], about["vectors"], about["verified"]) == ({"D": 2, "C": 1}, [], True)
    shown = bioel("kb", "info", out).words
    assert "2024" in shown and "D 2, C 1" in shown
    assert f"none; run bioel kb encode {out} MODEL" in shown


def test_branches_release_and_licence_of_an_ontology(bioel, tmp_path):
    ontology, notes, out = tmp_path / "my.obo", tmp_path / "notes.txt", tmp_path / "kb"
    ontology.write_text(OBO)
    (tmp_path / "y.jsonl").write_text('{"id": "Y:1", "names": ["gout"]}\n')
    bioel("kb", "build", out, ontology, tmp_path / "y.jsonl")
    meta = KnowledgeBase.open(out).meta
    assert (meta["release"], meta["licence"]) == ("x/2025-01-16", "https://x.org/a")
    bioel("kb", "build", out, ontology, "--under", "X:1", "--exclude", "X:3", "--release", "mine")
    base = KnowledgeBase.open(out)
    assert list(base.ids) == ["X:1", "X:2"]
    assert (base.meta["release"], base.meta["licence"]) == ("mine", "https://x.org/a")
    bioel("kb", "build", out, ontology, "--under", "X:1")
    notes.write_text("HTN, onset of pulmonary hypertenison in May")
    found = [(link["text"], link["ids"]) for link in bioel("link", out, notes).json["links"]]
    assert found == [("HTN", ["X:2"]), ("pulmonary hypertenison", ["X:3"])]


def test_build_from_tables_with_retired_ids(bioel, tmp_path):
    first, second, out = tmp_path / "a.tsv", tmp_path / "b.tsv", tmp_path / "kb"
    first.write_text("D1\tfever\tC\nD2\taspirin\tD\n")
    second.write_text("D1\tpyrexia\tC\n")
    (tmp_path / "retired.tsv").write_text("D9\tD1\n")
    columns = ["--columns", "id=1,name=2,types=3", "--prefix", "MESH"]
    bioel("kb", "build", out, first, second, *columns, "--retired", tmp_path / "retired.tsv")
    base = KnowledgeBase.open(out)
    assert list(base.ids) == ["MESH:D1", "MESH:D2"]
    assert list(base.names) == ["fever", "pyrexia", "aspirin"]
    assert base.canonical("MESH:D9") == "MESH:D1"
    bioel("kb", "build", out, first, *columns, "--types", "D, X")
    assert list(KnowledgeBase.open(out).ids) == ["MESH:D2"]


@pytest.mark.parametrize("command", ["build", "add"])
def test_a_broken_source_leaves_the_old_one(bioel, kb, command):
    before = KnowledgeBase.open(kb).fingerprint
    broken = kb.parent / "broken.jsonl"
    broken.write_text('{"id": "X:1", "names": ["x"]}\n{"id": "X:2", "names": \n')
    bioel("kb", command, kb, broken, status=2)
    assert KnowledgeBase.open(kb).fingerprint == before
    bioel("kb", "build", kb.parent / "other", broken, status=2)
    assert sorted(p.name for p in kb.parent.iterdir()) == ["broken.jsonl", "concepts.jsonl", "kb"]


def test_bad_records_are_skipped_and_reported(bioel, tmp_path):
    source, report, kb = tmp_path / "mine.csv", tmp_path / "bad.tsv", tmp_path / "kb"
    source.write_bytes(b"id,name\nX:1,Gout\nX:2\nX 3,Rash\nX:4,M\xe9ni\xe8re\n")
    bioel("kb", "build", kb, source, status=2)
    assert not report.exists() and not kb.exists()
    done = bioel("kb", "build", kb, source, "--skip-bad", report)
    assert f"3 bad records skipped, see {report}" in done.err
    assert list(KnowledgeBase.open(kb).ids) == ["X:1"]
    rows = [line.split("\t") for line in report.read_text().splitlines()]
    assert [row[:3] for row in rows] == [
        ["file", "line", "code"],
        [str(source), "3", "B510"],
        [str(source), "4", "B026"],
        [str(source), "5", "B103"],
    ]


def test_a_bad_id_is_found_by_its_file(bioel, tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("id,name\nX:1,Gout\nX:2,Rash\n")
    second.write_text("id,name\nX:3,Fever\nD 4,Cough\n")
    for argv in ("build", tmp_path / "q"), ("add", tmp_path / "kb"):
        bioel("kb", "build", tmp_path / "kb", first)
        shown = bioel("kb", *argv, first, second, status=2).err
        assert f"[B026] In record 2 of {second}, the id is 'D 4'" in shown


def test_bad_records_to_add_are_skipped(bioel, kb, tmp_path):
    source, report = tmp_path / "mine.csv", tmp_path / "bad.tsv"
    source.write_text("id,name\nX:1,Gout, of the toe\nX:2,Rash\n")
    before = KnowledgeBase.open(kb).fingerprint
    assert "[B510]" in bioel("kb", "add", kb, source, status=2).err
    assert KnowledgeBase.open(kb).fingerprint == before
    done = bioel("kb", "add", kb, source, "--skip-bad", report)
    assert f"1 bad record skipped, see {report}" in done.err and "line 2" in done.err
    assert "X:2" in KnowledgeBase.open(kb) and "X:1" not in KnowledgeBase.open(kb)


@pytest.mark.parametrize("command", ["build", "add"])
def test_synonyms_of_a_table(bioel, kb, tmp_path, command):
    source = tmp_path / "mine.csv"
    source.write_text('id,name,synonyms\nX:1,Gout,"podagra, toe gout"\n')
    bioel("kb", command, kb, source, "--synonym-separator", ",")
    assert sorted(KnowledgeBase.open(kb)["X:1"].names) == ["Gout", "podagra", "toe gout"]


def test_counts_are_explained_and_those_that_are_0_hidden(bioel, tmp_path):
    source = tmp_path / "mine.csv"
    source.write_text("id,name\nX:1,Gout\nX:1,gout\nX:2,?\n")
    shown = bioel("kb", "build", tmp_path / "kb", source).out
    assert "records merged into the concept that already has their id" in shown
    assert "names left out: no letter or digit" in shown
    assert "retired" not in shown and " 0 " not in shown


def test_the_keys_of_columns_are_in_the_help(bioel):
    shown = bioel("kb", "build", "--help").words
    assert all(key in shown for key in COLUMN_KEYS)


def test_list(bioel, monkeypatch, tmp_path):
    shown = bioel("kb", "list").words
    for name in ("starter:mesh", "starter:genes", "starter:species", "starter:cells"):
        assert name in shown
    bioel("kb", "info", "starter:cells")
    kbs = {kb["name"]: kb for kb in bioel("kb", "list", "--json", "-").json}
    cells = kbs["starter:cells"]
    assert cells["contents"] == "cell lines" and "Cellosaurus" in cells["source"]
    assert cells["concepts"] > 100 and cells["release"] and cells["licence"]
    monkeypatch.setenv("SPACY_BIOEL_CACHE", str(tmp_path))
    assert bioel("kb", "list").words.count("not built yet") == 4
    assert list(tmp_path.iterdir()) == []  # nothing was built


def test_a_bundled_knowledge_base_by_its_name(bioel, tmp_path):
    assert "Cellosaurus" in bioel("kb", "info", "starter:cells", "--json", "-").json["source"]
    (tmp_path / "notes.txt").write_text("HeLa cells were used.\n")
    (row,) = bioel("link", "starter:cells", tmp_path / "notes.txt").rows
    assert [(link["text"], link["id"]) for link in row["links"]] == [("HeLa", "CVCL_0030")]


def test_encode_writes_vectors_of_the_pipelines_encoder(bioel, tmp_path):
    base, model = tmp_path / "kb", tmp_path / "model"
    build_kb([Concept("X:1", ("naloxone", "narcan")), Concept("X:2", ("clonidine",))], base)
    nlp = spacy.blank("en")
    linker = nlp.add_pipe("bioel_linker", config={"kb": str(base), "model": TINY_ENCODER})
    reference = nlp.make_doc("naloxone")
    reference.spans["bioel_gold"] = [reference.char_span(0, 8, "D", kb_id="X:1")]
    examples = [Example(nlp.make_doc("naloxone"), reference)]
    linker.initialize(lambda: examples, vocabulary=100, width=8)
    nlp.to_disk(model)

    assert f"Encoded 3 names of {base}" in bioel("kb", "encode", base, model).err
    [vectors] = bioel("kb", "info", base, "--verify", "--json", "-").json["vectors"]
    assert (vectors["n"], vectors["dim"]) == (3, 8)
    assert vectors["fingerprint"] == linker.fingerprint
    again = bioel("kb", "encode", base, model).err
    assert f"Encoded 0 names of {base}" in again and "3 already had vectors" in again
    assert "no approximate index" in bioel("kb", "info", base).words
    add_concepts(base, [Concept("X:9", ("ibuprofen",))])
    about = bioel("kb", "info", base, "--verify", "--json", "-").json
    assert (about["counts"]["names"], about["verified"]) == (4, True)
    assert [(v["n"], v["current"]) for v in about["vectors"]] == [(3, False)]


def test_encode_writes_the_vectors_of_the_copy_that_a_pipeline_has(bioel, tmp_path, monkeypatch):
    """As after training: the message that asks for vectors leads to a pipeline that has them."""
    base, model = tmp_path / "kb", tmp_path / "model"
    build_kb([Concept("X:1", ("naloxone", "narcan")), Concept("X:2", ("clonidine",))], base)
    encode(base, "other")
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "D", "pattern": "naloxone"}])
    config = {"kb": str(base), "model": TINY_ENCODER, "mentions": "ents"}
    linker = nlp.add_pipe("bioel_linker", config=config)
    reference = nlp.make_doc("naloxone")
    reference.spans["bioel_gold"] = [reference.char_span(0, 8, "D", kb_id="X:1")]
    examples = [Example(nlp.make_doc("naloxone"), reference)]
    linker.initialize(lambda: examples, vocabulary=100, width=8)
    nlp.to_disk(model)
    saved = model / "bioel_linker" / "kb"

    monkeypatch.setattr("spacy_bioel.linking.searches.ENCODE_ON_LOAD", 0)  # as if it were large
    with pytest.raises(BioelError, match=r"\[B031\].*bioel kb encode .* MODEL"):
        spacy.load(model)("naloxone")
    done = bioel("kb", "encode", base, model)
    assert f"The copy in {saved} has the vectors too." in done.words
    assert spacy.load(model)("naloxone").ents[0].kb_id_ == "X:1"
    encoders = {v["fingerprint"] for v in bioel("kb", "info", saved, "--json", "-").json["vectors"]}
    assert linker.fingerprint in encoders
    assert bioel("kb", "info", saved, "--verify", "--json", "-").json["verified"] is True
    assert "Encoded 0 names" in bioel("kb", "encode", base, model).words

    add_concepts(base, [Concept("X:9", ("ibuprofen",))])
    assert f"Not encoded: {saved}" in bioel("kb", "encode", base, model).words
    shutil.rmtree(saved / "vectors")
    with pytest.raises(BioelError, match=rf"\[B032\].*bioel kb encode {saved} MODEL"):
        spacy.load(model)("naloxone")
    bioel("kb", "encode", saved, model)  # as the message says
    assert spacy.load(model)("naloxone").ents[0].kb_id_ == "X:1"


def test_encode_for_a_pipeline_without_a_copy(bioel, kb, tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_linker", config={"kb": str(kb), "include_kb": False})
    nlp.to_disk(tmp_path / "model")
    done = bioel("kb", "encode", kb, tmp_path / "model")
    assert "Encoded" in done.words and "copy" not in done.words and "Not encoded" not in done.words


def test_add(bioel, kb, tmp_path):
    source, report = tmp_path / "mine.csv", tmp_path / "report.json"
    source.write_text("Code,Label\nD009270,Narcan nasal\nD000900,Gout\nD000001,Nalone\n")
    options = ["--columns", "id=Code,name=Label", "--prefix", "MESH", "--json", report]
    shown = bioel("kb", "add", kb, source, *options)
    counts = json.loads(report.read_text())
    assert (counts["new_concepts"], counts["new_names"]) == (1, 3)
    assert (counts["records"], counts["redirected"], counts["concepts"]) == (3, 1, 4)
    assert counts["vectors_outdated"] is False
    assert names_of(kb, "MESH:D009270") == ["Naloxone", "Narcan", "Narcan nasal", "Nalone"]
    assert KnowledgeBase.open(kb).meta["source"] == "concepts.jsonl, mine.csv"
    assert "concepts added" in shown.out and shown.err == ""


def test_add_says_what_to_do_about_vectors(bioel, kb, concepts_file):
    encode(kb)
    assert bioel("kb", "add", kb, concepts_file).err == ""  # nothing was new
    concepts_file.write_text('{"id": "MESH:D1", "names": ["gout"], "types": ["C"]}\n')
    assert bioel("kb", "add", kb, concepts_file, "--types", "D").err == ""
    assert f"run bioel kb encode {kb} MODEL" in bioel("kb", "add", kb, concepts_file).words
    assert has_vectors(KnowledgeBase.open(kb))
    encode(kb, "g")
    vectors = bioel("kb", "info", kb, "--verify", "--json", "-").json["vectors"]
    found = [(about["fingerprint"], about["n"], about["current"]) for about in vectors]
    assert found == [("g", 6, True), ("f", 5, False)]
    shown = bioel("kb", "info", kb).words
    assert "encoder g; no approximate index" in shown and "outdated: run bioel" in shown


def test_retire_one(bioel, kb):
    encode(kb)
    done = bioel("kb", "retire", kb, "D003000", "--replaced-by", "D009270", "--prefix", "MESH")
    base = KnowledgeBase.open(kb)
    assert base.canonical("MESH:D003000") == "MESH:D009270"
    assert base.find("MESH:D003000") == base.find("MESH:D009270") == 1
    assert "run bioel kb encode" in done.words
    assert "concepts removed" in done.out and "ids retired" in done.out
    bioel("kb", "retire", kb, "MESH:D006973")
    assert list(KnowledgeBase.open(kb).ids) == ["MESH:D009270"]


def test_retire_pairs(bioel, kb, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("D003000\tD009270\nD006973\tD009270\nD003000\tD009270\n")
    counts = bioel("kb", "retire", kb, "--pairs", pairs, "--prefix", "MESH", "--json", "-").json
    assert (counts["new_concepts"], counts["new_retired"], counts["new_names"]) == (-2, 2, 0)


def test_compact(bioel, kb):
    encode(kb)
    bioel("kb", "retire", kb, "MESH:D003000", "--replaced-by", "MESH:D009270")
    assert "Removed 1 unused item (" in bioel("kb", "compact", kb).err
    assert not has_vectors(KnowledgeBase.open(kb))
    assert KnowledgeBase.open(kb).find("MESH:D003000") == 1
    encode(kb)
    assert bioel("kb", "compact", kb).err == "Nothing to remove.\n"
    done = bioel("kb", "compact", kb, "--forget-retired", "--json", "-")
    assert done.json == {"leftovers": 0, "megabytes": 0.0, "forgotten": 2}
    assert (
        done.err.startswith("Forgot 2 retired ids. The vectors")
        and f"run bioel kb encode {kb} MODEL" in done.err
    )
    assert KnowledgeBase.open(kb).find("MESH:D003000") == -1
    assert has_vectors(KnowledgeBase.open(kb))


def test_edit(bioel, kb, tmp_path):
    names = ["--rename", "Naloxone hydrochloride", "--add", "Nalone", "--remove", "narcan"]
    report = tmp_path / "report.json"
    done = bioel("kb", "edit", kb, "D009270", "--prefix", "MESH", *names, "--json", report)
    counts = json.loads(report.read_text())
    assert (counts["new_concepts"], counts["new_names"], counts["records"]) == (0, 1, 1)
    assert names_of(kb, "MESH:D009270") == ["Naloxone hydrochloride", "Naloxone", "Nalone"]
    assert "Edited MESH:D009270" in done.out


@pytest.mark.parametrize(
    ("name", "number"), [("-80", "80"), ("17-23", "17 23"), ("-80 mg", ""), ("D80", "")]
)
def test_names_that_are_numbers(bioel, kb, name, number):
    done = bioel("kb", "edit", kb, "MESH:D009270", "--add", name)
    assert ("[W443]" in done.err) == bool(number)
    assert f"'{name}' is found wherever a text has {number}" in done.err or not number


def test_a_bundled_knowledge_base_without_its_prefix(bioel, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (str(kb["name"]) for kb in list_bundled()):
        for command in (["info"], ["show", "X:1"], ["search", "fever"]):
            done = bioel("kb", command[0], name.removeprefix("starter:"), *command[1:], status=2)
            assert "[B020]" in done.err and name in done.err


def test_help_names_the_commands_and_needs_no_spacy():
    code = (
        "import sys\nfrom spacy_bioel.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as e:\n    print(e.code, 'spacy' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False False"
    for name in ("convert", "link", "evaluate", "kb"):
        assert name in done.stdout


def test_an_unexpected_failure_is_not_hidden(tmp_path, concepts_file, monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("spacy_bioel.cli.kb_build.build_kb", fail)
    with pytest.raises(RuntimeError, match="a bug"):  # Python exits with status 1
        main(["kb", "build", str(tmp_path / "kb"), str(concepts_file)])

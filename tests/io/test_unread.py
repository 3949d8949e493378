"""Misspelt keywords lose nothing: they are refused. Those that are unknown are named."""

import json
from pathlib import Path

import athena
import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.open import skipping_bad
from spacy_bioel.io.table import read_text_table


@pytest.mark.parametrize(
    ("header", "row", "found", "chosen"),
    [
        ("id,name,synonims", "1,Gout,podagra", "synonims", "id=id,name=name,synonyms=synonims"),
        ("id\tname\tSynonyms", "1\tGout\tx", "Synonyms", "id=id,name=name,synonyms=Synonyms"),
        ("id,nmae,definition", "1,Gout,x", "nmae", "id=id,definition=definition,name=nmae"),
        ("synonym,name,id", "x,Gout,1", "synonym", "id=id,name=name,synonyms=synonym"),
        ("id,name,defintion", "1,Gout,x", "defintion", "id=id,name=name,definition=defintion"),
        ("id,name,type", "1,Gout,x", "type", "id=id,name=name,types=type"),
        ("id,name,parent_ids", "1,Gout,2", "parent_ids", "id=id,name=name,parents=parent_ids"),
        ("id,name,Xref", "1,Gout,Y:2", "Xref", "id=id,name=name,xrefs=Xref"),
        ("# id,name,alt-ids", "1,Gout,2", "alt-ids", "id=id,name=name,alt_ids=alt-ids"),
        ("id,name,replacedby", "1,Gout,2", "replacedby", "id=id,name=name,replaced_by=replacedby"),
    ],
)
def test_a_misspelt_column_is_refused(write, header, row, found, chosen):
    path = write(f"{header}\n{row}\n", "mine.tsv" if "\t" in header else "mine.csv")
    with pytest.raises(BioelError) as refused:
        list(read_ontology(path))
    assert str(refused.value).startswith(f"[B136] {path} has a column {found!r}, which is not read")
    assert str(refused.value).endswith(f"--columns {chosen}")
    columns = dict(pair.split("=") for pair in chosen.split(","))
    assert [c.id for c in read_ontology(path, columns=columns)][0] == "1"  # as proposed


@pytest.mark.parametrize(
    "others",
    [
        ["note", "curator", "created_by", "date", "source"],
        ["label", "description", "tui", "semantic_type", "status", "alias"],
        ["names", "ids", "name_en", "text", "code"],  # close to columns that are there
        ["icd10", "tax_id", "exact_synonyms", "preferred", "url"],
    ],
)
def test_columns_of_ones_own_are_named(write, caplog, others):
    path = write("\t".join(["id", "name", *others]) + "\n1\tGout" + "\t" * len(others) + "\n")
    assert [c.names for c in read_ontology(path, format="table")] == [("Gout",)]
    (message,) = caplog.messages
    names = ", ".join(map(repr, others))
    assert message == f"[W479] {path}: columns that are not read: {len(others)} ({names})."
    caplog.clear()
    chosen = {"id": "id", "name": "name"}  # whoever chooses the columns knows the others
    assert list(read_ontology(path, columns=chosen)) and not caplog.messages


def test_many_columns_are_counted(write, caplog):
    others = [f"c{n}" for n in range(250)]
    path = write(",".join(["id", "name", *others, ""]) + "\n1,Gout" + "," * 251 + "\n", "t.csv")
    assert len(list(read_ontology(path))) == 1
    (message,) = caplog.messages
    assert "not read: 250 ('c0', " in message and "'c9')." in message and "c10" not in message


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("ID,text", "1 ('ID' (did you mean 'id'?))"),
        ("text,Id,ward", "2 ('Id' (did you mean 'id'?), 'ward')"),
        ("icd,pid,text,date", "3 ('icd', 'pid', 'date')"),
        ("id,text,ID,texts", "2 ('ID', 'texts')"),
        ("id,text", ""),
        ("text,", ""),
    ],
)
def test_columns_beside_texts(write, caplog, header, said):
    cells = ",".join(name[:1] for name in header.split(","))
    path = write(f"{header}\n{cells}\n", "t.csv")
    assert len(list(read_text_table(path))) == 1
    expected = [f"[W479] {path}: columns that are not read: {said}."] if said else []
    assert caplog.messages == expected


TERMS = """format-version: 1.2
default-namespace: disease
own-field: of this file

[Term]
id: X:1
name: Gout
synonym: "Podagra" EXACT []
xref: Y:1

[Term]
id: X:2
name: Acute gout
is_a: X:1
def: "Words." []
exact_synonym: "Gout attack" []

[Typedef]
id: part_of
anything: goes here
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "meant"),
    [
        ("[Term]\nid: X:2", "[Tern]\nid: X:2", 11, "[Term]"),
        ("[Term]\nid: X:2", "[term]\nid: X:2", 11, "[Term]"),
        ("[Term]\nid: X:2", "[Terms]\nid: X:2", 11, "[Term]"),
        ("synonym:", "synonim:", 8, "synonym:"),
        ("synonym: ", "Synonyms: ", 8, "synonym:"),
        ("exact_synonym:", "exact_synonim:", 16, "exact_synonym:"),
        ("xref:", "xrefs:", 9, "xref:"),
        ("is_a:", "isa:", 14, "is_a:"),
        ("is_a:", "is-a:", 14, "is_a:"),
        ("def:", "Def:", 15, "def:"),
        ("name: Gout", "nmae: Gout", 7, "name:"),
        ("default-namespace:", "default_namespace:", 2, "default-namespace:"),
        ("xref: Y:1", "is_obselete: true", 9, "is_obsolete:"),
        ("xref: Y:1", "alt-id: X:9", 9, "alt_id:"),
        ("xref: Y:1", "replacedby: X:9", 9, "replaced_by:"),
    ],
)
def test_a_misspelt_tag_is_refused(write, caplog, old, new, line, meant):
    path = write(TERMS.replace(old, new, 1), "x.obo")
    with pytest.raises(BioelError) as refused:
        list(read_ontology(path))
    assert str(refused.value).startswith(f"[B116] {path}, line {line}: expected {meant}, found ")
    noted = []
    with skipping_bad(noted.append):  # the others are read, and this one is in the report
        left = [concept.id for concept in read_ontology(path)]
    assert [(record.line, record.code) for record in noted] == [(line, "B116")]
    assert left == (["X:1", "X:2"] if line < 5 else ["X:2"] if line < 11 else ["X:1"])


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("label: Gout\nlabel: gout\nmy_tag: 1", "2 ('label' (2 times), 'my_tag')"),
        (
            "relation: part_of X:2\ncoment: close to a tag that is not read",
            "2 ('relation', 'coment')",
        ),
        ("xref: Y:2\n\n[Mapping]\nid: X:3\n\n[Mapping]\nid: X:4", "1 ('[Mapping]' (2 times))"),
        ("comment: c\nsubset: s\nrelationship: part_of X:2\ncreated_by: a\nuse_term: X:2", ""),
        ("intersection_of: X:2\nunion_of: X:2\ndisjoint_from: X:2\nproperty_value: p v", ""),
        ('xref_analog: Y:2\nis_anonymous: false\nbuiltin: true\nrelated_synonym: "x" []', ""),
        ("xref: Y:2\n\n[Instance]\nid: X:3\ninstance_of: X:1", ""),
    ],
)
def test_tags_of_ones_own_are_named(write, caplog, new, said):
    path = write(TERMS.replace("xref: Y:1", new), "x.obo")
    assert [concept.id for concept in read_ontology(path)] == ["X:1", "X:2"]
    expected = [f"[W479] {path}: tags that are not read: {said}."] if said else []
    assert caplog.messages == expected


RELATIONS = [
    ("Maps to", "Maps"), ("Maps to", "maps to"), ("Maps to", "Map to"), ("Maps to", "Maps_to"),
    ("Is a", "Is A"), ("Is a", "Isa"), ("Is a", "is-a"),
    ("Concept replaced by", "Concept replaced"), ("Concept replaced by", "Concept_replaced_by"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong"), RELATIONS)
@pytest.mark.parametrize("most", [1, -1])
def test_a_misspelt_relation_is_refused(tmp_path, right, wrong, most):
    rows = wrong.join(athena.RELATIONSHIP.rsplit(right, most))
    folder = athena.write_athena(tmp_path / "athena", CONCEPT_RELATIONSHIP=rows)
    with pytest.raises(BioelError, match=rf"\[B132\] .*relationship_id '{wrong}'.*'{right}'"):
        list(read_ontology(folder))


def test_other_relations(tmp_path, caplog):
    others = (
        "Subsumes", "Mapped from", "Maps to value", "Maps to unit", "Concept replaces", "Has a",
        "Concept same_as to", "Concept same_as from", "Concept was_a to", "Concept poss_eq to",
        "Concept alt_to to", "Value mapped from", "Is FDA-appr ind of", "Is current in",
    )  # fmt: skip
    row = "4329847\t312327\t{}\t20020131\t20991231\t\n"
    rows = athena.RELATIONSHIP + "".join(map(row.format, others))
    folder = athena.write_athena(tmp_path / "athena", CONCEPT_RELATIONSHIP=rows)
    plain = athena.write_athena(tmp_path / "plain")
    assert list(read_ontology(folder)) == list(read_ontology(plain)) and not caplog.messages


@pytest.mark.parametrize(
    ("key", "meant"),
    [("synonims", "synonyms"), ("Synonyms", "synonyms"), ("ancestor", "ancestors")]
    + [
        ("desciption", "description"),
        ("replaced-by", "replaced_by"),
        ("depreciated", "deprecated"),
    ],
)
def test_a_misspelt_key_is_refused(write, key, meant):
    terms = {"X:1": {"label": "Gout"}, "X:2": {"label": "Flu", key: ["grippe"]}}
    path = write(json.dumps(terms), "x.json")
    with pytest.raises(BioelError, match=rf"\[B120\].*'X:2' with '{key}', expected '{meant}'"):
        list(read_ontology(path))
    terms["X:2"] = {"label": "Flu", "comments": "c", "term_tracker": "t", "own": 1}
    assert len(list(read_ontology(write(json.dumps(terms), "x.json")))) == 2


def test_the_commands_say_it(bioel, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("id,name,synonims\nX:1,Gout,podagra\n")
    assert bioel("kb", "build", "kb", "mine.csv", status=2).err.startswith("error: [B136] mine.csv")
    assert not Path("kb").exists()
    columns = "id=id,name=name,synonyms=synonims"
    built = bioel("kb", "build", "kb", "mine.csv", "--columns", columns, "--json", "-").json
    assert built["names"] == 2 and not caplog.messages
    Path("own.csv").write_text("id,name,note\nX:2,Flu,seen\n")
    bioel("kb", "add", "kb", "own.csv")
    assert caplog.messages == ["[W479] own.csv: columns that are not read: 1 ('note')."]


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["MONDO*.json.zst", "UBERON*.json.zst", "CL*.json.zst"])
def test_ontologies_as_they_are_published(data_folder, caplog, name):
    """In JSON; those in OBO are in test_ontology.py."""
    (path,) = (data_folder / "names" / "obo").glob(name)
    assert sum(1 for _ in read_ontology(path)) > 2000 and not caplog.messages

"""Bad records are skipped and reported, in each format that has records."""

from collections.abc import Callable

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.open import BadRecord, skipping_bad

RECORD = "<DescriptorRecord><DescriptorUI>D{n}</DescriptorUI>{name}</DescriptorRecord>"
NAME = "<DescriptorName><String>a</String></DescriptorName>"
RECORDS = "\n".join(RECORD.format(n=n, name=NAME * (n != 2)) for n in (1, 2, 3))
MESH = f"<DescriptorRecordSet>\n{RECORDS}\n</DescriptorRecordSet>"
OBO = (
    "format-version: 1.2\n\n[Term]\nid: X:1\nname: fever\n\n"
    "[Term]\nid: X:2\nname: cough\nsynonym: without quotes\n\n"
    "[Term]\nid: X:3\nname: rash\nis_a: X:1\n"
)
CONSO = "C000000{n}|ENG|P|L1|PF|S1|Y|A1||||SRC|PT|1|name {n}|0|N||\n"


@pytest.mark.parametrize(
    ("name", "content", "ids", "bad"),
    [
        ("a.tsv", "id\tname\nX:1\ta\nX:2\nX:3\tc\n", ["X:1", "X:3"], [(3, "B510")]),
        (
            "a.csv",
            b'id,name\n\xe9,x\nX:1,"a"b\nX:2,"c, d"\n,e\n',
            ["X:2"],
            [(2, "B103"), (3, "B126"), (5, "B129")],
        ),
        (
            "a.csv",  # a row of several lines is bad as a whole
            b'id,name\nX:1,"a\n\xe9\nb"\nX:2,"c\nX:3,"d"\nX:4,e\nX:5,f,g\n',
            ["X:4"],
            [(3, "B103"), (2, "B126"), (5, "B126"), (8, "B510")],
        ),
        ("a.tsv", b"id\tname\nX:1\ta\nX:2\tM\xe9ni\xe8re\nX:3\tc\n", ["X:1", "X:3"], [(3, "B103")]),
        (
            "a.jsonl",
            '{"id": "X:1", "names": ["a"]}\n{"id": 2}\nno\n\n[1]\n{"id": "X:3", "names": ["c"]}\n',
            ["X:1", "X:3"],
            [(2, "B132"), (3, "B131"), (5, "B131")],
        ),
        ("a.obo", OBO, ["X:1", "X:3"], [(10, "B116")]),
        ("a.xml", MESH, ["MESH:D1", "MESH:D3"], [(0, "B122")]),
        (
            "a.json",
            '{"X:1": {"label": "a"}, "X:2": {}, "X:3": {"label": "c"}}',
            ["X:1", "X:3"],
            [(0, "B120")],
        ),
        (
            "META/MRCONSO.RRF",
            CONSO.format(n=1) + "C0000002|ENG\n" + CONSO.format(n=3),
            ["C0000001", "C0000003"],
            [(2, "B125")],
        ),
    ],
)
def test_good_records_are_read(tmp_path, name, content, ids, bad):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    source = path
    if name.startswith("META"):
        source = path.parent
        (source / "MRSTY.RRF").write_text("C0000001|T047|B|Disease|AT1||\n")
    noted: list[BadRecord] = []
    with skipping_bad(noted.append) as skipped:
        assert [concept.id for concept in read_ontology(source)] == ids
    assert [(record.line, record.code) for record in noted] == bad
    assert skipped.n == len(bad) and skipped.first[0] == noted[0].message
    assert {record.path for record in noted} == {str(path)}
    with pytest.raises(BioelError):  # outside the block, errors are raised again
        list(read_ontology(source))


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.csv", 'id,name\nX:1,"a\nX:2,b\n', "B126"),  # the quote has swallowed the rest
        ("a.xml", MESH.replace("</DescriptorRecordSet>", ""), "B111"),
        ("a.tsv", "x\ty\n1\t2\n", "B141"),
        ("a.owl", "<rdf:RDF><Class>", "B119"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path, name, content, code):
    (tmp_path / name).write_text(content)
    skip: Callable[[BadRecord], None] = [].append
    with skipping_bad(skip), pytest.raises(BioelError, match=rf"\[{code}\]"):
        list(read_ontology(tmp_path / name))

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.table import read_ctd, read_header_table, read_table
from spacy_bioel.types import Concept

NUMBERED = {"id": 1, "name": 2, "synonyms": 3, "trees": 4}

DISEASES = """# Comparative Toxicogenomics Database, "quoted"
#
# Fields:
# DiseaseName\tDiseaseID\tAltDiseaseIDs\tDefinition\tParentIDs\tTreeNumbers\tSynonyms
#
Diabetes\tMESH:D2\tDO:DOID:9351|OMIM:100001\tHigh "glucose".\tMESH:D1\tC18.4|C19/C5\tDM|Diabetes
"""
CHEMICALS = """# Fields:
# ChemicalName,ChemicalID,CasRN,Definition,ParentIDs,TreeNumbers,MESHSynonyms,CTDCuratedSynonyms
#
bevonium,MESH:C2,1-1,,MESH:D1|MESH:D3,D02.2/C2,"2-(x),y|Acabel",Bev
"""
OLD_CHEMICALS = """# Fields:
# ChemicalName\tChemicalID\tCasRN\tDefinition\tParentIDs\tTreeNumbers\tParentTreeNumbers\tSynonyms
bevonium\tMESH:C2\t1-1\t\tMESH:D1\tD02.2/C2\tD02.2\tAcabel
"""


def test_columns_by_number(write):
    path = write('# a comment\nD1\tCalcimycin\tA|"B\tD02.3|D04.1\n\nD2\tTemefos\t\tD02.7\n')
    assert list(read_table(path, columns=NUMBERED, prefix="MESH")) == [
        Concept("MESH:D1", ("Calcimycin", "A", '"B'), types=("D02", "D04", "D")),
        Concept("MESH:D2", ("Temefos",), types=("D02", "D")),
    ]


def test_columns_by_name_with_every_key(write):
    path = write(
        "name;code;group;up;note;old;now;more\n"
        '"Fever; high";7;T184|T033;1|2;"A ""sign""";70|71;;\n'
        ";8;;;;;7;\n",
        "names.txt",
    )
    columns = {
        "id": "code", "name": "name", "synonyms": "more", "types": "group", "parents": "up",
        "definition": "note", "alt_ids": "old", "replaced_by": "now",
    }  # fmt: skip
    assert list(read_table(path, columns=columns, prefix="X")) == [
        Concept(
            "X:7",
            ("Fever; high",),
            types=("T184", "T033"),
            parents=("X:1", "X:2"),
            definition='A "sign"',
        ),
        Concept("X:70", (), replaced_by="X:7"),
        Concept("X:71", (), replaced_by="X:7"),
        Concept("X:8", (), replaced_by="X:7"),
    ]


SYNONYMS = {"id": "id", "name": "name", "synonyms": "more"}


def names_of(path, **options) -> list[tuple[str, ...]]:
    return [c.names for c in read_table(path, columns=SYNONYMS, prefix="X", **options)]


def test_synonyms_between_semicolons(write, caplog):
    path = write("id,name,more\n1,Fever,Pyrexia; hot\n2,Cough,\n3,Pain,ache;dolor\n", "t.csv")
    assert names_of(path) == [("Fever", "Pyrexia", "hot"), ("Cough",), ("Pain", "ache", "dolor")]
    (message,) = caplog.messages
    assert (
        "[W478]" in message
        and "t.csv" in message
        and "at ';'; rows with a semicolon there: 2, with a bar: 0." in message
    )
    # A bar decides, wherever it occurs; semicolons then belong to names, as in chemistry.
    caplog.clear()
    path = write("id,name,more\n1,A,b;c\n2,D,e;f\n3,G,h|i; j\n", "u.csv")
    assert names_of(path) == [("A", "b;c"), ("D", "e;f"), ("G", "h", "i; j")]
    (message,) = caplog.messages  # what semicolons mean in the other rows is for the user to decide
    assert "at '|'; rows with a semicolon there: 2, with a bar: 1." in message
    caplog.clear()
    bars = "".join(f"{n},N{n},a|b\n" for n in range(5))
    path = write(f"id,name,more\n{bars}5,D,e;f\n6,G,h|i; j\n", "w.csv")
    assert names_of(path)[-1] == ("G", "h", "i; j") and not caplog.messages  # few
    # A few semicolons may belong to names. They are kept, and the user decides.
    rows = "".join(f"{n},N{n},name {n}\n" for n in range(8))
    path = write(f"id,name,more\n{rows}8,Gout,podagra; of the toe\n", "v.csv")
    assert names_of(path)[-1] == ("Gout", "podagra; of the toe")
    assert "[W478]" in caplog.text and "at '|'; rows with a semicolon there: 1," in caplog.text
    caplog.clear()
    assert names_of(path, synonym_separator=";")[-1] == ("Gout", "podagra", "of the toe")
    assert not caplog.messages


@pytest.mark.parametrize(
    ("cells", "is_separator"),
    [
        (["a; b", "c", "d", ""], True),
        (["a; b", "c", "d", "e", "f"], False),  # a fifth
        (["a; b", "c, d", "e"], False),  # perhaps commas separate them
        (["a; b", "c; d", "Gout, acute; podagra", "2,4-D", "gout, acute"], True),
        (["a; b", "c; d", "e|f"], False),
    ],
)
def test_when_a_semicolon_separates_synonyms(write, cells, is_separator):
    rows = "".join(f"{n}\tN{n}\t{cell}\n" for n, cell in enumerate(cells))
    names = names_of(write(f"id\tname\tmore\n{rows}", "t.tsv"))
    assert names[0][1:] == (("a", "b") if is_separator else ("a; b",))


def test_bars_after_the_rows_that_decide(write, caplog):
    rows = "".join(f"{n},N{n},a{n};b{n}\n" for n in range(1500))
    assert names_of(write(f"id,name,more\n{rows}x,X,c|d\n", "t.csv"))[-1] == ("X", "c|d")
    assert "[W478]" in caplog.text and "there: 1,500, with a bar: 1." in caplog.text


@pytest.mark.parametrize(
    ("separator", "cell", "names"),
    [
        (",", "a,b, c", ("a", "b", "c")),
        ("; ", "1;2-x; y", ("1;2-x", "y")),
        ("|", "a;b", ("a;b",)),
        (" / ", "a / b/c|d", ("a", "b/c|d")),
    ],
)
def test_synonyms_between_other_separators(write, caplog, separator, cell, names):
    path = write(f"id\tname\tmore\n1\tN\t{cell}\n", "t.tsv")
    assert names_of(path, synonym_separator=separator) == [("N", *names)]
    assert not caplog.messages


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("more.csv", "id,name,more\n1,Fever,hot\n2,Gout, of the toe,podagra\n", 3),
        ("fewer.csv", "id,name,more\n1,Fever\n", 2),
        ("fewer.tsv", "id\tname\tmore\n\n1\tFever\n", 3),
        ("more.tsv", "id\tname\tmore\n1\tFe\tver\thot\n", 2),
        ("lines.csv", 'id,name,more\n1,"Fe\nver",\n2,"Gout\n(toe)",a,b\n', 4),
        ("comment.tsv", "#id\tname\tmore\n1\tFever\n", 2),
        ("semicolons.csv", "id;name;more\n1;Fever; hot;\n2;Fever;hot;burning\n", 3),
    ],
)
def test_a_row_of_another_width(write, name, content, line):
    with pytest.raises(BioelError, match=rf"\[B510\] .*{name}, line {line}: .*expected 3"):
        list(read_table(write(content, name), columns=SYNONYMS))


def test_a_row_of_another_width_without_a_header(write):
    columns = {"id": 1, "name": 2}
    for content in ("1,Fever,hot\n2,Gout, toe,x\n", "# of\n1,Fever,hot\n2,Gout\n"):
        with pytest.raises(BioelError, match=r"\[B510\].*expected 3"):
            list(read_table(write(content, "n.csv"), columns=columns))
    # A column that the table lacks would be read as empty.
    with pytest.raises(BioelError, match=r"\[B262\].*column 9.*'synonyms'.*from 1 to 3"):
        list(read_table(write("1,Fever,hot\n", "n.csv"), columns=columns | {"synonyms": 9}))


def test_empty_cells_at_the_end_are_harmless(write):
    path = write("id,name,more,,\n1,Fever,hot\n2,Cough,,,,,\n,,,,,\n3,Pain,,\n", "t.csv")
    assert names_of(path) == [("Fever", "hot"), ("Cough",), ("Pain",)]


@pytest.mark.parametrize("header", ["id,name,more,name", "id,id,name,more", "id,name, more,more "])
def test_two_columns_of_one_name(write, header):
    with pytest.raises(BioelError, match=r"\[B512\].*t.csv.* 2 columns"):
        list(read_table(write(f"{header}\n1,2,3,4\n", "t.csv"), columns=SYNONYMS))
    other = write("id,note,name,more,note\n1,2,3,4,5\n", "t.csv")  # of no interest
    assert names_of(other) == [("3", "4")]


def test_separators(write):
    concept = [Concept("1", ("a b", "c d"))]
    columns = {"id": 1, "name": 2, "synonyms": 3}
    assert list(read_table(write("1,a b,c d\n", "n.csv"), columns=columns)) == concept
    assert list(read_table(write("1\ta b\tc d\n", "n.txt"), columns=columns)) == concept
    # Spreadsheets write semicolons in locales with decimal commas.
    path = write("id;name\n1;a, b\n", "n.csv")
    assert list(read_header_table(path)) == [Concept("1", ("a, b",))]


def test_parents_separated_by_commas(write):
    (concept,) = read_table(write("1\ta\tD2,D3\n"), columns={"id": 1, "name": 2, "parents": 3})
    assert concept.parents == ("D2", "D3")


def test_header_in_a_comment(write):
    path = write("# made by hand\n#id\tname\n1\ta\n")
    assert list(read_table(path, columns={"id": "id", "name": "name"})) == [Concept("1", ("a",))]
    path = write("# made by hand\nid\tname\n1\ta\n")
    assert list(read_table(path, columns={"id": "id", "name": 2})) == [Concept("1", ("a",))]


def test_header_table(write):
    path = write("id\tother\tname\tsynonyms\n1\tx\ta\tb|c\n")
    assert list(read_header_table(path, prefix="X")) == [Concept("X:1", ("a", "b", "c"))]
    with pytest.raises(BioelError, match=r"B141.*x.txt.*'id'.*\['code', 'name'\].*--columns"):
        list(read_header_table(write("code\tname\n1\ta\n")))


def test_ctd(write):
    diabetes = Concept(
        "MESH:D2", ("Diabetes", "DM"), ("C18", "C19", "C"), ("MESH:D1",), 'High "glucose".'
    )
    bevonium = Concept(
        "MESH:C2", ("bevonium", "2-(x),y", "Acabel", "Bev"), ("D02", "D"), ("MESH:D1", "MESH:D3")
    )
    assert list(read_ctd(write(DISEASES, "CTD_diseases.tsv"))) == [
        diabetes,
        Concept("DOID:9351", (), replaced_by="MESH:D2"),
        Concept("OMIM:100001", (), replaced_by="MESH:D2"),
    ]
    assert list(read_ctd(write(CHEMICALS, "CTD_chemicals.csv"))) == [bevonium]
    assert list(read_ctd(write(OLD_CHEMICALS, "CTD_chemicals.tsv"))) == [
        Concept("MESH:C2", ("bevonium", "Acabel"), ("D02", "D"), ("MESH:D1",))
    ]
    with pytest.raises(BioelError, match="B130"):
        list(read_ctd(write("DiseaseName\tDiseaseID\n")))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": 2}, "B127.*'name'"),
        ({"id": 1, "label": 2}, "B127.*'label'.*synonyms"),
        ({"id": "code", "name": "title"}, r"B128.*x.txt.*\['title'\].*\['code', 'name'\]"),
        ({"id": 3, "name": 2}, r"\[B262\].*column 3.*'id'.*from 1 to 2"),
        ({"id": 1, "name": 2, "replaced_by": 3}, r"\[B262\].*column 3.*'replaced_by'"),
        ({"id": 0, "name": 2}, r"\[B262\].*column 0.*'id'"),
    ],
)
def test_wrong_columns(write, columns, message):
    with pytest.raises(BioelError, match=message):
        list(read_table(write("code\tname\n1\ta\n"), columns=columns))


@pytest.mark.parametrize(
    ("content", "start", "end"),
    [
        ('1,a\n2,"b\n3,c\n', 2, 3),  # never closed
        ('1,a\n\n2,"b\n3,"c"\n4,d\n', 3, 4),
        ('1,"b"c\n', 1, 1),
    ],
)
def test_broken_quotes(write, content, start, end):
    message = rf"\[B126\] .*n.csv, line {start}: .*ends? (at|in) line {end}"
    with pytest.raises(BioelError, match=message):
        list(read_table(write(content, "n.csv"), columns={"id": 1, "name": 2}))


def test_rows_of_mrconso(write):
    row = "C1|ENG|P|L1|PF|S1|Y|A1||M1|D1|SNOMEDCT_US|PT|{code}|{name}|9|N|256|\n"
    path = write(
        row.format(code=10, name='So-called "fit"') + row.format(code=10, name="Fit"), "s.rrf"
    )
    assert list(read_table(path, columns={"id": 14, "name": 15}, prefix="SNOMED")) == [
        Concept("SNOMED:10", ('So-called "fit"',)),
        Concept("SNOMED:10", ("Fit",)),
    ]

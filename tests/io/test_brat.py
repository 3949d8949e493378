from pathlib import Path

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.brat import read_brat
from spacy_bioel.io.formats import detect_corpus_format, read_corpus
from spacy_bioel.io.open import BadRecord, skipping_bad
from spacy_bioel.types import AnnotatedText, Mention

TEXT = "Renal and liver failure\nafter naïve lithium.\n"
ANNOTATIONS = """T1\tDisease 0 5;16 23\tRenal failure
T2\tDisease 10 23\tliver failure
T3\tChemical 36 43\tlithium
R1\tCauses Arg1:T3 Arg2:T2
*\tEquiv T1 T2
A1\tNegation T2
#1\tAnnotatorNotes T3\tsure
N1\tReference T1 MESH:D051437\tRenal Insufficiency
N2\tReference T1 OMIM:1
N3\tReference T3 D008094\tLithium
"""
DOCUMENT = AnnotatedText(
    "7",
    TEXT,
    (
        Mention(0, 23, "Disease", ("MESH:D051437", "OMIM:1"), ((0, 5), (16, 23))),
        Mention(10, 23, "Disease"),
        Mention(36, 43, "Chemical", ("MESH:D008094",)),
    ),
)


def write(folder: Path, annotations: str = ANNOTATIONS, *, name: str = "7") -> Path:
    (folder / f"{name}.txt").write_text(TEXT, encoding="utf8")
    (folder / f"{name}.ann").write_text(annotations, encoding="utf8")
    return folder / f"{name}.ann"


@pytest.mark.parametrize("suffix", [".ann", ".txt"])
def test_a_pair_of_files_is_one_document(tmp_path, suffix):
    path = write(tmp_path).with_suffix(suffix)
    assert detect_corpus_format(path) == "brat"
    assert list(read_corpus(path, prefix="MESH")) == [DOCUMENT]


def test_a_folder_is_all_its_pairs(tmp_path):
    write(tmp_path)
    write(tmp_path, "", name="10.a")
    (tmp_path / "annotation.conf").write_text("[entities]\n")
    assert detect_corpus_format(tmp_path) == "brat"
    assert list(read_corpus(tmp_path, prefix="MESH")) == [AnnotatedText("10.a", TEXT), DOCUMENT]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("T1\tDisease 0 5", "B264"),
        ("T1\tDisease 0-5\tRenal", "B264"),
        ("T1\tDisease 0 5;\tRenal", "B264"),
        ("T1\tDisease 0 ²\tRenal", "B264"),
        ("N1\tReference T1", "B264"),
        ("Renal failure", "B264"),
        ("T1\tDisease 0 99\tRenal", "B105"),
        ("T1\tDisease 0 5\tliver", "B106"),
        ("N1\tReference T9 MESH:D1\tx", "B265"),
        ("E1\tCauses", "B264"),
        ("E1\tCauses:R1", "B264"),
        ("T8\tDisease 10 23\tliver failure", "B340"),
        ("T1\tChemical 37 44\tlithium", "B106"),  # of UTF-16
    ],
)
def test_broken_lines(tmp_path, line, code):
    path = write(tmp_path, f"T8\tDisease 0 5\tRenal\n{line}\n")
    path.with_suffix(".txt").write_text(TEXT.replace("naïve", "n😀ve"), encoding="utf8")
    with pytest.raises(BioelError, match=rf"\[{code}\] .*7.ann, line 2"):
        list(read_brat(path))


@pytest.mark.parametrize("suffix", [".ann", ".txt"])
def test_one_file_of_a_pair_is_not_enough(tmp_path, suffix):
    path = write(tmp_path).with_suffix(suffix)
    path.with_suffix({".ann": ".txt", ".txt": ".ann"}[suffix]).unlink()
    with pytest.raises(BioelError, match=r"\[B263\]"):
        list(read_corpus(path, format="brat"))


def test_a_folder_without_annotations_and_a_document_without_a_text(tmp_path):
    with pytest.raises(BioelError, match=r"\[B263\].*\*\.ann"):
        list(read_brat(tmp_path))
    (tmp_path / "7.txt").touch()
    (tmp_path / "7.ann").touch()
    assert list(read_brat(tmp_path)) == [AnnotatedText("7", "")]


def test_triggers_are_not_mentions(tmp_path):
    lines = (
        "T1\tChemical 36 43\tlithium\nT2\tCausing 24 29\tafter\nE1\tCausing:T2 Cause:T1\n"
        "N1\tReference E1 GO:1\tx\nN2\tReference T2 GO:2\tx\nM1\tNegation E1\n"
    )
    (document,) = read_brat(write(tmp_path, lines))
    assert document.mentions == (Mention(36, 43, "Chemical"),)


def test_windows_line_ends_are_characters_of_the_text(tmp_path):
    (tmp_path / "7.txt").write_bytes("\ufeffnaïve 😀\r\nlithium".encode())
    (tmp_path / "7.ann").write_bytes(
        b"T1\tChemical 9 16\tlithium\r\nN1\tReference T1 MESH:D1\tx\r\n"
    )
    (document,) = read_brat(tmp_path)
    assert document.text == "naïve 😀\r\nlithium"
    assert document.mentions == (Mention(9, 16, "Chemical", ("MESH:D1",)),)


def test_the_warning_names_texts_without_annotations(tmp_path, caplog):
    write(tmp_path)
    (tmp_path / "8.txt").write_text("Lithium")
    assert list(read_brat(tmp_path, prefix="MESH")) == [DOCUMENT]
    assert "[W301]" in caplog.text and "are left out (1: 8.txt)" in caplog.text


@pytest.mark.parametrize(
    ("note", "prefix", "ids"),
    [
        ("MESH:D003000", "", ("MESH:D003000",)),
        (" D003000 ", "MESH", ("MESH:D003000",)),
        ("C0011849", "", ("C0011849",)),
        ("D003000|C535484", "", ("D003000", "C535484")),
        ("mesh:D1|HP:0000007", "", ("MESH:D1", "HP:0000007")),
        ("HGNC:1100; NCBIGene:672", "", ("HGNC:1100", "NCBIGene:672")),
        ("404640003", "SNOMED", ("SNOMED:404640003",)),
    ],
)
def test_notes_that_are_ids(tmp_path, caplog, note, prefix, ids):
    lines = f"T1\tChemical 36 43\tlithium\n#1\tAnnotatorNotes T1\t{note}\n"
    (document,) = read_brat(write(tmp_path, lines), prefix=prefix)
    assert document.mentions == (Mention(36, 43, "Chemical", ids),)
    assert not caplog.records


def test_notes_and_normalizations_add_up(tmp_path):
    lines = (
        "#1\tAnnotatorNotes T1\tX:1\nT1\tChemical 36 43\tlithium\n"
        "N1\tReference T1 X:1\tx\n#2\tAnnotatorNotes T1\tX:2\n"
    )
    (document,) = read_brat(write(tmp_path, lines))
    assert document.mentions[0].ids == ("X:1", "X:2")


@pytest.mark.parametrize(
    "note", ["sure", "see D003000", "note: unclear", "D003000 or D003001?", "404640003", "a:b"]
)
def test_notes_that_are_not_ids_are_counted(tmp_path, caplog, note):
    lines = "T1\tChemical 36 43\tlithium\nR1\tOf Arg1:T1 Arg2:T1\n#3\tAnnotatorNotes R1\thm\n"
    for name in "ab":
        write(tmp_path, f"{lines}#1\tAnnotatorNotes T1\t{note}\n", name=name)
    documents = list(read_brat(tmp_path, prefix="MESH" if not note.isdigit() else ""))
    assert [document.mentions[0].ids for document in documents] == [(), ()]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("[W337]") and "ignored: 2, the first" in said and "a.ann, line 4" in said
    assert repr(note) in said


def test_bad_documents_are_skipped(tmp_path):
    write(tmp_path, "T1\tDisease 0 99\tRenal\n", name="a")
    write(tmp_path, name="b")
    write(tmp_path, name="c").with_suffix(".txt").unlink()
    skipped: list[BadRecord] = []
    with skipping_bad(skipped.append):
        assert [document.id for document in read_brat(tmp_path)] == ["b"]
    assert [(Path(r.path).name, r.code) for r in skipped] == [("a.ann", "B105"), ("c.ann", "B263")]

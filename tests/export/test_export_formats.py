"""Each format holds its text, and its own reader finds the same links in it."""

import csv
import io
import json
from collections.abc import Iterable

import pytest
from kb_files import made_kb
from tiny import needs

from spacy_bioel.errors import BioelError
from spacy_bioel.export.formats import TextFormat, format_of, writing_brat
from spacy_bioel.export.rows import Failure, LinkedText
from spacy_bioel.io.formats import read_corpus
from spacy_bioel.io.table import read_text_table
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import escape_formula, table_line, unescape_formula
from spacy_bioel.types import Candidate, Concept, Link, Mention

TEXT = "Naloxone | a\ttitle\nbreast and ovarian\r\ncancer, V600E 😀 in HeLa"
FAILED = LinkedText("c", "broken", error=Failure("E088", "too long"))
MENTIONS = (
    Mention(0, 8, "Chemical", ("MESH:D009270",)),
    Mention(19, 45, "Disease", ("C0006142", "OMIM:1")),  # a composite across a line end
    Mention(30, 45, "Disease", ("OMIM:1",)),  # within it
    Mention(47, 52, "Variant"),
    Mention(58, 62, "CellLine", ("CVCL_0030",)),
)


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> KnowledgeBase:
    concepts = [
        Concept("MESH:D009270", ("Naloxone hydrochloride", "Naloxone")),
        Concept("C0006142", ("Breast cancer",)),
        Concept("OMIM:1", ("Ovarian cancer",)),
        Concept("CVCL_0030", ("HeLa",)),
    ]
    return made_kb(tmp_path_factory.mktemp("kb"), concepts)


@pytest.fixture(scope="module")
def documents(kb) -> list[LinkedText]:
    def candidate(id: str, score: float, name: str) -> Candidate:
        return Candidate(id, score, name, "exact", kb.fingerprint)

    naloxone = candidate("MESH:D009270", 0.9, "Naloxone")
    breast = candidate("C0006142", 0.7, "Breast cancer")
    ovarian = candidate("OMIM:1", 0.6, "Ovarian cancer")
    candidates = [(naloxone, breast), (breast, ovarian), (ovarian,), (breast,), ()]
    facts = {"Variant": {"hgvs": "p.Val600Glu", "component": "p|SUB|V|600|E", "gene": None}}
    links = tuple(
        Link(m.start, m.end, m.label, m.ids, found, facts=facts.get(m.label, {}))
        for m, found in zip(MENTIONS, candidates, strict=True)
    )
    return [LinkedText("a", TEXT, links), FAILED, LinkedText(None, "")]


def written(suffix: str, documents: Iterable[LinkedText], **options: bool) -> str:
    format, out = format_of(suffix, **options), io.StringIO()
    assert isinstance(format, TextFormat)
    with format.writing(out) as write:
        for document in documents:
            write(document)
    return out.getvalue()


@pytest.mark.parametrize("suffix", [".nosuch", ".txt", "jsonl"])
def test_an_unknown_format(suffix):
    with pytest.raises(BioelError, match=r"\[B198\].*\.jsonl, "):
        format_of(suffix)
    assert format_of("") and format_of(".ndjson")  # JSON lines


def test_an_array_is_read_again(documents, tmp_path):
    path = tmp_path / "links.json"
    path.write_text(written(".json", documents[:1]), "utf8")
    (tmp_path / "links.jsonl").write_text(written(".jsonl", documents[:1]), "utf8")
    assert list(read_corpus(path)) == list(read_corpus(tmp_path / "links.jsonl"))


def test_pubtator(documents):
    assert written(".pubtator", documents) == (
        "a|t|Naloxone | a title\n"
        "a|a|breast and ovarian  cancer, V600E 😀 in HeLa\n"
        "a\t0\t8\tNaloxone\tChemical\tMESH:D009270\n"
        "a\t19\t45\tbreast and ovarian  cancer\tDisease\tC0006142|OMIM:1\n"
        "a\t30\t45\tovarian  cancer\tDisease\tOMIM:1\n"
        "a\t47\t52\tV600E\tVariant\t-\n"
        "a\t58\t62\tHeLa\tCellLine\tCVCL_0030\n"
        "\n"
        "3|t|\n3|a|\n\n"
    )


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("A title. An abstract. Its end.", "A title."),
        ("A. Title\nAn abstract.", "A. Title"),
        ("E. coli? yes", "E. coli? yes"),
        ("St. John's wort! 3 times. Then", "St. John's wort!"),
        ("", ""),
    ],
)
def test_the_title_is_the_first_line_or_sentence(text, title):
    links = (Link(0, 15, "X"),) if text.startswith("St.") else ()
    found = written(".pubtator", [LinkedText("1", text, links)]).splitlines()
    assert found[0] == f"1|t|{title}"
    assert f"{title} {found[1].removeprefix('1|a|')}".strip() == text.replace("\n", " ")


@pytest.mark.parametrize("suffix", [".pubtator", ".bioc.xml", ".bioc.json", ".jsonl", ".ann"])
def test_links_are_read_back(documents, tmp_path, suffix, caplog):
    path = tmp_path / ("out.ann" if suffix == ".ann" else "out.txt")
    if suffix == ".ann":
        with writing_brat(path) as write:
            write(documents[2])  # has the number 1, and sorts before the other
            write(documents[0])
    else:
        path.write_text(written(suffix, documents), encoding="utf8", newline="")
    found = {text.id: text for text in read_corpus(path)}
    assert len(found) == 2 and len(found["a"].text) == len(TEXT)
    assert [(m.start, m.end, m.label, m.ids) for m in found["a"].mentions] == [
        (m.start, m.end, m.label, m.ids) for m in MENTIONS
    ]
    (empty,) = (text for id, text in found.items() if id != "a")
    assert empty.mentions == () and empty.text.strip() == ""
    # JSON lines have the failed document with its error, and their reader says so.
    assert ("[W260]" in caplog.text) == (suffix == ".jsonl")


def test_bioc_has_the_linked_candidate(documents):
    (first, _) = json.loads(written(".bioc.json", documents))["documents"]
    (passage,) = first["passages"]
    assert passage["text"] == TEXT
    two = {"identifier": "C0006142|OMIM:1", "name": "Breast cancer|Ovarian cancer"}
    one = {"identifier": "OMIM:1", "name": "Ovarian cancer", "evidence": "exact"}
    assert [found["infons"] for found in passage["annotations"]][1:4] == [
        {"type": "Disease", **two, "score": "0.6", "evidence": "exact|exact"},
        {"type": "Disease", **one, "score": "0.6"},
        {"type": "Variant", "hgvs": "p.Val600Glu", "component": "p|SUB|V|600|E"},
    ]


def test_characters_that_xml_cannot_hold_are_replaced():
    text = LinkedText("\x01", "a\x00b <&> \uffff\r\nc", (Link(0, 3, "\x08"),))
    found = written(".bioc.xml", [text])
    assert "<id>\ufffd</id>" in found
    assert "<text>a\ufffdb &lt;&amp;&gt; \ufffd \nc</text>" in found
    assert '<infon key="type">\ufffd</infon>' in found


@needs("clinical")
def test_csv(documents):
    header, *rows = csv.reader(io.StringIO(written(".csv", documents), newline=""))
    assert header == (
        "document start end text label id preferred_name name score evidence".split()
        + "hgvs component gene context assertion relative".split()
    )
    assert rows == [
        ["a", "0", "8", "Naloxone", "Chemical", "MESH:D009270"]
        + ["Naloxone hydrochloride", "Naloxone", "0.9", "exact", *[""] * 6],
        ["a", "19", "45", "breast and ovarian\r\ncancer", "Disease", "C0006142|OMIM:1"]
        + ["Breast cancer|Ovarian cancer"] * 2
        + ["0.6", "exact|exact", *[""] * 6],
        ["a", "30", "45", "ovarian\r\ncancer", "Disease", "OMIM:1"]
        + ["Ovarian cancer", "Ovarian cancer", "0.6", "exact", *[""] * 6],
        ["a", "47", "52", "V600E", "Variant", *[""] * 5, "p.Val600Glu", "p|SUB|V|600|E", *[""] * 4],
        ["a", "58", "62", "HeLa", "CellLine", "CVCL_0030", *[""] * 10],
    ]  # fmt: skip


BREAKS = [
    "heart\rattack",
    "\rx\r",
    "a\n\rb",
    "a\r\nb",
    "a\nb",
    'a"\r"b',
    "a\x85\u2028\x0bb",
    "a,\tb",
]


@pytest.mark.parametrize("words", BREAKS)
def test_line_breaks_in_cells_are_read_back(tmp_path, words):
    import pandas as pd

    links = (Link(0, len(words), "Disease", ("X:1",), (Candidate("X:1", 0.5, "x\ry", "exact"),)),)
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        content = written(suffix, [LinkedText(words, words, links)], raw=True)
        rows = list(csv.reader(io.StringIO(content, newline=""), delimiter=separator))
        assert [row[:6] for row in rows[1:]] == [
            [words, "0", str(len(words)), words, "Disease", "X:1"]
        ]
        assert len({len(row) for row in rows}) == 1
        path = tmp_path / f"out{suffix}"
        path.write_bytes(content.encode())
        frame = pd.read_csv(path, sep=separator)
        assert list(frame["text"]) == list(frame["document"]) == [words]
        path.write_text(f"id{separator}text\n" + table_line(["1", words], separator), newline="")
        assert list(read_text_table(path)) == [(words, "1")]


FORMULAS = ["=1+1", "+y", "-D", "@a", "\tx", "\r=1", "'=1", "-1.5 mg", "+-1", "''-x", "-2e", "-"]
PLAIN = ["-1.5", "+3", "-2e-5", "x=1", "1-2", "'t Hooft", "'", "", " =1", "5'-=x", "-.5"]


def test_tables_have_no_formulas():
    candidate = Candidate("X:1", 0.5, "=1+1", "exact")
    one = LinkedText("@a", "=x +y", (Link(3, 5, "-D", ("X:1",), (candidate,)),))
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        row = written(suffix, [one]).splitlines()[1].replace(separator, ",")
        assert row.startswith("'@a,3,5,'+y,'-D,X:1,,'=1+1,0.5")
    assert written(".csv", [one], raw=True).splitlines()[1].startswith("@a,3,5,+y,-D,X:1,,=1+1,0.5")


def test_escapes_are_taken_away():
    for cell in FORMULAS + PLAIN:
        escaped = escape_formula(cell)
        assert unescape_formula(escaped) == cell
        assert escaped == (f"'{cell}" if cell in FORMULAS else cell)
    assert unescape_formula("'-1.5") == "-1.5"  # other programs also escape numbers


@pytest.mark.parametrize(
    ("suffix", "id", "concept", "code"),
    [
        (".pubtator", "1", "X:1,2", "B343"),
        (".bioc.xml", "1", "X:1,2", "B343"),
        (".bioc.json", "1", "X:1,2", "B343"),
        *((".pubtator", id, "X:1", "B342") for id in ("a|b", "a\tb", "a\nb")),
    ],
)
def test_ids_that_a_reader_would_divide(suffix, id, concept, code):
    with pytest.raises(BioelError, match=code):
        written(suffix, [LinkedText(id, "abc", (Link(0, 3, "X", (concept,)),))])


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("suffix", [".bioc.json", ".bioc.xml", ".html"])
def test_an_output_without_documents_is_whole(documents, suffix, n):
    found = written(suffix, documents[1:2] * n)
    assert found.endswith(
        {".html": "</html>\n", ".bioc.xml": "</collection>\n"}.get(suffix, "]}\n")
    )
    assert "broken" not in found and "E088" not in found


def test_brat(documents, tmp_path):
    with writing_brat(tmp_path / "out.ann") as write:
        for document in [*documents, LinkedText("a", "again"), LinkedText("b/c:1", "x")]:
            write(document)
    names = ["3.ann", "3.txt", "a-2.ann", "a-2.txt", "a.ann", "a.txt"]
    assert sorted(path.name for path in (tmp_path / "out.ann").iterdir()) == [
        *names,
        "b%2Fc%3A1.ann",
        "b%2Fc%3A1.txt",
    ]
    assert (tmp_path / "out.ann/a.ann").read_text(encoding="utf8") == (
        "T1\tChemical 0 8\tNaloxone\n"
        "N1\tReference T1 MESH:D009270\tNaloxone hydrochloride\n"
        "T2\tDisease 19 37;39 45\tbreast and ovarian cancer\n"
        "N2\tReference T2 UMLS:C0006142\tBreast cancer\n"
        "N3\tReference T2 OMIM:1\tOvarian cancer\n"
        "T3\tDisease 30 37;39 45\tovarian cancer\n"
        "N4\tReference T3 OMIM:1\tOvarian cancer\n"
        "T4\tVariant 47 52\tV600E\n"
        "T5\tCellLine 58 62\tHeLa\n"
        "N5\tReference T5 Cellosaurus:CVCL_0030\t\n"
    )


def test_a_folder_that_is_not_empty_stays(tmp_path):
    for path in (tmp_path, tmp_path / "note.ann"):
        (tmp_path / "note.ann").write_text("mine")
        with pytest.raises(BioelError, match=r"\[B341\]"), writing_brat(path):
            pass
        assert (tmp_path / "note.ann").read_text() == "mine"

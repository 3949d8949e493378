import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.open import BadRecord, skipping_bad
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.types import AnnotatedText, Mention

TEXT = "1|t|Renal and liver failure.\n1|a|After naïve lithium use.\n"


def read(write, content: str) -> list[AnnotatedText]:
    path = write(content)
    return list(read_pubtator(path, prefix="MESH"))


def test_mentions_of_every_kind(write):
    documents = read(
        write,
        TEXT + "1\t0\t23\tRenal and liver failure\tDisease\tD1|D2\tRenal failure|liver failure\n"
        "1\t10\t23\tliver failure\tDisease\t D2\n"
        "1\t37\t44\tlithium\tChemical\t-1\n"
        "1\tCID\tD3\tD1\n"
        "\n\n"
        "2|t|Short\r\n2|a|\r\n2\t0\t5\tShort\tDisease\tOMIM:300322+102600\r\n",
    )
    assert documents == [
        AnnotatedText(
            "1",
            "Renal and liver failure. After naïve lithium use.",
            (
                Mention(0, 23, "Disease", ("MESH:D1", "MESH:D2")),
                Mention(10, 23, "Disease", ("MESH:D2",)),
                Mention(37, 44, "Chemical"),
            ),
        ),
        AnnotatedText("2", "Short ", (Mention(0, 5, "Disease", ("OMIM:300322", "OMIM:102600")),)),
    ]


def test_a_repeated_document_is_kept_twice_and_white_space_may_differ(write):
    row = "1\t0\t23\tRenal  and liver failure\tDisease\n"  # and no ids
    first, second = read(write, f"{TEXT}\n{TEXT}{row}")
    assert (first.id, first.mentions, second.id) == ("1", (), "1")
    assert second.mentions == (Mention(0, 23, "Disease"),)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1\t0\t5\tLiver\tDisease\tD1\n", "B106.*x.txt, line 3.*'Renal'.*'Liver'"),
        ("1\t40\t400\tlithium\tChemical\tD3\n", "B105.*line 3.*40-400"),
        ("1\t-5\t5\tRenal\tDisease\tD1\n", "B105.*line 3"),
        ("1\t0\t5\tRenal\n", "B107.*line 3.*4 column"),
        ("1 0 5 Renal Disease D1\n", "B109.*line 3"),
        ("2\t0\t5\tRenal\tDisease\tD1\n", "B109.*line 3.*'1'.*'2'"),
        ("2|t|Next\n2|a|Text\n", "B109.*line 3.*blank line"),
        ("1\tO\t5\tRenal\tDisease\tD1\n", "B110.*line 3"),
        ("1\t0\t5\tRenal\tDisease\t\n", "B140.*x.txt, line 3.*-1"),
        ("\n1|t|Title only\n", r"B108.*line 4.*\|a\|"),
        ("\n1|a|Abstract only\n", r"B108.*line 4.*\|t\|"),
        ("\n1|t|Title\n1\t0\t5\tTitle\tDisease\tD1\n", r"B108.*line 5.*\|a\|"),
        ("\n1|t|Title\n2|a|Abstract\n", "B109.*line 5"),
    ],
)
def test_malformed_rows(write, rows, message):
    with pytest.raises(BioelError, match=message):
        read(write, TEXT + rows)


def test_annotations_can_be_skipped(write):
    path = write(TEXT + "1\t0\t5\tLiver\tDisease\t\n1\tnowhere\n\n2|t|Next\n2|a|Text\n")
    assert list(read_pubtator(path, annotations=False)) == [
        AnnotatedText("1", "Renal and liver failure. After naïve lithium use."),
        AnnotatedText("2", "Next Text"),
    ]
    path.write_text(TEXT + "2|t|Next\n2|a|Text\n")
    with pytest.raises(BioelError, match="B109.*line 3"):
        list(read_pubtator(path, annotations=False))


def test_warning_about_a_last_row_that_may_be_truncated(write, caplog):
    row = "1\t0\t5\tRenal\tDisease\tD00"
    assert read(write, TEXT + row)[0].mentions[0].ids == ("MESH:D00",)
    (warning,) = caplog.messages
    assert warning.startswith("[W140]") and "x.txt" in warning
    caplog.clear()
    read(write, TEXT + row + "\n")
    read(write, TEXT.rstrip("\n"))
    assert caplog.messages == []


def test_documents_that_cannot_be_read_may_be_skipped(tmp_path):
    path = tmp_path / "two.txt"
    bad = "1|t|Renal\n1|a|failure\n1\t1\t6\tRenal\tDisease\tD1\n\n"
    path.write_text(f"{bad}2|t|Renal\n2|a|\n", encoding="utf8")
    said: list[BadRecord] = []
    with skipping_bad(said.append):
        assert [text.id for text in read_pubtator(path)] == ["2"]
    (bad,) = said
    assert (bad.line, bad.code) == (1, "B106") and ", line 3: " in bad.message

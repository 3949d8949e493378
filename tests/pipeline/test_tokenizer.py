import pytest
import spacy
from tiny import blank

from spacy_bioel.corpus import read_texts, text_to_doc
from spacy_bioel.doc import Alignment


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("naloxone-induced", ["naloxone", "-", "induced"]),
        ("levodopa/carbidopa", ["levodopa", "/", "carbidopa"]),
        ("[3H]-naloxone", ["[", "3H", "]", "-", "naloxone"]),
        ("100mg of 5.5mg/kg", ["100", "mg", "of", "5", ".", "5", "mg", "/", "kg"]),
        ("for 10days, 1h", ["for", "10", "days", ",", "1", "h"]),
        ("TNF-α_x", ["TNF", "-", "α", "_", "x"]),
        ("Parkinson's", ["Parkinson", "'", "s"]),
        ("5mg_x", ["5", "mg", "_", "x"]),
        ("--a--", ["-", "-", "a", "-", "-"]),
        ("-.5mg.", ["-", ".", "5", "mg", "."]),
        ("(cancer).", ["(", "cancer", ")", "."]),
        ("cafe\u0301ine", ["cafe\u0301ine"]),
        ("", []),
        (" \n ", [" \n "]),
    ],
)
def test_tokens(text, tokens):
    assert [token.text for token in blank().make_doc(text)] == tokens


def test_it_comes_back_with_the_pipeline(tmp_path):
    nlp = blank()
    text = "a naloxone-induced [3H] 100mg"
    expected = ["a", "naloxone", "-", "induced", "[", "3H", "]", "100", "mg"]
    from_bytes = spacy.blank("en").from_bytes(nlp.to_bytes())
    nlp.to_disk(tmp_path / "nlp")
    for copy in (from_bytes, spacy.load(tmp_path / "nlp")):
        assert [token.text for token in copy.make_doc(text)] == expected


@pytest.mark.realdata
def test_bc5cdr_loses_less_than_one_mention_in_a_thousand(data_folder):
    nlp, total = blank(), Alignment()
    for name in ("CDR_TrainingSet.PubTator.txt", "CDR_DevelopmentSet.PubTator.txt"):
        (path,) = data_folder.rglob(name)
        for text in read_texts(path, prefix="MESH"):
            doc, alignment = text_to_doc(nlp, text)
            assert doc.text == text.text
            total.add(alignment)
    assert total.n == 18976
    assert len(total.lost) / total.n < 0.001

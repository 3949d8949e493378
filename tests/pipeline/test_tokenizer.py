"""The tokenizer is saved with a pipeline, and keeps the mentions of BC5CDR. Tokens: cases.yml."""

import pytest
import spacy
from tiny import blank

from spacy_bioel.corpus import read_texts, text_to_doc
from spacy_bioel.doc import Alignment


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

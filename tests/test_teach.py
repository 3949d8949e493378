"""A detector learns from others what a corpus does not annotate, and keeps what it does."""

from typing import Any

import numpy as np
import pytest
import spacy
import teach
from spacy.training import Example
from specs import parts_of

from spacy_bioel.corpus import doc_to_text, docs_to_bin, read_texts, text_to_doc
from spacy_bioel.doc import gold_spans
from spacy_bioel.mentions.model import _span_loss as _loss
from spacy_bioel.types import AnnotatedText, Mention

GENE = Mention(0, 4, "Gene", ("NCBIGene:672",))


def test_probabilities_are_kept_in_files_of_spacy(tmp_path):
    nlp = spacy.blank("en")
    text = AnnotatedText("1", "BRCA in mice", (GENE, Mention(8, 12, "Species", probability=0.25)))
    doc, _ = text_to_doc(nlp, text)
    docs_to_bin([doc]).to_disk(tmp_path / "train.spacy")
    (read,) = read_texts(tmp_path / "train.spacy")
    assert read == doc_to_text(doc) == text
    found = gold_spans(Example(nlp.make_doc(text.text), text_to_doc(nlp, read)[0]))
    assert [(span.label, span.probability) for span in found] == [("Gene", 1.0), ("Species", 0.25)]


def test_what_was_looked_for_stays():
    documents = [
        (AnnotatedText("1", "BRCA in mice", (GENE,), ("Gene",)), {"Gene"}),
        (AnnotatedText("2", "BRCA in mice", (), ("Disease",)), {"Disease"}),
        (AnnotatedText("3", "rats and p53"), set[str]()),
        (AnnotatedText("4", "unread"), set[str]()),
        (AnnotatedText("5", "too long", (), ("Gene",)), {"Gene"}),
    ]
    said: dict[str, Any] = {
        "BRCA in mice": {(0, 4, "Gene"): 0.4, (8, 12, "Species"): 0.9, (5, 7, "Species"): 0.01},
        "rats and p53": {(9, 12, "Gene"): 0.7, (0, 4, "Species"): 0.6, (0, 4, "Other"): 0.9},
    }
    taught = list(teach.with_teachers(documents, said, {"Gene", "Species", "Disease"}))
    assert [
        (t.id, t.annotates, [(m.start, m.label, m.probability) for m in t.mentions]) for t in taught
    ] == [
        ("1", ("Gene", "Species"), [(0, "Gene", 1.0), (8, "Species", 0.9)]),
        ("2", ("Disease", "Species"), [(8, "Species", 0.9)]),
        ("3", ("Disease", "Gene", "Species"), [(0, "Species", 0.6), (9, "Gene", 0.7)]),
        ("5", ("Gene",), []),
    ]


def test_the_loss_is_least_where_the_network_says_what_the_teacher_says():
    gold, likely = np.array([[0, 1, 0]]), np.array([0.25], dtype="float32")
    known = np.ones((1, 1), dtype=bool)

    def of(p: float) -> tuple[float, Any]:
        logits = np.full((1, 1, 1), np.log(p / (1 - p)), dtype="float32")
        return _loss(logits, gold, likely, known)

    assert of(0.25)[0] < min(of(0.2)[0], of(0.3)[0])
    assert of(0.25)[1].item() == pytest.approx(0, abs=1e-6)
    assert of(0.5)[1].item() == pytest.approx(0.25)


def test_the_name_of_a_taught_mixture():
    assert parts_of("bc5cdr_disease+ncbi_disease+taught") == parts_of("bc5cdr_disease+ncbi_disease")

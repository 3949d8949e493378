"""`bioel_mentions` by itself."""

import numpy as np
import pytest
from spacy.language import Language
from spacy.util import fix_random_seed
from tiny import DETECTOR, blank, examples

from spacy_bioel.errors import BioelError
from spacy_bioel.types import AnnotatedText, Mention

TEXT = AnnotatedText("1", "Lung cancer.", (Mention(0, 11, "Disease", ("X:1",)),))


def untrained(**settings) -> Language:
    nlp = blank()
    nlp.add_pipe("bioel_mentions", config=DETECTOR | settings)
    return nlp


def initialized(*texts: AnnotatedText, **settings) -> Language:
    nlp = untrained(**settings)
    data = examples(nlp, texts)
    nlp.initialize(lambda: data)
    return nlp


def test_without_training_or_gold_mentions():
    with pytest.raises(BioelError, match=r"\[B053\].*'bioel_mentions'"):
        untrained()("some text")
    with pytest.raises(BioelError, match=r"\[B051\].*'bioel_gold'"):
        initialized(AnnotatedText("1", "text"))


def test_labels():
    detector = untrained().get_pipe("bioel_mentions")
    assert [detector.add_label(label) for label in ("A", "B", "A")] == [1, 1, 0]
    assert detector.labels == ("A", "B") and detector.label_data == ["A", "B"]
    detector = initialized(TEXT).get_pipe("bioel_mentions")
    assert (detector.labels, detector.add_label("Disease")) == (("Disease",), 0)
    with pytest.raises(BioelError, match=r"\[B050\].*'Drug'.*Disease"):
        detector.add_label("Drug")


NESTED = ["Breast and ovarian cancer", "ovarian cancer"]


@pytest.mark.parametrize(
    ("settings", "spans", "ents"),
    [({"set_ents": True}, NESTED, NESTED[:1]), ({"threshold": 1.0}, [], [])],
)
def test_nested_mentions(trained, texts, settings, spans, ents):
    trained.get_pipe("bioel_mentions").cfg.update(settings)
    doc = trained("Breast and ovarian cancer in families.")
    assert [span.text for span in doc.spans["bioel"]] == spans
    assert [ent.text for ent in doc.ents] == ents


def test_labels_that_were_not_looked_for_are_not_learned_from(texts):
    detector = initialized(*texts[:2]).get_pipe("bioel_mentions")
    disease, chemical = map(detector.labels.index, ("Disease", "Chemical"))
    partly = AnnotatedText("1", "a b", (Mention(2, 3, "Disease"),), annotates=("Disease",))
    data = examples(blank(), [partly, AnnotatedText("2", "c")])
    logits = np.zeros((3, 6, 2), dtype="float32")
    logits[0, 2:] = logits[1, 1:] = logits[2, 1:] = -np.inf
    loss, gradient = detector.get_loss(data, logits)
    # Three spans of the first document with one label, one of the second with both.
    assert loss == pytest.approx(5 * np.log(2), rel=1e-5)
    assert gradient[1, 0, disease] == -0.5
    assert (gradient[:2, :2, chemical] == 0).all()
    assert (gradient[2, 0] == 0.5).all()


def test_a_label_that_nobody_looked_for():
    text = AnnotatedText("1", "a b", (Mention(2, 3, "Disease"),), annotates=("Disease",))
    nlp = blank()
    detector = nlp.add_pipe("bioel_mentions")
    data = examples(nlp, [text])
    with pytest.raises(BioelError, match=r"\[B331\] No document annotates Chemical, Gene, so"):
        detector.initialize(lambda: data, nlp=nlp, labels=["Gene", "Disease", "Chemical"])


def test_mentions_that_are_too_long_are_left_out():
    data = examples(blank(), [AnnotatedText("1", "a b c d e f g", (Mention(0, 13, "Disease"),))])
    detector = initialized(TEXT).get_pipe("bioel_mentions")
    loss, gradient = detector.get_loss(data, np.zeros((7, 6, 1), dtype="float32"))
    assert loss == pytest.approx(42 * np.log(2), rel=1e-5)
    assert (gradient == 0.5).all()


def test_updating_with_nothing():
    nlp = initialized(TEXT)
    detector = nlp.get_pipe("bioel_mentions")
    assert detector.update([]) == {"bioel_mentions": 0.0}
    empty = examples(nlp, [AnnotatedText("1", "")])
    assert detector.update(empty) == {"bioel_mentions": 0.0}
    losses = detector.update(examples(nlp, [AnnotatedText("1", ""), TEXT]))
    assert 0 < losses["bioel_mentions"] < 10


def test_matches_of_the_knowledge_base(kb, texts):
    nlp = untrained()
    detector = nlp.get_pipe("bioel_mentions")
    data = examples(nlp, texts)
    detector.initialize(lambda: data, nlp=nlp, kb=kb)
    docs = [nlp.make_doc("No"), nlp.make_doc("Renal failure, acute renal failure (ARF). ARF.")]
    batch = detector._batch(docs)
    # Tokens of both documents are counted, and the first has one.
    matched = {docs[1][start - 1 : start + width].text for start, width, _ in batch.spans.tolist()}
    assert matched == {"Renal failure", "acute renal failure", "renal failure", "ARF"}
    words = {docs[1][token - 1].text for token, _ in batch.words}
    assert {"Renal", "failure", "acute"} <= words and "ARF" not in words


def test_a_word_list_for_a_label_that_the_model_has_not_learned():
    nlp = initialized(TEXT, include={"Diseese": ["flu"]})
    with pytest.warns(UserWarning, match=r"\[W322\] .*`include`.*\['Diseese'\].* finds Disease\."):
        doc = nlp("flu")
    assert [span.label_ for span in doc.spans["bioel"] if span.text == "flu"] == ["Diseese"]


def test_line_breaks_are_not_read(trained, texts):
    text = texts[0].text

    def found(space: str) -> list[str]:
        doc = trained(text.replace(" ", space))
        return [span.text for span in doc.spans["bioel"]]

    assert found(" ")[0] == "Naloxone"
    assert [words.replace("\n", " ") for words in found("\n")] == found(" ")
    assert not [words for words in found("\n \n") if "\n" in words]
    assert trained.get_pipe("bioel_mentions").predict([trained.make_doc("\n")]) == [[]]


def test_line_breaks_are_not_read_in_training():
    wrapped = AnnotatedText("1", "Lung\ncancer.\n", TEXT.mentions)
    losses = []
    for text in (TEXT, wrapped):
        fix_random_seed(0)
        nlp = initialized(text)
        losses.append(nlp.update(examples(nlp, [text]), losses={})["bioel_mentions"])
    assert losses[0] == losses[1] > 0

"""`bioel_mentions`: labels, learning, kinds of models, names of a knowledge base, its warnings."""

from typing import Any

import numpy as np
import pytest
import spacy
from cases import table
from kb_files import made_kb
from spacy.language import Language
from spacy.training import Example
from spacy.util import fix_random_seed
from tiny import DETECTOR, TOK2VEC, blank, examples

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.gazetteer import MAX_TYPES, Gazetteer
from spacy_bioel.mentions import model as detector_models
from spacy_bioel.mentions.pipe import MentionDetector
from spacy_bioel.types import AnnotatedText, Concept, Mention

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


SMITH = "Smith has seizures."
LINKS = {"entities": [(10, 18, "Disease")], "links": {(10, 18): {"MESH:D012640": 1.0}}}


def weights_of(nlp: Language) -> bytes:
    pipes: Any = (nlp.get_pipe(name) for name in ("bioel_mentions", "bioel_linker"))
    return b"".join(pipe.model.to_bytes() for pipe in pipes)


@pytest.mark.parametrize("annotations", [LINKS, {"spans": {"sc": [(10, 18, "Disease")]}}])
def test_annotations_in_other_places(trained, annotations):
    optimizer = trained.resume_training()
    example = Example.from_dict(trained.make_doc(SMITH), annotations)
    found = "sc" if "spans" in annotations else "doc.ents"
    before = weights_of(trained)
    with pytest.warns(UserWarning) as warned:
        losses = trained.update([example], sgd=optimizer)
    messages = [str(warning.message) for warning in warned]
    for name in ("bioel_mentions", "bioel_linker"):
        says = f"[W345] {name!r} learns nothing from these examples: they have annotations in"
        assert any(m.startswith(f"{says} {found}, but no gold") for m in messages), messages
    assert losses == {"bioel_mentions": 0.0, "bioel_linker": 0.0}
    assert weights_of(trained) == before
    # As the warning says.
    reference = example.reference
    reference.spans["bioel_gold"] = list(reference.ents or reference.spans["sc"])
    losses = trained.update([example], sgd=optimizer)
    assert min(losses.values()) > 0


def test_batches_with_some_gold_and_without_any_annotation(trained, texts):
    """The pipes learn from these without a warning, which tests turn into an error."""
    optimizer = trained.resume_training()
    only_entities = Example.from_dict(trained.make_doc(SMITH), LINKS)
    assert trained.update([only_entities, *examples(trained, texts)], sgd=optimizer)
    assert trained.update([Example.from_dict(trained.make_doc(SMITH), {})], sgd=optimizer)


def test_a_label_that_the_model_does_not_have(trained):
    optimizer = trained.resume_training()
    reference = trained.make_doc(SMITH)
    reference.spans["bioel_gold"] = [reference.char_span(10, 18, "Symptom", "MESH:D012640")]
    with pytest.warns(
        UserWarning, match=r"\[W346\].*'Symptom'.*: its model has \('Chemical', 'Disease'\)"
    ):
        trained.update([Example(trained.make_doc(SMITH), reference)], sgd=optimizer)


CONCEPTS = (
    Concept("X:1", ("Disease", "Illness"), ("Disease",)),
    Concept("X:2", ("Cold", "common cold"), ("Disease", "Infection")),
    Concept("X:3", ("Heart Attack", "cold"), ("Disease",)),
    Concept("X:4", ("β-Estradiol",), ("Chemical",)),
)
# Types by frequency: Disease (bit 0), then Chemical and Infection by name; bit 63: preferred.
DISEASE, CHEMICAL, INFECTION, PREFERRED = 0, 1, 2, 63


@pytest.fixture(scope="module")
def gazetteer(tmp_path_factory) -> Gazetteer:
    return Gazetteer.from_kb(made_kb(tmp_path_factory.mktemp("kb"), CONCEPTS))


def matches(gazetteer: Gazetteer, tokens: list[str]) -> list[tuple[int, int, int]]:
    found = gazetteer.match_spans(tokens, 4, lengths=np.array([len(tokens)]))
    return list(zip(*(column.tolist() for column in found), strict=True))


@table("names matched")
def test_matched_names(gazetteer, text, place, types):
    bits = {"Disease": DISEASE, "Chemical": CHEMICAL, "Infection": INFECTION, "P": PREFERRED}
    assert matches(gazetteer, text.split(" ")) == [(*place, bits[name]) for name in types]


def test_names_in_one_token_and_without_tokens(gazetteer):
    assert matches(gazetteer, ["beta estradiol"]) == [(0, 0, CHEMICAL), (0, 0, PREFERRED)]
    assert matches(gazetteer, []) == []


def test_no_name_reaches_from_one_document_into_the_next(gazetteer):
    tokens, lengths = ["heart", "heart", "attack", "attack"], np.array([1, 0, 2, 1])
    starts, widths, _ = gazetteer.match_spans(tokens, 4, lengths=lengths)
    assert set(zip(starts.tolist(), widths.tolist(), strict=True)) == {(1, 1)}
    assert matches(gazetteer, ["heart", "attack"]) == matches(
        gazetteer, ["heart", "attack", "attack"]
    )


def test_words_of_several_names(gazetteer):
    tokens, bits = gazetteer.match_words(["a", "cold", "heart"])
    # "cold" is in "cold" and "common cold", in both the last word; "heart" is in one name only.
    assert set(tokens.tolist()) == {1}
    assert bits.tolist() == [DISEASE, INFECTION, MAX_TYPES]


SPANS = DETECTOR["model"] | {"hidden": 0}
TAGS = {"@architectures": "spacy-bioel.BioTagger.v1", "max_width": 6, "tok2vec": TOK2VEC}
KINDS: dict[str, dict[str, Any]] = {"hidden": DETECTOR["model"], "linear": SPANS, "bio": TAGS}


def make_detector(kind: str) -> MentionDetector:
    return blank().add_pipe("bioel_mentions", config={"model": KINDS[kind]})  # type: ignore[return-value]


def train(detector: MentionDetector, data: list[Example], **settings: Any) -> list[float]:
    """Initialise a detector and train it; return the loss of each update."""
    detector.initialize(lambda: data, **settings)
    optimizer = blank().create_optimizer()
    optimizer.learn_rate = 0.01
    return [detector.update(data, sgd=optimizer)[detector.name] for _ in range(60)]


@pytest.fixture(scope="module", params=["linear", "bio"])
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def detector(kind, kb, texts) -> MentionDetector:
    """A detector that knows the six documents by heart."""
    spacy.util.fix_random_seed(0)
    detector = make_detector(kind)
    data = examples(blank(), texts)
    losses = train(detector, data, kb=kb)
    assert 0 < losses[-1] < 0.1 * losses[0]
    return detector


def test_the_documents_are_found_again(detector, texts):
    is_spans = detector.model.name == "span_enumerator"
    for example in examples(blank(), texts):
        gold = {(s.start, s.end, s.label_) for s in example.reference.spans["bioel_gold"]}
        (found,) = detector.predict([example.predicted])
        missed = gold - {span[:3] for span in found}
        # Tags cannot express a mention inside another.
        assert all(any(s <= start and end <= e for s, e, *_ in found) for start, end, _ in missed)
        assert not (missed and is_spans) and len(found) + len(missed) == len(gold)


@pytest.mark.parametrize("n_tokens", [1, 25, 4096])  # that are scored together
def test_a_document_is_the_same_alone_and_in_any_batch(detector, texts, n_tokens, monkeypatch):
    docs = [blank().make_doc(text) for text in ("", *(text.text for text in texts), "", "Aspirin")]
    alone = [detector.predict([doc])[0] for doc in docs]
    assert sum(map(len, alone)) > 10
    monkeypatch.setattr(detector_models, "_TOKENS_PER_PART", n_tokens)
    for step in (1, -1):
        together = detector.predict(docs[::step])
        for spans, expected in zip(together, alone[::step], strict=True):
            assert [span[:3] for span in spans] == [span[:3] for span in expected]
            assert [p for *_, p in spans] == pytest.approx([p for *_, p in expected], abs=1e-5)


def test_tags_learn_the_longest_of_nested_mentions_and_spans_both():
    nested = (Mention(0, 25, "Disease"), Mention(11, 25, "Disease"))
    text = AnnotatedText("1", "Breast and ovarian cancer in families.", nested)
    found = {}
    for kind in ("linear", "bio"):
        spacy.util.fix_random_seed(0)
        detector = make_detector(kind)
        train(detector, examples(blank(), [text]))
        found[kind] = [span[:2] for span in detector.predict([blank().make_doc(text.text)])[0]]
    assert found == {"linear": [(0, 4), (2, 4)], "bio": [(0, 4)]}

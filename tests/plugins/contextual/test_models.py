"""Each contextual model is learnt by heart, saved, and links the same in any batch."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spacy
from contextual_pipelines import (
    NAMES,
    OVERLAPS,
    generative_nlp,
    multitask_model,
    multitask_nlp,
    naming_nlp,
    reranking_nlp,
)
from spacy.language import Language
from spacy.tokens import Doc
from tables import concepts_of
from thinc.api import Model
from tiny import (
    LISTENER,
    assert_same_links,
    blank,
    dual_nlp,
    evidence_of,
    examples,
    fleeting,
    gold_links,
    learn,
    leave_evidence,
    links,
    sharing_nlp,
    step,
    train,
    transformer,
    with_entity,
    with_linker,
)
from tokenizers import Tokenizer

from spacy_bioel.doc import add_gold, get_links, with_gold_mentions
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking import searches
from spacy_bioel.linking.given import link_gold_mentions
from spacy_bioel.linking.rescoring import Rescorer
from spacy_bioel.plugins.contextual.dual_encoder import encode_mentions
from spacy_bioel.plugins.contextual.rescoring import (
    CONTEXTUAL_FEATURES,
    contextual_model,
    rescore_pairs,
)
from spacy_bioel.plugins.evaluation.tune import tune_pipeline
from spacy_bioel.types import AnnotatedText, Concept, Mention

pytest.importorskip("transformers")
PER_TOKEN = {"per_token": True, "vocabulary": "closed"}
MULTITASK: dict[str, dict[str, Any]] = {
    "multi-task": {"hidden": 0, "one_task": False},
    "hierarchy": {"hidden": 24, "one_task": False},
    "per token": {"hidden": 0, "one_task": False} | PER_TOKEN,
    "single task": {"hidden": 0, "tasks": ["links"]} | PER_TOKEN,
}
GIVEN = {"generative", "reranker"}  # models that link mentions that are given
MODELS = ["dual", *MULTITASK, *sorted(GIVEN)]
# Links that a model may miss, because of composites and overlapping mentions.
MISSED = 4


def learn_overlaps(nlp: Language, texts: list[AnnotatedText], *, updates: int) -> list[float]:
    with pytest.warns(UserWarning, match=OVERLAPS):
        return learn(nlp, texts, updates=updates, name="bioel_linker")


@pytest.fixture(scope="module")
def load(request, kb_folder, checkpoint, texts, tmp_path_factory) -> Callable[[str], Any]:
    """Load a pipeline, trained when it is first asked for; its checkpoint is gone."""

    @cache
    def folder_of(name: str) -> Path:
        if name == "dual":
            return request.getfixturevalue("dual_folder")
        folder = tmp_path_factory.mktemp("trained")
        with fleeting(checkpoint, folder, dropout=name == "names") as bert:
            if name in MULTITASK:
                nlp = multitask_nlp(kb_folder, **MULTITASK[name])
                losses = learn_overlaps(nlp, texts, updates=60)
                assert losses[-1] < losses[0] / 4
            elif name == "names":
                train(nlp := naming_nlp(kb_folder, bert), texts, updates=12)
            else:
                settings: dict[str, Any] = {"coherence": 0.0, "entities": {"composites": None}}
                nlp = (
                    reranking_nlp(kb_folder, bert, coherence=0.0)
                    if name == "reranker"
                    else generative_nlp(kb_folder, **settings)
                )
                train(nlp, texts, updates=40)
            nlp.to_disk(folder / "trained")
        return folder / "trained"

    return lambda name: spacy.load(folder_of(name))


def given(nlp: Language, texts: list[AnnotatedText]) -> list[Doc]:
    return [with_gold_mentions(nlp.make_doc(text.text), text) for text in texts]


def inputs_of(name: str, nlp: Language, texts: list[AnnotatedText]) -> list[Any]:
    return given(nlp, texts) if name in GIVEN else [text.text for text in texts]


@pytest.mark.parametrize("name", MODELS)
def test_learns_by_heart(load, texts, name):
    nlp = load(name)
    docs = list(nlp.pipe(inputs_of(name, nlp, texts)))
    assert len(gold_links(texts) - {link for doc in docs for link in links(doc)}) <= MISSED
    types = {(t.text[m.start : m.end], m.label) for t in texts for m in t.mentions}
    spans = [span for doc in docs for span in doc.spans["bioel"]]
    assert len(types - {(span.text, span.label_) for span in spans}) <= MISSED
    # The parts of a composite are looked up by their strings.
    last = {s._.candidates[0].evidence.rpartition("+")[2] for s in spans if len(s._.cuis) == 1}
    if name == "generative":
        assert "generated" in last
    else:
        assert last == {"contextual"} or "exact+alias_table+dense+contextual" in evidence_of(docs)


@pytest.mark.parametrize("name", MODELS)
def test_same_links_from_bytes_in_any_batch_and_without_gold(load, texts, name):
    nlp = load(name)
    if name in GIVEN:
        assert_same_links(nlp, lambda nlp: given(nlp, texts))
        assert [get_links(nlp(text)) for text in ("", "  ")] == [[], []]
    else:
        inputs = [text.text for text in texts] + ["", "  ", "AKI"]
        docs = [nlp.make_doc(text) for text in inputs]
        for doc, text in zip(docs, texts, strict=False):
            add_gold(doc, text)
        assert_same_links(nlp, lambda _: inputs, docs)


@pytest.mark.parametrize("name", MULTITASK)
def test_mentions_that_are_given_are_linked_too(load, texts, name):
    nlp = load(name)
    found = list(link_gold_mentions(nlp, nlp.get_pipe("bioel_linker"), texts))
    assert [len(of_doc) for of_doc in found] == [len(text.mentions) for text in texts]
    right = sum(
        set(link.ids) == set(m.ids)
        for of_doc, text in zip(found, texts, strict=True)
        for link, m in zip(of_doc, text.mentions, strict=True)
        if m.ids
    )
    assert right >= 30


EVIDENCE = {"dual": "contextual", "generative": "generated", "multi-task": "contextual"}


@pytest.mark.parametrize("name", EVIDENCE)
def test_its_evidence_alone_and_the_rest_without_it(load, texts, name):
    nlp, evidence = load(name), EVIDENCE[name]
    inputs = lambda: inputs_of(name, nlp, texts)  # noqa: E731
    with_all = evidence_of(nlp.pipe(inputs()))
    assert any(one.endswith(f"+{evidence}") for one in with_all)
    linker = nlp.get_pipe("bioel_linker")
    linker.cfg["evidence"][evidence] = False
    without = evidence_of(nlp.pipe(inputs()))
    assert {"dense", "exact+alias_table+dense"} <= without or "dense+ngram" in without
    assert not any(evidence in one for one in without)
    leave_evidence(nlp, evidence)
    linker.cfg["nil_threshold"] = 0.0
    linker.set_kb(linker.kb)
    assert evidence_of(nlp.pipe(inputs())) == {evidence}


# Generative: names for mentions in their context.


def right(nlp: Language, texts: list[AnnotatedText]) -> list[bool]:
    """Return whether each mention with one id is linked to it."""
    found = []
    for doc, text in zip(nlp.pipe(given(nlp, texts)), texts, strict=True):
        gold = {(m.start, m.end): m.ids for m in text.mentions if len(m.ids) == 1}
        found += [
            link.ids == gold[link.start, link.end]
            for link in get_links(doc)
            if (link.start, link.end) in gold
        ]
    return found


def test_learns_by_heart_what_to_generate(load, texts):
    generative = load("generative")
    leave_evidence(generative, "generated")
    found = right(generative, texts)
    assert len(found) > 20
    assert sum(found) >= 0.85 * len(found)
    assert evidence_of(generative.pipe(given(generative, texts))) == {"generated"}


def test_tuning_fits_fusion_and_rescoring(load, texts):
    generative = load("generative")
    with pytest.warns(UserWarning, match=r"\[W323\]"):  # no pipe finds mentions in bare text
        report = tune_pipeline(generative, texts)
    assert [one.chosen.get("weights") for one in report.tuned][:2] == ["fusion", "rescoring"]
    linker: Any = generative.get_pipe("bioel_linker")
    assert linker.rescoring.direct.shape == (5,)
    assert sum(right(generative, texts)) > 20


def test_a_long_mention_is_cut_and_counted(load):
    generative = load("generative")
    words = " ".join(["renal failure"] * 30)
    doc = generative.make_doc(f"A {words} and a renal failure.")
    doc.spans["bioel"] = [doc[1:61], doc[63:65]]
    with pytest.warns(UserWarning, match=r"\[W280\] 1 of 2 mentions are longer than the 22 word"):
        found = get_links(generative(doc))
    assert [link.start for link in found] == [2, len(f"A {words} and a ")]


def generating(folder: Path, names: dict[str, Any], text: str, *spans: tuple[int, int, str]) -> Any:
    """Return a pipeline for the names of few concepts, not yet initialized, and a gold text."""
    build_kb(concepts_of(names), folder)
    mentions = tuple(Mention(start, end, "T", (id,)) for start, end, id in spans)
    return generative_nlp(folder, coherence=0.0), [AnnotatedText("1", text, mentions)]


def test_a_mention_that_contains_the_last_word_of_the_prompt(tmp_path):
    names = {
        "X:1": ("what is is", "is syndrome"),
        "X:2": ("renal failure", "failure of a kidney"),
    }
    text = "The what is is and the renal failure is."
    nlp, texts = generating(tmp_path, names, text, (4, 14, "X:1"), (23, 36, "X:2"))
    train(nlp, texts, updates=30)
    leave_evidence(nlp, "generated")
    assert right(nlp, texts) == [True, True]


def test_a_name_of_two_concepts_proposes_both(tmp_path):
    names = {"X:1": ("cold", "common cold"), "X:2": ("cold", "cold temperature")}
    nlp, texts = generating(tmp_path, names, "A cold.", (2, 6, "X:1"))
    nlp.initialize(lambda: examples(nlp, texts))
    leave_evidence(nlp, "generated")
    (doc,) = nlp.pipe(given(nlp, texts))
    assert {c.id for c in doc.spans["bioel"][0]._.candidates} == {"X:1", "X:2"}


def test_names_without_word_pieces_are_counted(tmp_path):
    names = {"X:1": ("renal failure", "renal failure of a kidney"), "X:2": ("\u814e",)}
    text = "A renal failure of a kidney."
    nlp, texts = generating(tmp_path / "kb", names, text, (2, 15, "X:1"))
    nlp.initialize(lambda: examples(nlp, texts))
    linker: Any = nlp.get_pipe("bioel_linker")
    pieces = linker.model.get_ref("generator").attrs["pieces"]
    linker.encode_kb(linker.kb)  # the vocabulary has this character, because it is a name
    assert "\u814e" in Tokenizer.from_str(pieces.tokenizer.to_str()).get_vocab()
    build_kb(concepts_of(names | {"X:3": ("\u5fc3",)}), tmp_path / "other")
    linker.set_kb(tmp_path / "other")
    message = r"\[W281\] 1 of 4 names .* 1 concepts have no other name"
    with pytest.warns(UserWarning, match=message):
        linker.encode_kb(tmp_path / "other")


def test_a_large_knowledge_base_needs_its_trie(load, texts, kb_folder, tmp_path, monkeypatch):
    generative = load("generative")
    KnowledgeBase.open(kb_folder).save_to(tmp_path / "kb")
    monkeypatch.setattr(searches, "ENCODE_ON_LOAD", 5)
    linker: Any = generative.get_pipe("bioel_linker")
    searches.FrozenEncoder.of(linker.encoder).write(KnowledgeBase.open(tmp_path / "kb"))
    linker.set_kb(tmp_path / "kb")
    with pytest.raises(BioelError, match=r"\[B281\].*bioel kb encode"):
        list(generative.pipe(given(generative, texts)))
    linker.encode_kb(tmp_path / "kb")
    linker.set_kb(tmp_path / "kb")
    assert sum(right(generative, texts)) > 20
    # The copy that is saved with the pipeline has it too.
    generative.to_disk(tmp_path / "saved")
    assert len(list((tmp_path / "saved/bioel_linker/kb/tries").iterdir())) == 1
    assert sum(right(spacy.load(tmp_path / "saved"), texts)) > 20


@pytest.mark.parametrize("architecture", ["reranker", "generative"])
def test_the_name_encoder_is_not_trained(kb_folder, checkpoint, texts, architecture):
    is_reranker = architecture == "reranker"
    nlp = reranking_nlp(kb_folder, checkpoint) if is_reranker else generative_nlp(kb_folder)
    optimizer = nlp.initialize(lambda: examples(nlp, texts))
    linker = nlp.get_pipe("bioel_linker")
    before = linker.generator.encoder.encode(["renal failure"]).tolist()
    losses = nlp.update(examples(nlp, texts), sgd=optimizer)
    assert losses["bioel_linker"] > 0.1
    assert linker.generator.encoder.encode(["renal failure"]).tolist() == before
    without_gold = examples(nlp, [AnnotatedText("1", "Nothing here.", ())])
    assert nlp.update(without_gold, sgd=optimizer)["bioel_linker"] == 0.0


# A dual encoder, which may share a transformer with the detector.


def mention_vectors(linker: Any, docs: list[Doc]) -> np.ndarray:
    return encode_mentions(linker.model, linker.generator, linker.find(docs))


@pytest.mark.slow
def test_mentions_encoded_one_by_one(kb_folder, checkpoint, texts, tmp_path):
    """The linker has a separate transformer, which is saved with it."""
    nlp = dual_nlp(
        kb_folder, checkpoint, model={"collective": False, "tok2vec": transformer(checkpoint)}
    )
    losses = learn(nlp, texts, updates=25, name="bioel_linker")
    assert losses[-1] < max(losses) / 4  # the first negatives are easier
    nlp.to_disk(tmp_path / "trained")
    again = spacy.load(tmp_path / "trained")
    long = texts[0].text + " Nothing more is known." * 40
    inputs = [texts[1].text, long, ""]
    docs = [nlp.make_doc(text) for text in inputs]
    for doc in docs[:2]:
        doc.spans["bioel"] = [doc[2:4], doc[len(doc) // 2 : len(doc) // 2 + 1]]
    linker, copy = (pipe.get_pipe("bioel_linker") for pipe in (nlp, again))
    found = mention_vectors(linker, docs)
    assert found.shape == (4, 32)
    stored = mention_vectors(copy, docs)
    assert np.abs(stored - found).max() < 1e-5
    # Text beyond the context of a mention has no effect.
    doc = nlp.make_doc(texts[0].text + " Nothing more is known." * 39)
    doc.spans["bioel"] = [doc[2:4]]
    shorter = mention_vectors(linker, [doc])
    assert np.abs(shorter - found[2]).max() < 1e-5


# Multi-task models, which find, type and link by themselves.


def test_closed_vocabulary_alone(load, texts):
    """As published: the most probable class, whatever its names in the knowledge base."""
    multi = load("multi-task")
    linker = multi.get_pipe("bioel_linker")
    linker.model.attrs["vocabulary"] = "closed"
    leave_evidence(multi, "contextual")
    linker.cfg["nil_threshold"] = 0.0
    classes = set(linker.model.attrs["inventory"].classes)
    docs = list(multi.pipe(text.text for text in texts))
    spans = [span for doc in docs for span in doc.spans["bioel"]]
    assert {span._.cui for span in spans} <= classes
    gold = {(t.text[m.start : m.end], m.ids) for t in texts for m in t.mentions if len(m.ids) == 1}
    found = {(span.text, span._.cuis) for span in spans}
    assert len(gold & found) >= len(gold) - 4
    assert evidence_of(docs) == {"contextual"}


def test_open_vocabulary_links_to_a_concept_without_a_mention(kb_folder, kb, texts):
    """Before training, the vector of a mention is that of its string."""
    multi = multitask_nlp(kb_folder, hidden=0)
    learn_overlaps(multi, texts, updates=0)
    classes = multi.get_pipe("bioel_linker").model.attrs["inventory"].classes
    unseen = [row for row in range(len(kb)) if kb.ids[row] not in classes]
    docs = [multi.make_doc(kb.preferred_name(row)) for row in unseen]
    for doc in docs:
        doc.spans["bioel"] = [doc[:]]
    linker = multi.get_pipe("bioel_linker")
    linker.cfg["mentions"] = "spans"
    leave_evidence(multi, "contextual")
    found = [doc.spans["bioel"][0]._.candidates[0].id for doc in linker.pipe(docs)]
    right = sum(id_ == kb.ids[row] for id_, row in zip(found, unseen, strict=True))
    assert right == len(unseen) == 14


def test_one_task_alone_is_learnt_at_a_time(kb_folder, checkpoint, texts):
    """The transformer learns from linking alone."""
    nlp = sharing_nlp(checkpoint)
    nlp.remove_pipe("bioel_mentions")
    model = multitask_model(tok2vec=LISTENER, hidden=8, one_task=True)
    nlp = with_linker(nlp, kb_folder, model, mentions="model")
    learn_overlaps(nlp, texts, updates=1)
    linker, shim = nlp.get_pipe("bioel_linker"), nlp.get_pipe("tok2vec").model.shims[0]
    seen = {}
    for task in ("mentions", "types", "links"):
        linker._training._random = SimpleNamespace(
            choice=lambda tasks, task=task: tasks[tasks.index(task)],
            integers=lambda low, high, size: np.full(size, low),
        )
        shim._model.zero_grad()
        nlp.update(examples(nlp, texts), sgd=False)
        gradients = [p.grad for p in shim._model.parameters() if p.grad is not None]
        seen[task] = any(gradient.any() for gradient in gradients)
    assert seen == {"mentions": False, "types": False, "links": True}


def test_tasks_that_are_not_learnt(kb_folder, texts):
    """Mentions are found, but neither typed nor linked."""
    spacy.util.fix_random_seed(0)
    nlp = multitask_nlp(kb_folder, hidden=0, tasks=["mentions"], vocabulary="closed")
    learn_overlaps(nlp, texts, updates=40)
    leave_evidence(nlp, "contextual")
    docs = list(nlp.pipe(text.text for text in texts))
    spans = [span for doc in docs for span in doc.spans["bioel"]]
    assert len(spans) > 25
    assert {(span.label_, span._.cui, span._.candidates) for span in spans} == {
        ("Mention", None, ())
    }


def test_a_type_and_a_concept_that_training_has_not(kb_folder, texts):
    """They have no loss."""
    nlp = multitask_nlp(kb_folder, hidden=0)
    learn_overlaps(nlp, texts, updates=2)
    mentions = (Mention(0, 4, "Other", ("MESH:D006073",)), Mention(9, 12, "Other", ()))
    new = AnnotatedText("x", "Gout and AKI.", mentions)
    optimizer = nlp.create_optimizer()
    assert step(nlp, [new], optimizer)["bioel_linker"] < 100
    assert step(nlp, [AnnotatedText("y", "", ())], optimizer)["bioel_linker"] == 0.0


def test_documents_without_token_vectors_for_a_multi_task_model(kb_folder, checkpoint, texts):
    nlp = sharing_nlp(checkpoint)
    nlp.remove_pipe("bioel_mentions")
    nlp = with_linker(nlp, kb_folder, multitask_model(tok2vec=LISTENER), mentions="model")
    with pytest.raises(BioelError, match=r"\[B053\]"):
        nlp.get_pipe("bioel_linker")(nlp.make_doc("AKI"))
    learn_overlaps(nlp, texts, updates=1)
    with pytest.raises(BioelError, match=r"\[B174\]"):
        nlp.get_pipe("bioel_linker")(nlp.make_doc("AKI"))


@pytest.mark.parametrize(
    ("is_dual", "model", "code"),
    [
        (True, {"collective": False}, "B177"),  # a listener cannot encode one by one
        (True, {"pooling": "last"}, r"B175\].*'last'"),
        (False, {"tasks": ["links", "mentions"]}, "B300"),
        (False, {"tasks": ["types"]}, "B300"),
        (False, {"tasks": ["mentions"]}, "B300"),  # an open vocabulary without links
        (False, {"vocabulary": "ajar"}, "B300"),
        (False, {"per_token": True}, "B300"),
        (False, {"tasks": ["links"]}, r"B301\].*multitask"),
        (False, {"@architectures": "spacy-bioel.ResCNN.v1"}, r"B301\].*rescnn"),
    ],
)
def test_settings_that_do_not_go_together(kb_folder, checkpoint, is_dual, model, code):
    with pytest.raises(BioelError, match=rf"\[{code}"):
        if is_dual:
            dual_nlp(kb_folder, checkpoint, model=model)
        else:
            whole = model if "@architectures" in model else multitask_model(**model)
            with_linker(blank(), kb_folder, whole, mentions="model")


def test_documents_that_annotate_different_labels_are_refused(kb_folder):
    nlp = multitask_nlp(kb_folder)
    flu = AnnotatedText("1", "flu", (Mention(0, 3, "Disease"),))
    data = examples(nlp, [replace(flu, annotates=("Disease",)), replace(flu, id="2")])
    with pytest.raises(BioelError, match=r"\[B332\] .*\(Disease; all\)"):
        nlp.initialize(lambda: data)


# A transformer as name encoder.


def test_training_changes_the_encoder_and_links_use_it(load, checkpoint, kb_folder, texts):
    nlp = load("names")
    linker = nlp.get_pipe("bioel_linker")
    untrained = naming_nlp(kb_folder, checkpoint)
    untrained.initialize(lambda: examples(untrained, texts))
    synonyms = ["aspirin", "acetylsalicylic acid"]
    before, after = (
        float(np.prod(pipe.generator.encoder.encode(synonyms), axis=0).sum())
        for pipe in (untrained.get_pipe("bioel_linker"), linker)
    )
    assert after > before + 0.05
    assert linker.fingerprint != untrained.get_pipe("bioel_linker").fingerprint
    linker.cfg["evidence"]["exact"] = False  # else names are not searched
    doc = nlp.make_doc("Aspirine.")
    doc.spans["bioel"] = [doc.char_span(0, 8, label="Chemical")]
    doc = linker(doc)
    assert [cui for _, cui in links(doc)] == ["MESH:D001241"]
    assert "dense" in doc.spans["bioel"][0]._.candidates[0].evidence


# A custom rescorer, which only its architecture has to name.


class PreferMentioned(Rescorer):
    """Rescorer that prefers concepts whose preferred name occurs in the document."""

    features = CONTEXTUAL_FEATURES
    is_ready = True
    proposes = False

    def score(self, generator, batch):
        def score(mention, concept):
            docs = [batch.spans[i].doc.text for i in mention]
            names = [generator.kb.preferred_name(row) for row in concept.tolist()]
            return np.array([float(n in text) for n, text in zip(names, docs, strict=True)])

        return rescore_pairs(generator.kb, batch.candidates, score, temperature=0.1)


@spacy.registry.architectures("test.Mentioned.v1")
def build(names: Model) -> Model:
    return contextual_model("mentioned", PreferMentioned, {"names": names})


def test_a_custom_rescorer(tmp_path):
    build_kb([Concept("X:1", ("flu", "cold")), Concept("X:2", ("low heat", "cold"))], tmp_path)
    nlp = with_linker(
        spacy.blank("en"),
        tmp_path,
        {"@architectures": "test.Mentioned.v1", "names": NAMES},
        mentions="ents",
        evidence={"dense": False},
    )
    linker = nlp.get_pipe("bioel_linker")
    for text, id in (("Is it flu, this cold?", "X:1"), ("The cold is low heat.", "X:2")):
        doc = linker(with_entity(nlp, text, "cold"))
        assert [link.ids for link in get_links(doc)] == [(id,)]
        assert get_links(doc)[0].candidates[0].evidence.endswith("contextual")

"""`bioel_linker` with a multi-task model, which finds, types and links by itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
from spacy.language import Language
from test_dual_encoder import with_gold
from tiny import (
    DETECTOR,
    LINKER,
    LISTENER,
    TOK2VEC,
    assert_same_links,
    blank,
    evidence_of,
    examples,
    gold_links,
    learn,
    leave_evidence,
    links,
    sharing_nlp,
    step,
    with_linker,
)

from spacy_bioel.errors import BioelError
from spacy_bioel.evaluation.run import link_gold_mentions
from spacy_bioel.types import AnnotatedText, Mention

PER_TOKEN = {"per_token": True, "vocabulary": "closed"}
VARIANTS: dict[str, dict[str, Any]] = {
    "multi-task": {"hidden": 0, "one_task": False},
    "hierarchy": {"hidden": 24, "one_task": False},
    "per token": {"hidden": 0, "one_task": False} | PER_TOKEN,
    "single task": {"hidden": 0, "tasks": ["links"]} | PER_TOKEN,
}
# Links that each variant may miss, because of composites and overlapping mentions.
MISSED = 4
OVERLAPS = r"\[W300\] 2 of 36 gold mentions"


def multitask_nlp(kb: Path, **settings: Any) -> Language:
    """Make an untrained linker that finds its mentions. settings: Settings of the architecture."""
    return with_linker(blank(), kb, multitask_model(**settings), mentions="model")


def multitask_model(**settings: Any) -> dict[str, Any]:
    return {
        "@architectures": "spacy-bioel.HierarchicalLinker.v1",
        "tok2vec": TOK2VEC,
        "names": {"@architectures": "spacy-bioel.ResCNN.v1"} | LINKER["model"],
        "layers": 1,
        "dropout": 0.0,
        "max_width": DETECTOR["model"]["max_width"],
    } | settings


@pytest.fixture(scope="module")
def folders(kb_folder, texts, tmp_path_factory) -> dict[str, Path]:
    """A trained pipeline of each variant."""
    found = {}
    for name, settings in VARIANTS.items():
        spacy.util.fix_random_seed(0)
        nlp = multitask_nlp(kb_folder, **settings)
        with pytest.warns(UserWarning, match=OVERLAPS):
            losses = learn(nlp, texts, updates=60, name="bioel_linker")
        assert losses[-1] < losses[0] / 4
        found[name] = tmp_path_factory.mktemp("multitask") / "model"
        nlp.to_disk(found[name])
    return found


@pytest.fixture(params=list(VARIANTS))
def variant(request) -> str:
    return request.param


@pytest.fixture
def trained(folders, variant) -> Language:
    return spacy.load(folders[variant])


@pytest.fixture
def multi(folders) -> Language:
    return spacy.load(folders["multi-task"])


def test_learns_by_heart(trained, texts):
    docs = list(trained.pipe(t.text for t in texts))
    found = {link for doc in docs for link in links(doc)}
    assert len(gold_links(texts) - found) <= MISSED
    types = {(t.text[m.start : m.end], m.label) for t in texts for m in t.mentions}
    labels = {(span.text, span.label_) for doc in docs for span in doc.spans["bioel"]}
    assert len(types - labels) <= MISSED
    assert "exact+alias_table+dense+contextual" in evidence_of(docs)


def test_same_links_from_bytes_in_any_batch_and_without_gold(trained, texts):
    inputs = [text.text for text in texts] + ["", "  ", "AKI"]
    assert_same_links(trained, lambda _: inputs, with_gold(trained, inputs, texts))


def test_given_mentions_are_linked_too(trained, texts):
    given = list(link_gold_mentions(trained, trained.get_pipe("bioel_linker"), texts))
    assert [len(of_doc) for of_doc in given] == [len(text.mentions) for text in texts]
    right = sum(
        set(link.ids) == set(m.ids)
        for of_doc, text in zip(given, texts, strict=True)
        for link, m in zip(of_doc, text.mentions, strict=True)
        if m.ids
    )
    assert right >= 30


def test_closed_vocabulary_alone(multi, texts):
    """As published: the most probable class, whatever its names in the knowledge base."""
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
    with pytest.warns(UserWarning, match=OVERLAPS):
        learn(multi, texts, updates=0, name="bioel_linker")
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
    with pytest.warns(UserWarning, match=OVERLAPS):
        learn(nlp, texts, updates=1, name="bioel_linker")
    linker, shim = nlp.get_pipe("bioel_linker"), nlp.get_pipe("tok2vec").model.shims[0]
    seen = {}
    for task in ("mentions", "types", "links"):
        linker._training._random = FixedTask(task)
        shim._model.zero_grad()
        nlp.update(examples(nlp, texts), sgd=False)
        gradients = [p.grad for p in shim._model.parameters() if p.grad is not None]
        seen[task] = any(gradient.any() for gradient in gradients)
    assert seen == {"mentions": False, "types": False, "links": True}


class FixedTask:
    """Random generator that always draws the same task."""

    def __init__(self, task: str) -> None:
        self.task = task

    def choice(self, tasks: list[str]) -> str:
        assert self.task in tasks
        return self.task

    def integers(self, low: int, high: int, size: int) -> np.ndarray:
        return np.full(size, low)


def test_tasks_that_are_not_learnt(kb_folder, texts):
    """Mentions are found, but neither typed nor linked."""
    spacy.util.fix_random_seed(0)
    nlp = multitask_nlp(kb_folder, hidden=0, tasks=["mentions"], vocabulary="closed")
    with pytest.warns(UserWarning, match=OVERLAPS):
        learn(nlp, texts, updates=40, name="bioel_linker")
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
    with pytest.warns(UserWarning, match=OVERLAPS):
        losses = learn(nlp, texts, updates=2, name="bioel_linker")
    new = AnnotatedText(
        "x",
        "Gout and AKI.",
        (Mention(0, 4, "Other", ("MESH:D006073",)), Mention(9, 12, "Other", ())),
    )
    optimizer = nlp.create_optimizer()
    assert step(nlp, [new], optimizer)["bioel_linker"] < 100
    assert step(nlp, [AnnotatedText("y", "", ())], optimizer)["bioel_linker"] == 0.0
    assert len(losses) == 2


def test_documents_without_token_vectors(kb_folder, checkpoint, texts):
    nlp = sharing_nlp(checkpoint)
    nlp.remove_pipe("bioel_mentions")
    nlp = with_linker(nlp, kb_folder, multitask_model(tok2vec=LISTENER), mentions="model")
    with pytest.raises(BioelError, match=r"\[B053\]"):
        nlp.get_pipe("bioel_linker")(nlp.make_doc("AKI"))
    with pytest.warns(UserWarning, match=OVERLAPS):
        learn(nlp, texts, updates=1, name="bioel_linker")
    with pytest.raises(BioelError, match=r"\[B174\]"):
        nlp.get_pipe("bioel_linker")(nlp.make_doc("AKI"))


@pytest.mark.parametrize(
    "settings",
    [
        {"tasks": ["links", "mentions"]},
        {"tasks": ["types"]},
        {"tasks": ["mentions"]},  # an open vocabulary without links
        {"vocabulary": "ajar"},
        {"per_token": True},
    ],
)
def test_settings_that_do_not_go_together(kb_folder, settings):
    with pytest.raises(BioelError, match=r"\[B300\]"):
        multitask_nlp(kb_folder, **settings)


def test_a_model_that_finds_nothing(kb_folder):
    with pytest.raises(BioelError, match=r"\[B301\].*rescnn"):
        with_linker(
            blank(), kb_folder, {"@architectures": "spacy-bioel.ResCNN.v1"}, mentions="model"
        )
    with pytest.raises(BioelError, match=r"\[B301\].*multitask"):
        multitask_nlp(kb_folder, tasks=["links"])


def test_documents_that_annotate_different_labels_are_refused(kb_folder):
    nlp = multitask_nlp(kb_folder)
    data = examples(
        nlp,
        [
            AnnotatedText("1", "flu", (Mention(0, 3, "Disease"),), annotates=("Disease",)),
            AnnotatedText("2", "flu", (Mention(0, 3, "Disease"),)),
        ],
    )
    with pytest.raises(BioelError, match=r"\[B332\] .*\(Disease; all\)"):
        nlp.initialize(lambda: data)

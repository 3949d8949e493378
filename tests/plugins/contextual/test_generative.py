"""`bioel_linker` with an encoder-decoder, which generates names for mentions in their context."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from tiny import (
    LINKER,
    assert_same_links,
    blank,
    evidence_of,
    examples,
    leave_evidence,
    train,
    with_linker,
)
from tokenizers import Tokenizer

from spacy_bioel.cli.evaluate import require_extra
from spacy_bioel.doc import get_links, with_gold_mentions
from spacy_bioel.errors import BioelError
from spacy_bioel.evaluation.tune import tune_pipeline
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import AnnotatedText, Concept, Mention

pytest.importorskip("transformers")


def generative_nlp(kb: Path, generator: dict[str, Any] | None = None, **settings: Any) -> Language:
    seq2seq = {
        "@architectures": "spacy-bioel.Seq2Seq.v1",
        "layers": 1,
        "width": 64,
        "vocabulary": 400,
        "max_pieces": 24,
    } | (generator or {})
    names = {"@architectures": "spacy-bioel.ResCNN.v1"} | LINKER["model"]
    model = {
        "@architectures": "spacy-bioel.GenerativeLinker.v1",
        "names": names,
        "generator": seq2seq,
    }
    return with_linker(blank(), kb, model, training={"mentions": 64}, **settings)


@pytest.fixture(scope="module")
def saved(kb_folder, texts, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("generative") / "trained"
    spacy.util.fix_random_seed(0)
    nlp = generative_nlp(kb_folder, coherence=0.0, entities={"composites": None})
    train(nlp, texts, updates=40)
    nlp.to_disk(folder)
    return folder


@pytest.fixture
def generative(saved) -> Language:
    return spacy.load(saved)


def given(nlp: Language, texts: list[AnnotatedText]) -> list:
    return [with_gold_mentions(nlp.make_doc(text.text), text) for text in texts]


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


def test_learns_by_heart_what_to_generate(generative, texts):
    leave_evidence(generative, "generated")
    found = right(generative, texts)
    assert len(found) > 20
    assert sum(found) >= 0.85 * len(found)
    assert evidence_of(generative.pipe(given(generative, texts))) == {"generated"}


def test_its_package_asks_for_transformers(generative):
    require_extra(generative)
    assert generative.meta["requirements"] == ["spacy-bioel[transformers]>=0.1.0,<0.2.0"]


def test_generated_candidates_are_combined_with_string_candidates(generative, texts):
    evidence = evidence_of(generative.pipe(given(generative, texts)))
    assert {"exact+alias_table+dense+ngram+generated", "generated"} & evidence
    assert {"dense", "dense+ngram"} & evidence  # candidates that were not generated
    found = right(generative, texts)
    assert sum(found) >= 0.85 * len(found)
    generative.get_pipe("bioel_linker").cfg["evidence"]["generated"] = False
    evidence = evidence_of(generative.pipe(given(generative, texts)))
    assert evidence and not any("generated" in one for one in evidence)


def test_same_links_from_bytes_and_in_any_batch(generative, texts):
    assert_same_links(generative, lambda nlp: given(nlp, texts))
    assert [get_links(generative(text)) for text in ("", "  ")] == [[], []]


def test_the_trie_is_kept_until_there_is_another_knowledge_base(generative):
    linker: Any = generative.get_pipe("bioel_linker")
    first = linker.generator
    trie = linker.rescorer.trie(first)
    assert trie.leaves.tolist() and linker.rescorer.trie(first) is trie
    linker.cfg["max_candidates"] = 2
    assert linker.generator is not first
    assert linker.rescorer.trie(linker.generator) is trie
    linker.set_kb(linker.kb.path)
    again = linker.rescorer.trie(linker.generator)
    assert again is not trie and again.leaves.tolist() == trie.leaves.tolist()


def test_tuning_fits_fusion_and_rescoring(generative, texts):
    with pytest.warns(UserWarning, match=r"\[W323\]"):  # no pipe finds mentions in bare text
        report = tune_pipeline(generative, texts)
    assert [one.chosen.get("weights") for one in report.tuned][:2] == ["fusion", "rescoring"]
    linker: Any = generative.get_pipe("bioel_linker")
    assert linker.rescoring.direct.shape == (5,)
    assert sum(right(generative, texts)) > 20


def test_a_long_mention_is_cut_and_counted(generative):
    words = " ".join(["renal failure"] * 30)
    doc = generative.make_doc(f"A {words} and a renal failure.")
    doc.spans["bioel"] = [doc[1:61], doc[63:65]]
    with pytest.warns(UserWarning, match=r"\[W280\] 1 of 2 mentions are longer than the 22 word"):
        found = get_links(generative(doc))
    assert [link.start for link in found] == [2, len(f"A {words} and a ")]


def test_a_mention_that_contains_the_last_word_of_the_prompt(tmp_path):
    concepts = [
        Concept("X:1", ("what is is", "is syndrome"), ()),
        Concept("X:2", ("renal failure", "failure of a kidney"), ()),
    ]
    build_kb(concepts, tmp_path / "kb")
    text = "The what is is and the renal failure is."
    mentions = (Mention(4, 14, "T", ("X:1",)), Mention(23, 36, "T", ("X:2",)))
    texts = [AnnotatedText("1", text, mentions)]
    nlp = generative_nlp(tmp_path / "kb", coherence=0.0)
    train(nlp, texts, updates=30)
    leave_evidence(nlp, "generated")
    assert right(nlp, texts) == [True, True]


def test_a_name_of_two_concepts_proposes_both(tmp_path):
    concepts = [
        Concept("X:1", ("cold", "common cold"), ()),
        Concept("X:2", ("cold", "cold temperature"), ()),
    ]
    build_kb(concepts, tmp_path / "kb")
    nlp = generative_nlp(tmp_path / "kb", coherence=0.0)
    texts = [AnnotatedText("1", "A cold.", (Mention(2, 6, "T", ("X:1",)),))]
    nlp.initialize(lambda: examples(nlp, texts))
    leave_evidence(nlp, "generated")
    (doc,) = nlp.pipe(given(nlp, texts))
    assert {c.id for c in doc.spans["bioel"][0]._.candidates} == {"X:1", "X:2"}


def test_names_without_word_pieces_are_counted(tmp_path):
    concepts = [
        Concept("X:1", ("renal failure", "renal failure of a kidney"), ()),
        Concept("X:2", ("\u814e",), ()),
    ]
    build_kb(concepts, tmp_path / "kb")
    text = "A renal failure of a kidney."
    texts = [AnnotatedText("1", text, (Mention(2, 15, "T", ("X:1",)),))]
    nlp = generative_nlp(tmp_path / "kb")
    nlp.initialize(lambda: examples(nlp, texts))
    linker: Any = nlp.get_pipe("bioel_linker")
    pieces = linker.model.get_ref("generator").attrs["pieces"]
    vocabulary = Tokenizer.from_str(pieces.tokenizer.to_str())
    linker.encode_kb(linker.kb)  # the vocabulary has this character, because it is a name
    tokens = vocabulary.get_vocab()
    assert "\u814e" in tokens
    other = build_kb([*concepts, Concept("X:3", ("\u5fc3",), ())], tmp_path / "other")
    assert other is not None
    linker.set_kb(tmp_path / "other")
    message = r"\[W281\] 1 of 4 names .* 1 concepts have no other name"
    with pytest.warns(UserWarning, match=message):
        linker.encode_kb(tmp_path / "other")


def test_a_large_knowledge_base_needs_its_trie(generative, texts, kb_folder, tmp_path, monkeypatch):
    from spacy_bioel.kb.knowledge_base import KnowledgeBase
    from spacy_bioel.linking import searches

    KnowledgeBase.open(kb_folder).save_to(tmp_path / "kb")
    monkeypatch.setattr(searches, "ENCODE_ON_LOAD", 5)
    linker: Any = generative.get_pipe("bioel_linker")
    from spacy_bioel.linking.searches import FrozenEncoder

    FrozenEncoder.of(linker.encoder).write(KnowledgeBase.open(tmp_path / "kb"))
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

"""The starter links a Doc that was changed as it links a new Doc with the same tokens."""

import os
import random
import subprocess
import sys
from itertools import islice
from typing import Any

import pytest
from spacy.language import Language
from spacy.tokens import Doc
from tiny import needs

import spacy_bioel
from spacy_bioel.doc import get_links
from spacy_bioel.found import FoundSpans
from spacy_bioel.io.pubtator import read_pubtator

TEXTS = [
    "Naloxone reverses the antihypertensive effect of clonidine. In unanesthetized rats (SHR), "
    "naloxone (NX) did not change blood pressure, and NX was not toxic.",
    "BRAF V600E is common in melanoma. Mice with Brca1 and Trp53 mutations developed breast and "
    "ovarian tumours; HeLa cells did not.",
    "Pt with CKD3 and HTN, denies SOB. K 6.2, Na 128. PE: no edema. Mother had DM2. ",
    "TP53, EGFR (c.2573T>G) and interleukin-6 (IL-6) in human lung adenocarcinoma, E. coli sepsis.",
]
NAMES = ["starter", pytest.param("clinical", marks=needs("clinical"))]


@pytest.fixture(scope="module")
def starter() -> Language:
    return spacy_bioel.load()


@pytest.fixture(scope="module")
def clinical() -> Language:
    return spacy_bioel.load(preset="clinical")


def run(nlp: Language, doc: Doc) -> Doc:
    for _, pipe in nlp.pipeline:
        doc = pipe(doc)
    return doc


def copy_of_tokens(doc: Doc) -> Doc:
    words, spaces = [t.text for t in doc], [bool(t.whitespace_) for t in doc]
    return Doc(doc.vocab, words=words, spaces=spaces)


def retokenize(doc: Doc, chance: random.Random) -> None:
    """Merge some tokens, which may be mentions or cut through them, and split one."""
    starts = sorted(chance.sample(range(0, len(doc) - 3, 3), max(1, len(doc) // 12)))
    with doc.retokenize() as retokenizer:
        for start in starts:
            retokenizer.merge(doc[start : start + chance.choice((2, 3))])
    word = max(doc, key=lambda token: len(token) * token.is_alpha)
    with doc.retokenize() as retokenizer:
        retokenizer.split(word, [word.text[:2], word.text[2:]], heads=[word, word])


def clear(doc: Doc) -> None:
    doc.spans.clear()
    doc.ents = []


def everything(doc: Doc) -> list[tuple[Any, ...]]:
    links = [(x, [c.score for c in x.candidates], x.facts) for x in get_links(doc)]
    return [*links, *((ent.start, ent.end, ent.label_, ent.kb_id_) for ent in doc.ents)]


def check(nlp: Language, text: str, seed: int) -> None:
    chance, doc = random.Random(seed), nlp(text)
    for _ in range(2):  # a Doc that is changed a second time must not remember the first
        retokenize(doc, chance)
        clear(doc)
        again, fresh = run(nlp, doc), run(nlp, copy_of_tokens(doc))
        assert everything(again) == everything(fresh), f"seed {seed}: {text[:80]}"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_changed_doc_is_linked_like_a_fresh_one(request, name, text):
    nlp = request.getfixturevalue(name)
    assert len(get_links(nlp(text))) > 1
    for seed in range(3):
        check(nlp, text, seed)


@pytest.mark.realdata
@pytest.mark.parametrize("name", NAMES)
def test_sixty_abstracts(request, name, data_folder):
    nlp = request.getfixturevalue(name)
    (path,) = data_folder.rglob("CDR_DevelopmentSet.PubTator.txt*")
    texts = list(islice(read_pubtator(path, annotations=False), 60))
    assert len(texts) == 60
    for seed, text in enumerate(texts):
        check(nlp, text.text, seed)


@needs("clinical")
def test_shorthand_of_a_batch_belongs_to_its_doc(clinical):
    """Linking that failed between two steps leaves nothing behind for the same Doc."""
    notes = clinical.get_pipe("bioel_linker").generator.rules.rules
    (rules,) = [one for one in notes.values() if type(one).__name__ == "Notes"]
    doc = clinical.make_doc("CKD3 and K 6.2 today")
    rules.propose([doc], [FoundSpans(doc)])
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    again, fresh = run(clinical, doc), run(clinical, copy_of_tokens(doc))
    assert everything(again) == everything(fresh)


HASHES = """
import spacy_bioel
from spacy_bioel.export.rows import link_texts, to_row
nlp = spacy_bioel.load()
for linked in link_texts(nlp, [(text, None) for text in {texts!r}]):
    print(to_row(linked))
"""


@pytest.mark.slow
def test_results_do_not_depend_on_the_order_of_sets():
    texts = [*TEXTS, "Cdc42, Rac1, Trp53, Sox9, Il6, actin and Hsp70 in cells of flies and yeast."]
    outputs = set()
    for seed in "12":
        done = subprocess.run(
            [sys.executable, "-c", HASHES.format(texts=texts)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1

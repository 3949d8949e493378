"""Texts of one long word, or only of separators: time and memory grow no more than linearly."""

import subprocess
import sys
import tracemalloc
from random import Random

import numpy as np
import pytest
import spacy
from kb_files import made_kb
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_bioel.dictionary.lookup import DictionaryLookup
from spacy_bioel.kb import spelling
from spacy_bioel.mentions import model as detector
from spacy_bioel.mentions.model import MentionBatch
from spacy_bioel.types import Concept

N = 100_000
DNA = "".join(Random(0).choices("ACGT", k=N))
TEXTS = {
    "dna": DNA,
    "one letter": "a" * N,
    "accents": "e" + "\u0301" * N,
    "letters with accents": "e\u0301" * (N // 2),
    "stops": "." * N,
    "brackets": "(" * N,
    "line ends": "\n " * (N // 2),
}
# Prints the memory that the starter takes for a text of full stops, in megabytes.
MEMORY = """
import resource
from spacy_bioel.loading import load_starter
nlp = load_starter()
nlp("He had fever.")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
nlp("." * 300_000)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.fixture(scope="module")
def dictionary(tmp_path_factory) -> DictionaryLookup:
    folder = tmp_path_factory.mktemp("names") / "kb"
    return DictionaryLookup(
        made_kb(folder, [Concept("X:1", ("Pneumonia",)), Concept("X:2", ("Sequence", DNA))])
    )


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_memory_of_the_dictionary(dictionary, text):
    config = {"nlp": {"tokenizer": {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}}}
    doc = spacy.blank("en", config=config).make_doc(text)
    tracemalloc.start()
    try:
        dictionary.find([doc])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6  # a DNA string took 7.5 GB


def test_deletions_are_made_only_of_words_that_may_be_corrected(monkeypatch):
    deletions, lengths = spelling._deletions, []

    def count(word: str):
        lengths.append(len(word))
        return deletions(word)

    monkeypatch.setattr(spelling, "_deletions", count)
    misspellings = spelling.Misspellings({"pneumonia": 1, "a" * N: 1})
    assert misspellings.correction("a" * (N - 1), known={}) is None
    assert misspellings.correction("pnuemonia", known={}) == "pneumonia"
    assert set(lengths) == {9}


@pytest.mark.parametrize("n", [50_000, 100_000])
def test_a_network_reads_long_documents_in_pieces(n):
    docs = [Doc(Vocab(), words=["."] * size) for size in (n, 10)]
    match = np.array([[n - 5, 3, 1], [4000, 200, 1], [0, 0, 1]])
    batch = MentionBatch(docs, match, match[:, [0, 2]])
    parts = list(detector._parts(np.zeros((n + 10, 2), np.float32), batch, 18))
    assert max(len(vectors) for _, _, (vectors, *_) in parts) == 4096 + 2 * 18
    assert sum(used.stop - used.start for _, used, _ in parts) == n + 10
    assert len(parts) == -(-(n + 10) // 4096)
    assert len(list(detector._parts(np.zeros((n + 10, 2), np.float32), batch, None))) == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted otherwise")
def test_memory_of_the_starter():
    command = [sys.executable, "-c", MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert int(done.stdout) < 500  # megabytes; 1,170 before the limit

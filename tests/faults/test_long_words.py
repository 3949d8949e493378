"""Texts of one long word, or only of separators: memory grows no more than linearly."""

import subprocess
import sys
import tracemalloc
from random import Random

import pytest
from kb_files import made_kb
from tiny import blank

from spacy_bioel.dictionary.lookup import DictionaryLookup
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
    doc = blank().make_doc(text)
    tracemalloc.start()
    try:
        dictionary.find([doc])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6  # a DNA string took 7.5 GB


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted otherwise")
def test_memory_of_the_starter():
    command = [sys.executable, "-c", MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert int(done.stdout) < 500  # megabytes; 1,170 before the limit

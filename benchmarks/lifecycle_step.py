"""One run of `benchmarks.lifecycle`, by the installed version of the package: it uses what
all versions have. Prints one JSON object."""

from __future__ import annotations

import gc
import json
import resource
import sys
import time

import spacy
from spacy.tokens import DocBin


def main(model: str, dev: str) -> None:
    nlp = spacy.load(model)
    gold = list(DocBin().from_disk(dev).get_docs(nlp.vocab))
    texts = [doc.text for doc in gold]
    list(nlp.pipe(texts[:16]))  # opens the knowledge base
    start = time.perf_counter()
    docs = list(nlp.pipe(texts, batch_size=64))
    documents = len(docs) / (time.perf_counter() - start)
    linker = nlp.get_pipe("bioel_linker")
    given = []
    for doc in gold:
        bare = nlp.make_doc(doc.text)
        spans = [
            bare.char_span(s.start_char, s.end_char, label=s.label_, alignment_mode="expand")
            for s in doc.spans["bioel_gold"]
        ]
        bare.spans["bioel"] = spans
        given.append(bare)
    half = len(given) // 2
    n_first = sum(len(doc.spans["bioel"]) for doc in given[:half])
    n_second = sum(len(doc.spans["bioel"]) for doc in given[half:])
    again = spacy.load(model).get_pipe("bioel_linker")  # keeps nothing of the strings above
    list(again.pipe(given[:1]))
    # A pass of the garbage collector over all documents takes 0.2 s, and falls anywhere.
    gc.collect()
    gc.freeze()
    start = time.perf_counter()
    list(again.pipe(given[:half], batch_size=64))
    middle = time.perf_counter()
    list(again.pipe(given[half:], batch_size=64))
    end = time.perf_counter()
    found = {
        "documents": documents,
        "first_mentions": n_first / (middle - start),
        "mentions": n_second / (end - middle),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "linked": sum(len(doc.spans["bioel"]) for doc in docs),
    }
    assert linker is not again
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Their part of benchmarks.scispacy and .documents, in scispaCy's own environment: STEP FOLDER."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import spacy
from scispacy.candidate_generation import (
    CandidateGenerator,
    LinkerPaths,
    create_tfidf_ann_index,
)
from scispacy.linking import EntityLinker
from scispacy.linking_utils import KnowledgeBase
from spacy.training import Example
from spacy.util import filter_spans, minibatch

BUILT = "built.json"  # seconds
_ROUNDS = 5
_NAMES = 30  # nearest names that are looked at: the default of its EntityLinker


def build(folder: Path) -> None:
    """Build the index, unless it was built before: it takes long."""
    index = folder / "theirs"
    if (index / BUILT).is_file():
        return
    index.mkdir(exist_ok=True)
    start = time.perf_counter()
    create_tfidf_ann_index(str(index), KnowledgeBase(str(folder / "concepts.jsonl")))
    (index / BUILT).write_text(json.dumps(time.perf_counter() - start), "utf8")


def load(folder: Path) -> CandidateGenerator:
    names, vectorizer, index = LinkerPaths.from_directory(folder / "theirs").load()
    kb = KnowledgeBase(str(folder / "concepts.jsonl"))
    return CandidateGenerator(index, vectorizer, names, kb)


def link(folder: Path) -> None:
    queries = json.loads((folder / "queries.json").read_text("utf8"))
    documents = json.loads((folder / "documents.json").read_text("utf8"))
    mentions = [string for strings in documents for string in strings]
    before = peak_megabytes()
    start = time.perf_counter()
    generator = load(folder)
    generator(queries[:1], _NAMES)
    loaded = time.perf_counter()
    generator(mentions, _NAMES)
    linked = time.perf_counter()
    found = generator(queries, _NAMES)
    seconds = time.perf_counter() - linked
    ranked = [
        max(of_query, key=lambda c: (max(c.similarities), c.concept_id)).concept_id
        if of_query
        else None
        for of_query in found
    ]
    result = {
        "index": json.loads((folder / "theirs" / BUILT).read_text("utf8")),
        "load": loaded - start,
        "throughput": len(mentions) / (linked - loaded),
        "different": len(queries) / seconds,
        "memory": peak_megabytes(),
        "own": peak_megabytes() - before,
        "ranked": ranked,
    }
    (folder / "out.json").write_text(json.dumps(result), "utf8")


def peak_megabytes() -> float:
    """Peak of this process alone: that of getrusage begins with its parent's. Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def train(folder: Path) -> None:
    """Train spaCy's stock NER, as `nlp.add_pipe("ner")` makes it."""
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.add_pipe("ner")
    examples = []
    for line in (folder / "train.jsonl").open(encoding="utf8"):
        record = json.loads(line)
        doc = nlp.make_doc(record["text"])
        found = [
            doc.char_span(m["start"], m["end"], label=m["label"], alignment_mode="expand")
            for m in record["mentions"]
        ]
        doc.ents = filter_spans([span for span in found if span is not None])
        examples.append(Example(nlp.make_doc(record["text"]), doc))
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(_ROUNDS):
        for batch in minibatch(examples, 8):
            nlp.update(batch, sgd=optimizer, drop=0.1)
    nlp.to_disk(folder / "ner")


def pipe(folder: Path) -> None:
    texts = json.loads((folder / "texts.json").read_text("utf8"))
    nlp = spacy.load(folder / "ner")
    linker = EntityLinker(
        nlp,
        candidate_generator=load(folder),
        resolve_abbreviations=False,
        filter_for_definitions=False,
    )
    linker(nlp(texts[0]))
    start, n_mentions, n_links = time.perf_counter(), 0, 0
    for doc in nlp.pipe(texts):
        linker(doc)
        n_mentions += len(doc.ents)
        n_links += sum(bool(ent._.kb_ents) for ent in doc.ents)
    result = {
        "documents_per_second": len(texts) / (time.perf_counter() - start),
        "megabytes": peak_megabytes(),
        "mentions": n_mentions,
        "links": n_links,
    }
    (folder / "out.json").write_text(json.dumps(result), "utf8")


STEPS = {"build": build, "link": link, "train": train, "pipe": pipe}

if __name__ == "__main__":
    STEPS[sys.argv[1]](Path(sys.argv[2]))

"""scispaCy's part of benchmarks.rivals, run in an environment that has it: STEP FOLDER."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

_N_ROUNDS = 5


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text("utf8"))


def report(folder: Path, found: object, *, to: str = "out.json") -> None:
    (folder / to).write_text(json.dumps(found), "utf8")


def peak_megabytes() -> float:
    """Return the peak of this process; getrusage starts from that of its parent. Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def build(folder: Path) -> None:
    """Build the index, which takes long, unless it was built before."""
    from scispacy.candidate_generation import create_tfidf_ann_index
    from scispacy.linking_utils import KnowledgeBase

    index = folder / "theirs"
    if not (index / "built.json").is_file():
        index.mkdir(exist_ok=True)
        start = time.perf_counter()
        create_tfidf_ann_index(str(index), KnowledgeBase(str(folder / "concepts.jsonl")))
        report(index, time.perf_counter() - start, to="built.json")


def _generator(folder: Path) -> Any:
    from scispacy.candidate_generation import CandidateGenerator, LinkerPaths
    from scispacy.linking_utils import KnowledgeBase

    names, vectorizer, index = LinkerPaths.from_directory(folder / "theirs").load()
    kb = KnowledgeBase(str(folder / "concepts.jsonl"))
    return CandidateGenerator(index, vectorizer, names, kb)


def train(folder: Path) -> None:
    import spacy
    from spacy.training import Example
    from spacy.util import filter_spans, minibatch

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
    for _ in range(_N_ROUNDS):
        for batch in minibatch(examples, 8):
            nlp.update(batch, sgd=optimizer, drop=0.1)
    nlp.to_disk(folder / "ner")


def pipe(folder: Path) -> None:
    import spacy
    from scispacy.linking import EntityLinker

    texts = read(folder, "texts.json")
    nlp = spacy.load(folder / "ner")
    linker = EntityLinker(
        nlp,
        candidate_generator=_generator(folder),
        resolve_abbreviations=False,
        filter_for_definitions=False,
    )
    linker(nlp(texts[0]))
    start, n_mentions, n_links = time.perf_counter(), 0, 0
    for doc in nlp.pipe(texts):
        linker(doc)
        n_mentions += len(doc.ents)
        n_links += sum(bool(ent._.kb_ents) for ent in doc.ents)
    speed = len(texts) / (time.perf_counter() - start)
    counts = {"mentions": n_mentions, "links": n_links}
    report(folder, {"documents_per_second": speed, "megabytes": peak_megabytes()} | counts)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))

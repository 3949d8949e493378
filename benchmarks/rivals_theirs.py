"""Other systems in benchmarks.rivals and .no_labels, run in their environment: STEP FOLDER.

build, link, train, pipe   scispaCy's linker; with the stock NER of spaCy
fasthpocr     FastHPOCR with longest matches; its index is made from FOLDER/hp.obo and kept there
aho_corasick  longest names of FOLDER/names.json in lower case, at word boundaries
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Find = Callable[[list[str]], list[Any]]
Report = dict[str, Any]
_N_ROUNDS = 5
_N_NEIGHBOURS = 30  # the default of scispaCy's EntityLinker


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text("utf8"))


def report(folder: Path, found: object, *, to: str = "out.json") -> None:
    (folder / to).write_text(json.dumps(found), "utf8")


def peak_megabytes() -> float:
    """Return the peak of this process; getrusage starts from that of its parent. Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure(folder: Path, load: Callable[[], Find]) -> None:
    """Report the names that a system finds in FOLDER/texts.json, with time and memory."""
    texts = read(folder, "texts.json")
    start = time.perf_counter()
    find = load()
    find(texts[:1])
    loaded = time.perf_counter()
    found = find(texts)
    speed = len(texts) / (time.perf_counter() - loaded)
    costs = {"load": loaded - start, "documents_per_second": speed, "memory": peak_megabytes()}
    report(folder, costs | {"found": found})


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


def link(folder: Path) -> None:
    import scispacy.candidate_generation  # noqa: F401 - not counted as loading

    queries, documents = read(folder, "queries.json"), read(folder, "documents.json")
    mentions = [string for strings in documents for string in strings]
    before = peak_megabytes()
    start = time.perf_counter()
    generator = _generator(folder)
    generator(queries[:1], _N_NEIGHBOURS)
    loaded = time.perf_counter()
    generator(mentions, _N_NEIGHBOURS)
    linked = time.perf_counter()
    found = generator(queries, _N_NEIGHBOURS)
    end = time.perf_counter()
    best = [
        max(candidates, key=lambda c: (max(c.similarities), c.concept_id), default=None)
        for candidates in found
    ]
    result = {
        "index": read(folder / "theirs", "built.json"),
        "load": loaded - start,
        "throughput": len(mentions) / (linked - loaded),
        "different": len(queries) / (end - linked),
        "memory": peak_megabytes(),
        "own": peak_megabytes() - before,
        "found": [candidate.concept_id if candidate else None for candidate in best],
    }
    report(folder, result)


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


def fasthpocr(folder: Path) -> None:
    members: dict[str, list[str]] = {}

    def tokens_of(self: Any, cluster: str, base: dict[str, str]) -> list[str]:
        if not members:
            for token, token_cluster in base.items():
                members.setdefault(token_cluster, []).append(token)
        return list(members.get(cluster, ()))

    def load() -> Find:
        from FastHPOCR.cr.CRIndexKB import CRIndexKB
        from FastHPOCR.HPOAnnotator import HPOAnnotator
        from FastHPOCR.IndexHPO import IndexHPO

        if not (folder / "hp.index").is_file():
            # The original reads all 573,507 tokens for each cluster: more than ten minutes.
            CRIndexKB.compileClusterList = tokens_of
            IndexHPO(str(folder / "hp.obo"), str(folder)).index()
        annotator = HPOAnnotator(str(folder / "hp.index"))

        def annotate(text: str) -> list[tuple[int, int, str]]:
            found = annotator.annotate(text, longestMatch=True)
            return [(a.getStartOffset(), a.getEndOffset(), a.getHPOUri()) for a in found]

        return lambda texts: list(map(annotate, texts))

    measure(folder, load)


def aho_corasick(folder: Path) -> None:
    def load() -> Find:
        import ahocorasick

        automaton: Any = ahocorasick.Automaton()
        for name, id in read(folder, "names.json"):
            automaton.add_word(name.lower(), (len(name), id))
        automaton.make_automaton()

        def annotate(text: str) -> list[tuple[int, int, str]]:
            lowered = text.lower()
            found = []
            for last, (length, id) in automaton.iter_long(lowered):
                start, end = last - length + 1, last + 1
                before, after = lowered[start - 1 : start], lowered[end : end + 1]
                if not before.isalnum() and not after.isalnum():
                    found.append((start, end, id))
            return found

        return lambda texts: list(map(annotate, texts))

    measure(folder, load)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))

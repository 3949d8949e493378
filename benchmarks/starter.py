"""Measure accuracy and speed of the starter and of similar pipelines.

python -m benchmarks.run starter MODEL a+b+c --system light evaluates on the development documents
of the corpora below, which the project has fetched (`project run corpus . --vars.corpus biored`,
...). Labels that a corpus does not annotate are left out on both sides, as are documents that are
training documents of another corpus in the mixture.

starter_speed links the abstracts of BC5CDR's development documents in separate processes: the first
link with an empty and with a filled cache, without and with the imports of spaCy and the package;
and all abstracts, in one process and in two. --before is the Python of an environment with an
earlier version. Run it without PyTorch, which spaCy imports where it is installed, and then with
PyTorch and `--memory`: the results have both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.language import Language

from benchmarks.record import NoteOption, Row, SeedOption, figures, question, rows_of
from benchmarks.texts import KEY, only, scored
from spacy_bioel.corpus import declare_labels, read_texts
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.given import link_gold_mentions
from spacy_bioel.loading import find_linker, load_model
from spacy_bioel.plugins.evaluation.evaluate import evaluate_links
from spacy_bioel.plugins.evaluation.run import link_bare_texts
from spacy_bioel.settings import DETECTOR
from spacy_bioel.types import VARIANT, AnnotatedText, Link

CORPORA = (
    "biored", "nlm_gene", "gnormplus", "s800", "linnaeus", "tmvar3", "bioid_figures", "bc5cdr",
    "ncbi_disease", "drugprot", "bionlp_id", "bionlp_cg", "craft",
)  # fmt: skip
_LINKED_LABELS = {"Disease", "Chemical", "Gene", "Species"}


@question("starter", key=KEY)
def starter(
    model: Annotated[str, typer.Argument(help='A pipeline, or "starter".')],
    mixture: Annotated[str, typer.Argument(help="Mixture of corpora that it was trained on.")],
    corpus: Annotated[list[str] | None, typer.Option(help="One of CORPORA; default: all.")] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(help="Mixture of another pipeline that is measured on the same documents."),
    ] = None,
    system: Annotated[str, typer.Option(help="Name in the results.")] = "light",
    people: Annotated[
        bool | None, typer.Option(help="Setting label_people of the detector.")
    ] = None,
    seed: SeedOption = 0,
) -> Iterator[Row]:
    beginning = script("mixtures").beginning
    nlp = load_model(model)
    if people is not None:
        nlp.get_pipe(DETECTOR).cfg["label_people"] = people  # type: ignore[attr-defined]
    trained = {
        beginning(text)
        for folder in (mixture, *(beside or ()))
        for text in read_texts(Path("assets") / folder / "train.jsonl")
    }
    for name in corpus or CORPORA:
        texts = [text for text in development_texts(name) if beginning(text) not in trained]
        for row in _measure(nlp, texts):
            yield {"system": system, "corpus": name, "split": "dev", "seed": seed, **row}


def script(name: str) -> Any:
    """Import a file of training/scripts, which is not a package."""
    sys.path.insert(0, "training/scripts")
    return __import__(name)


def development_texts(corpus: str) -> list[AnnotatedText]:
    """Return development documents with the annotated labels that pipelines predict."""
    specs = script("specs")
    spec, path = specs.load_spec(corpus), specs.find_split(corpus, "dev")
    texts = [
        declare_labels(text, spec["annotates"], path=path)
        for text in read_texts(path, prefix=spec["prefix"])
    ]
    found = tuple(label for label in spec["annotates"] if label != "AnyGene")
    texts = [replace(text, annotates=found) for text in texts]
    return only(texts, lambda text, mention: mention.label in found)


def _measure(nlp: Language, texts: Sequence[AnnotatedText]) -> Iterator[Row]:
    """Yield F1 over all types, by type, and over the types with full vocabularies, and the accuracy
    of linking gold mentions by type.
    """
    linker = find_linker(nlp)
    links = [list(map(_without_rs, of_text)) for of_text in link_bare_texts(nlp, linker, texts)]
    canonical = linker.kb.canonical if linker is not None else str
    protocols = ["mention", "end_to_end"] if linker is not None else ["mention"]
    found = [
        (row.label, row)
        for row in evaluate_links(texts, links, protocols=protocols, canonical=canonical)
    ]
    if all(_LINKED_LABELS < {*text.annotates} for text in texts):
        few = [replace(text, annotates=tuple(sorted(_LINKED_LABELS))) for text in texts]
        rows = evaluate_links(few, links, protocols=protocols, canonical=canonical, per_label=False)
        found += [(", ".join(sorted(_LINKED_LABELS)), row) for row in rows]
    for subset, row in found:
        if row.metric == "f1" and row.n:  # some corpora have no ids
            yield {"protocol": row.protocol, "subset": subset, **figures(row)}
    if linker is not None:
        for label in sorted({label for text in texts for label in text.annotates} - {VARIANT}):
            yield from _measure_given(nlp, linker, texts, label)


def _without_rs(link: Link) -> Link:
    """Return a link without the ids of variants, which are not read from the corpora."""
    return replace(link, ids=()) if link.label == VARIANT else link


def _measure_given(
    nlp: Language, linker: Any, texts: Sequence[AnnotatedText], label: str
) -> Iterator[Row]:
    """Yield the accuracy of linking gold mentions of a label with ids in the KB."""
    for subset, chosen in _subsets(texts, label, linker.kb).items():
        links = list(link_gold_mentions(nlp, linker, chosen))
        for row in scored(chosen, links, linker.kb, {"gold": ["accuracy@1_nil_ignored"]}):
            yield row | {"metric": "accuracy@1", "subset": f"{label}, {subset}"}


def _subsets(
    texts: Sequence[AnnotatedText], label: str, kb: KnowledgeBase
) -> dict[str, list[AnnotatedText]]:
    """Return the subsets of documents with linkable mentions of a label."""

    def known(ids: tuple[str, ...]) -> bool:
        return bool((kb.find_all(list(ids)) >= 0).any())

    labelled = only(texts, lambda text, m: m.label == label and m.ids)
    whole = [t for t in labelled if t.mentions and all(known(m.ids) for m in t.mentions)]
    return {
        "known documents": whole,
        "known mentions": only(labelled, lambda text, m: known(m.ids)),
    }


# These print seconds with and without imports, and megabytes; texts a second, and megabytes.
_FIRST_LINK = """
import json, resource, sys, time
start = time.perf_counter()
import spacy, spacy_bioel
imported = time.perf_counter()
spacy_bioel.load()(json.load(sys.stdin)[0])
end = time.perf_counter()
megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([end - start, end - imported, megabytes]))
"""
_ABSTRACTS = """
import json, resource, sys, time
import spacy_bioel
from spacy_bioel.export.rows import link_texts
texts, n_process = json.load(sys.stdin), int(sys.argv[1])
nlp = spacy_bioel.load()
nlp(texts[0])
start = time.perf_counter()
documents = [(text, None) for text in texts * n_process]
n = sum(1 for _ in link_texts(nlp, documents, n_process=n_process))
speed = n / (time.perf_counter() - start)
print(json.dumps([speed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


@question("starter_speed", key=("system", "metric"))
def starter_speed(
    before: Path | None = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Measure only memory, on a busy machine.")
    ] = False,
    note: NoteOption = "",
) -> Iterator[Row]:
    texts = [text.text for text in development_texts("bc5cdr")]
    with tempfile.TemporaryDirectory() as cache:

        def run(code: str, *arguments: str, python: str = sys.executable) -> list[float]:
            command = [python, "-P", "-c", code, *arguments]
            environment = os.environ | {"SPACY_BIOEL_CACHE": cache}
            pipes: dict[str, Any] = {"input": json.dumps(texts), "text": True, "check": True}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, **pipes)
            return list(json.loads(done.stdout))

        about = {"corpus": "bc5cdr", "split": "dev", "n": len(texts), "note": note}
        memory_metric = "megabytes with PyTorch" if find_spec("torch") else "megabytes"

        def rows(system: str, metric: str, value: float, megabytes: float) -> Iterator[Row]:
            values = {} if memory else {metric: value}
            values[memory_metric] = round(megabytes)
            yield from rows_of(system, values, **about)

        empty = run(_FIRST_LINK)
        yield from rows("first link, empty cache", "seconds", empty[1], empty[2])
        warm = min(run(_FIRST_LINK) for _ in range(3))
        yield from rows("first link", "seconds", warm[1], warm[2])
        yield from rows("first link, imports included", "seconds", warm[0], warm[2])
        if before is not None:
            warm = min(run(_FIRST_LINK, python=str(before)) for _ in range(4))
            yield from rows("first link, imports included, before", "seconds", warm[0], warm[2])
        for name, n in (("one process", "1"), ("two processes", "2")):
            yield from rows(f"abstracts, {name}", "per_second", *run(_ABSTRACTS, n))

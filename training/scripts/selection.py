"""Fit the weights of spans: spacy_bioel/assets/starter/bioel_mentions/selection.json.

A detector is surer about documents that it was trained on, so the weights are fitted on the spans
of two detectors, each of which has not seen one half of the documents ("+without+half0+..." in
corpora.py). `measure` cross-fits the weights over five parts of the documents, and prints strict F1
of the mentions of each corpus with the steps of the starter, without and with the weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

import numpy as np
import typer
from mixtures import beginning, half_of
from spacy.util import minibatch
from specs import find_split, load_spec

import spacy_bioel
from spacy_bioel.corpus import read_texts
from spacy_bioel.evaluation.fit import Development, fit_fusion
from spacy_bioel.found import FoundSpans
from spacy_bioel.loading import load_model
from spacy_bioel.mentions.find import find, steps_before_selection, steps_of_detector
from spacy_bioel.mentions.selection import COLUMNS, SpanSelection, columns_of
from spacy_bioel.types import AnnotatedText, FloatArray, SpanKey

ASSETS = Path("spacy_bioel") / "assets"
_N_HIDDEN, _L2 = 12, 0.001
_MIN_MENTIONS = 500  # of a label, to fit weights for it
_N_PARTS, _DOCS_PER_BATCH = 5, 64
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass
class Scored:
    """A document of a corpus with the spans of a detector that has not seen it."""

    corpus: str
    labels: Sequence[str]
    gold: set[SpanKey]
    found: FoundSpans
    columns: FloatArray
    part: int


@app.command()
def fit(
    corpora: list[str],
    unseen: Annotated[list[Path], typer.Option(help="Detectors without half 0, and half 1.")],
    output: Annotated[Path, typer.Option()] = ASSETS / "starter/bioel_mentions/selection.json",
) -> None:
    """Fit on all documents of these corpora."""
    fitted = _fit(list(_scored(corpora, unseen)))
    output.write_text(json.dumps(fitted.to_json()) + "\n", encoding="utf8")


@app.command()
def measure(
    corpora: list[str],
    unseen: Annotated[list[Path], typer.Option()],
    threshold: Annotated[list[float], typer.Option()] = [0.4],  # noqa: B006
) -> None:
    """Print mention F1 of the starter's steps by label and corpus, without and with the weights."""
    docs = list(_scored(corpora, unseen))
    fitted = [_fit([d for d in docs if d.part != part]) for part in range(_N_PARTS)]
    detector: Any = spacy_bioel.load().get_pipe("bioel_mentions")
    rules, gazetteer = detector.rules, detector.gazetteer
    before = steps_of_detector(detector.cfg, rules)
    print("label", "corpus", "mentions", "before", *threshold, sep="\t")
    counts: dict[tuple[str, str], Any] = {}
    for doc in docs:
        runs = [before]
        for t in threshold:
            settings, selection = {**detector.cfg, "threshold": t}, fitted[doc.part]
            weigh = partial(selection.weigh, gazetteer=gazetteer)
            steps = steps_of_detector(settings, rules, weigh=weigh, fitted=selection.weights)
            runs.append(steps)
        for i, steps in enumerate(runs):
            (found,) = find([FoundSpans(doc.found.doc, doc.found.spans)], steps)
            for label in doc.labels:
                gold = {key for key in doc.gold if key[2] == label}
                keys = {span[:3] for span in found.spans if span[2] == label}
                table = counts.setdefault((label, doc.corpus), np.zeros((len(runs), 3), int))
                table[i] += len(gold & keys), len(keys), len(gold)
    for (label, corpus), table in sorted(counts.items()):
        f1 = 200 * table[:, 0] / np.maximum(table[:, 1] + table[:, 2], 1)
        print(label, corpus, table[0, 2], *(f"{x:.2f}" for x in f1), sep="\t")


def _scored(corpora: Iterable[str], unseen: Sequence[Path]) -> Iterator[Scored]:
    pipelines = [load_model(str(folder)) for folder in unseen]
    for corpus in corpora:
        labels = load_spec(corpus)["annotates"]
        paths = (find_split(corpus, split) for split in ("train", "dev"))
        texts = {text.text: text for path in paths for text in read_texts(path, prefix="")}
        for half, nlp in enumerate(pipelines):
            detector: Any = nlp.get_pipe("bioel_mentions")
            mine = [text for text in texts.values() if half_of(text) == half]
            for batch in minibatch(mine, _DOCS_PER_BATCH):
                docs = [nlp.make_doc(text.text) for text in batch]
                scored = detector.score_spans(docs)
                found = [FoundSpans(*pair) for pair in zip(docs, scored, strict=True)]
                find(found, steps_before_selection(1.0))
                columns = np.split(
                    columns_of(found, detector.gazetteer),
                    np.cumsum([len(of_doc.spans) for of_doc in found])[:-1],
                )
                for text, of_doc, table in zip(batch, found, columns, strict=True):
                    part = crc32(beginning(text).encode()) % _N_PARTS
                    gold = set(_gold_of(text, of_doc))
                    yield Scored(corpus, labels, gold, of_doc, table, part)


def _gold_of(text: AnnotatedText, found: FoundSpans) -> Iterator[SpanKey]:
    for m in text.mentions:
        span = found.doc.char_span(m.start, m.end)
        # Mentions that end inside a token cannot be found; they count as missed.
        yield (-m.start, -m.end, m.label) if span is None else (span.start, span.end, m.label)


def _fit(docs: Sequence[Scored]) -> SpanSelection:
    weights = {}
    for label in sorted({label for doc in docs for label in doc.labels}):
        annotated = [doc for doc in docs if label in doc.labels]
        if sum(key[2] == label for doc in annotated for key in doc.gold) < _MIN_MENTIONS:
            continue
        rows = [(d, i) for d in annotated for i, s in enumerate(d.found.spans) if s[2] == label]
        right = [np.array([d.found.spans[i][:3] in d.gold]) for d, i in rows]
        development = Development(
            np.stack([d.columns[i] for d, i in rows]).reshape(-1, len(COLUMNS)),
            [np.array([row]) for row in range(len(rows))],
            right,
            [""] * len(rows),
            [0] * len(rows),
        )
        weights[label] = fit_fusion(development, n_hidden=_N_HIDDEN, l2=_L2)
    return SpanSelection(weights)


if __name__ == "__main__":
    app()

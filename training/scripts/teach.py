"""Let a detector learn from others: write documents with what those say of the labels that nobody
looked for in them.

After `convert`, teach.py CORPUS --teacher PIPELINE ... --texts FILE ... writes the corpus
CORPUS+taught, which `train.py CORPUS+taught CONFIG OUTPUT` learns from. A span counts as far as it
is likely by the mean of the teachers (Hinton, Vinyals and Dean, 2015,
https://arxiv.org/abs/1503.02531); what the corpora annotate stays as it is.
"""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from mixtures import beginning
from spacy.language import Language
from specs import TAUGHT

from spacy_bioel.cli.console import show_error, show_note
from spacy_bioel.corpus import docs_to_bin, read_texts, text_to_doc
from spacy_bioel.errors import BioelError
from spacy_bioel.files import replacing_folder
from spacy_bioel.loading import load_model
from spacy_bioel.settings import DETECTOR
from spacy_bioel.types import AnnotatedText, Mention

# First and last character, and label, of a span, and how likely it is.
Spans = dict[tuple[int, int, str], float]

_LEAST = 0.02  # less likely spans are no mentions
_BATCH = 64
# Longer texts are full texts; a transformer takes its time for them.
_LONGEST = 4600


def main(
    corpus: str,
    teacher: Annotated[list[str], typer.Option(help='Pipelines with a detector, or "starter".')],
    texts: Annotated[list[Path], typer.Option(help="Corpora whose texts alone are read.")] = [],  # noqa: B006
) -> None:
    """Write corpus/CORPUS+taught."""
    source, out = Path("corpus") / corpus, Path("corpus") / f"{corpus}+{TAUGHT}"
    pipelines = list(map(load_model, teacher))
    labels = set.intersection(*({*nlp.get_pipe(DETECTOR).labels} for nlp in pipelines))  # type: ignore[attr-defined]
    documents = [(t, {*t.annotates} or labels) for t in read_texts(source / "train.spacy")]
    measured = {beginning(text) for text in read_texts(source / "dev.spacy")}
    bare = (AnnotatedText(t.id, t.text) for path in texts for t in read_texts(path))
    documents += [(text, set()) for text in bare if beginning(text) not in measured]
    different = dict.fromkeys(text.text for text, _ in documents if len(text.text) < _LONGEST)
    said = dict(zip(different, mean_of(pipelines, list(different)), strict=True))
    taught = with_teachers(documents, said, labels)
    docs = [text_to_doc(pipelines[0], text, widen=True)[0] for text in taught]
    with replacing_folder(out) as folder:
        docs_to_bin(docs).to_disk(folder / "train.spacy")
        shutil.copy(source / "dev.spacy", folder)
    show_note(f"{len(docs):,} documents to {out}.")


def mean_of(pipelines: Sequence[Language], texts: Sequence[str]) -> Iterator[Spans]:
    """Score the spans of each text by the mean of several detectors."""
    for first in range(0, len(texts), _BATCH):
        batch = texts[first : first + _BATCH]
        means: list[Spans] = [defaultdict(float) for _ in batch]
        for nlp in pipelines:
            detector = nlp.get_pipe(DETECTOR)
            with nlp.select_pipes(enable=[n for n in nlp.pipe_names if n in ("tok2vec", DETECTOR)]):
                docs = list(nlp.pipe(batch))
            for doc, spans, mean in zip(
                docs,
                detector.score_spans(docs, min_probability=_LEAST),  # type: ignore[attr-defined]
                means,
                strict=True,
            ):
                for start, end, label, p in spans:
                    span = doc[start:end]
                    mean[span.start_char, span.end_char, label] += p / len(pipelines)
        yield from means


def with_teachers(
    documents: Sequence[tuple[AnnotatedText, set[str]]], said: dict[str, Spans], labels: set[str]
) -> Iterator[AnnotatedText]:
    """Add what teachers say of labels that were looked for in no corpus that has the document.

    documents (Sequence): Each with the labels that were looked for in it.
    said (dict): Spans of texts. A text that is not there stays as it is, or is left out if nothing
        was looked for in it.
    """
    looked_for: dict[str, set[str]] = defaultdict(set)
    for text, own in documents:
        looked_for[beginning(text)] |= own
    for text, own in documents:
        if text.text not in said:
            if own:
                yield text
            continue
        new = labels - looked_for[beginning(text)]
        more = [
            Mention(start, end, label, probability=round(p, 4))
            for (start, end, label), p in sorted(said[text.text].items())
            if label in new and p >= _LEAST
        ]
        annotates = tuple(sorted(own | new))
        yield replace(text, mentions=(*text.mentions, *more), annotates=annotates)


if __name__ == "__main__":
    try:
        typer.run(main)
    except BioelError as error:
        show_error(str(error))
        sys.exit(2)

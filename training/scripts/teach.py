"""Knowledge distillation for detectors: predict the labels that a corpus does not annotate.

After `convert`, teach.py CORPUS --teacher PIPELINE ... --texts FILE ... writes the corpus
CORPUS+taught, for `train.py CORPUS+taught CONFIG OUTPUT`. Each predicted span has the mean
probability of the teachers as a soft target (Hinton, Vinyals and Dean, 2015,
https://arxiv.org/abs/1503.02531). Gold annotations are kept unchanged.
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

# Probability of a span by start character, end character and label.
Spans = dict[tuple[int, int, str], float]

_MIN_PROBABILITY = 0.02
_BATCH_SIZE = 64
# Longer texts are full articles, which take a transformer too long.
_MAX_LENGTH = 4600


def main(
    corpus: str,
    teacher: Annotated[list[str], typer.Option(help='Trained pipelines, or "starter".')],
    texts: Annotated[list[Path], typer.Option(help="More corpora; only texts are read.")] = [],  # noqa: B006
) -> None:
    """Write corpus/CORPUS+taught."""
    source, out = Path("corpus") / corpus, Path("corpus") / f"{corpus}+{TAUGHT}"
    pipelines = list(map(load_model, teacher))
    labels = set.intersection(*({*nlp.get_pipe(DETECTOR).labels} for nlp in pipelines))  # type: ignore[attr-defined]
    documents = [(t, {*t.annotates} or labels) for t in read_texts(source / "train.spacy")]
    measured = {beginning(text) for text in read_texts(source / "dev.spacy")}
    bare = (AnnotatedText(t.id, t.text) for path in texts for t in read_texts(path))
    documents += [(text, set()) for text in bare if beginning(text) not in measured]
    unique = dict.fromkeys(text.text for text, _ in documents if len(text.text) < _MAX_LENGTH)
    predictions = dict(zip(unique, mean_predictions(pipelines, list(unique)), strict=True))
    taught = with_teachers(documents, predictions, labels)
    docs = [text_to_doc(pipelines[0], text, widen=True)[0] for text in taught]
    with replacing_folder(out) as folder:
        docs_to_bin(docs).to_disk(folder / "train.spacy")
        shutil.copy(source / "dev.spacy", folder)
    show_note(f"{len(docs):,} documents to {out}.")


def mean_predictions(pipelines: Sequence[Language], texts: Sequence[str]) -> Iterator[Spans]:
    """Yield the mean probabilities that several detectors give to the spans of each text."""
    for first in range(0, len(texts), _BATCH_SIZE):
        batch = texts[first : first + _BATCH_SIZE]
        means: list[Spans] = [defaultdict(float) for _ in batch]
        for nlp in pipelines:
            detector = nlp.get_pipe(DETECTOR)
            with nlp.select_pipes(enable=[n for n in nlp.pipe_names if n in ("tok2vec", DETECTOR)]):
                docs = list(nlp.pipe(batch))
            for doc, spans, mean in zip(
                docs,
                detector.score_spans(docs, min_probability=_MIN_PROBABILITY),  # type: ignore[attr-defined]
                means,
                strict=True,
            ):
                for start, end, label, probability in spans:
                    span = doc[start:end]
                    key = span.start_char, span.end_char, label
                    mean[key] += probability / len(pipelines)
        yield from means


def with_teachers(
    documents: Sequence[tuple[AnnotatedText, set[str]]],
    predictions: dict[str, Spans],
    labels: set[str],
) -> Iterator[AnnotatedText]:
    """Add predicted mentions of the labels that no corpus with the document annotates.

    documents (Sequence): Each with the labels that are annotated in it.
    predictions (dict): Spans by text. Texts without predictions are kept unchanged if any label is
        annotated in them, else left out.
    """
    annotated: dict[str, set[str]] = defaultdict(set)
    for text, text_labels in documents:
        annotated[beginning(text)] |= text_labels
    for text, text_labels in documents:
        if text.text not in predictions:
            if text_labels:
                yield text
            continue
        new = labels - annotated[beginning(text)]
        more = [
            Mention(start, end, label, probability=round(probability, 4))
            for (start, end, label), probability in sorted(predictions[text.text].items())
            if label in new and probability >= _MIN_PROBABILITY
        ]
        annotates = tuple(sorted(text_labels | new))
        yield replace(text, mentions=(*text.mentions, *more), annotates=annotates)


if __name__ == "__main__":
    try:
        typer.run(main)
    except BioelError as error:
        show_error(str(error))
        sys.exit(2)

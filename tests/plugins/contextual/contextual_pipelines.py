"""Small pipelines with contextual models, for tests of all kinds of pipelines."""

from collections.abc import Callable
from pathlib import Path

from spacy.language import Language
from test_generative import generative_nlp
from test_multitask import multitask_nlp
from test_reranker import reranking_nlp
from tiny import dual_nlp

MAKERS: dict[str, Callable[[Path, Path], Language]] = {
    "dual": dual_nlp,
    "multitask": lambda kb, checkpoint: multitask_nlp(kb),
    "reranker": reranking_nlp,
    "generative": lambda kb, checkpoint: generative_nlp(kb),
}

"""Small pipelines with contextual models, for tests of all kinds of pipelines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spacy.language import Language
from tiny import DETECTOR, LINKER, TOK2VEC, blank, dual_nlp, with_linker

NAMES = {"@architectures": "spacy-bioel.ResCNN.v1"} | LINKER["model"]
OVERLAPS = r"\[W300\] 2 of 36 gold mentions"


def generative_nlp(kb: Path, generator: dict[str, Any] | None = None, **settings: Any) -> Language:
    seq2seq = {
        "@architectures": "spacy-bioel.Seq2Seq.v1",
        "layers": 1,
        "width": 64,
        "vocabulary": 400,
        "max_pieces": 24,
    } | (generator or {})
    model = {
        "@architectures": "spacy-bioel.GenerativeLinker.v1",
        "names": NAMES,
        "generator": seq2seq,
    }
    return with_linker(blank(), kb, model, training={"mentions": 64}, **settings)


def reranking_nlp(kb: Path, checkpoint: Path, **settings: Any) -> Language:
    pairs = {
        "@architectures": "spacy-bioel.CrossEncoder.v1",
        "path": str(checkpoint),
        "max_pieces": 32,
        "learn_rate_scale": 0.1,
    }
    model = {"@architectures": "spacy-bioel.Reranker.v1", "names": NAMES, "pairs": pairs}
    training = {"candidates": 4, "mentions": 8}
    return with_linker(blank(), kb, model, training=training, **settings)


def multitask_nlp(kb: Path, **settings: Any) -> Language:
    """Make an untrained linker that finds its mentions. settings: Settings of the architecture."""
    return with_linker(blank(), kb, multitask_model(**settings), mentions="model")


def multitask_model(**settings: Any) -> dict[str, Any]:
    return {
        "@architectures": "spacy-bioel.HierarchicalLinker.v1",
        "tok2vec": TOK2VEC,
        "names": NAMES,
        "layers": 1,
        "dropout": 0.0,
        "max_width": DETECTOR["model"]["max_width"],
    } | settings


def naming_nlp(kb_folder: Path, checkpoint: Path) -> Language:
    model = {
        "@architectures": "spacy-bioel.TransformerNames.v1",
        "path": str(checkpoint),
        "pooling": "cls",
    }
    return with_linker(blank(), kb_folder, model)


MAKERS: dict[str, Callable[[Path, Path], Language]] = {
    "dual": dual_nlp,
    "multitask": lambda kb, checkpoint: multitask_nlp(kb),
    "reranker": reranking_nlp,
    "generative": lambda kb, checkpoint: generative_nlp(kb),
}

"""Concatenation of the token vectors of two tok2vec models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thinc.api import Model
from thinc.types import Floats2d

from spacy_bioel.models.detector import Tok2Vec


def build_with_spelling_v1(tok2vec: Tok2Vec, spelling: Tok2Vec) -> Tok2Vec:
    """Registered as `spacy-bioel.WithSpelling.v1`.

    An uncased checkpoint does not distinguish "NO" from "no", and splits "CYP2D6" into pieces. A
    small tok2vec of shapes, prefixes and suffixes adds that information.

    tok2vec (Model): Any spaCy tok2vec, or a listener to a shared one.
    spelling (Model): A spaCy tok2vec over the same documents.
    RETURNS (Model): A tok2vec whose width is the sum of both widths.
    """
    return Model(
        "with_spelling",
        _forward,
        init=_init,
        layers=[tok2vec, spelling],
        dims={"nO": None},
    )


def _init(model: Model, X: Any = None, Y: Any = None) -> None:
    for layer in model.layers:
        layer.initialize(X=X)
    model.set_dim("nO", sum(layer.get_dim("nO") for layer in model.layers))


def _forward(
    model: Model, docs: Any, is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], Any]]:
    found = [layer(docs, is_train) for layer in model.layers]
    # Some tok2vec models return a row for an empty document.
    parts = [[v[: len(doc)] for v, doc in zip(of, docs, strict=True)] for of, _ in found]
    width = model.layers[0].get_dim("nO")

    def backprop(d_vectors: list[Floats2d]) -> Any:
        (_, backprop_first), (_, backprop_second) = found
        backprop_second([model.ops.as_contig(d[:, width:]) for d in d_vectors])
        return backprop_first([model.ops.as_contig(d[:, :width]) for d in d_vectors])

    xp = model.ops.xp
    return [xp.hstack(of_doc) for of_doc in zip(*parts, strict=True)], backprop

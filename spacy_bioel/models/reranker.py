"""A linker's model that reads each candidate together with the mention in its context.

An encoder of names finds candidates, as in any linker, and is left as it is; a cross-encoder,
`models.cross_encoder`, puts them in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinc.api import Model

from spacy_bioel.models.cross_encoder import (
    PairScorer,
    add_cross_encoder,
    cross_encoder_parts,
    load_cross_encoder,
)
from spacy_bioel.models.name_encoder import NameEncoder, Parts
from spacy_bioel.models.reading import ReadingKind, reading_model

# The encoder of names may be a transformer too, with files of the same names.
_PREFIX = "pairs."


def build_reranker_v1(names: NameEncoder, pairs: PairScorer) -> Model:
    """Registered as `spacy-bioel.Reranker.v1`: retrieve and rerank, as BLINK does.

    Wu et al. (2020), https://aclanthology.org/2020.emnlp-main.519.

    names (NameEncoder): Finds candidates, beside or instead of the linker's other evidence.
    pairs (PairScorer): `spacy-bioel.CrossEncoder.v1`.
    """
    kind = ReadingKind(add=_add, parts=_parts, load=_load)
    return reading_model("reranker", kind, _forward, {"names": names, "pairs": pairs})


def _add(model: Model) -> None:
    add_cross_encoder(model.get_ref("pairs"))
    model.set_ref("network", model.get_ref("pairs"))


def _parts(model: Model) -> Parts:
    parts = cross_encoder_parts(model.get_ref("pairs"))
    return {_PREFIX + name: part for name, part in parts.items()}


def _load(model: Model, parts: Mapping[str, bytes]) -> None:
    own = {k.removeprefix(_PREFIX): part for k, part in parts.items() if k.startswith(_PREFIX)}
    if own:
        load_cross_encoder(model.get_ref("pairs"), own)
        model.set_ref("network", model.get_ref("pairs"))


def _forward(model: Model, pairs: Any, is_train: bool) -> Any:
    return model.get_ref("pairs")(pairs, is_train)

"""Bi-encoder: a name encoder, and a mention encoder that reads the document.

One tower is a `models.name_encoder.NameEncoder`. The other, `nn.encoders.MentionTower`, takes
the token vectors of a pipe `tok2vec`, which the mention detector may share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d, FloatsXd

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.name_encoder import NameEncoder
from spacy_bioel.models.reading import ReadingKind, reading_model
from spacy_bioel.models.tok2vec import Tok2Vec, forward_over_tokens

if TYPE_CHECKING:
    from torch import nn

IntArray = NDArray[np.int64]
DualEncoder = Model[Any, Floats2d]
TEMPERATURE = 0.05
# Tokens of context on each side of a mention, where mentions are encoded one by one.
_CONTEXT = 64


def build_dual_encoder_v1(
    tok2vec: Tok2Vec,
    names: NameEncoder,
    *,
    pooling: str = "ends",
    from_words: bool = True,
    collective: bool = True,
) -> DualEncoder:
    """Registered as `spacy-bioel.DualEncoder.v1`; see `nn.encoders` for the paper.

    tok2vec (Model): A listener to the shared pipe `tok2vec`; with `collective = false`, a tok2vec
        of its own.
    names (NameEncoder): The name encoder, e.g. `spacy-bioel.TransformerNames.v1` as in the paper,
        or the small `spacy-bioel.ResCNN.v1`.
    pooling (str): "ends" or "mean" of the mention's tokens.
    from_words (bool): Add the name encoder's vector of the mention's string to that of its tokens;
        else, as in the paper, use the tokens only.
    collective (bool): Encode a document once for all of its mentions. Else encode each mention
        separately, with `_CONTEXT` tokens before and after it: the paper's baseline.
    RAISES BioelError: [B175] on an unknown pooling, [B177] for a listener with
        `collective = false`: its vectors are those of whole documents.
    """
    if pooling not in ("ends", "mean"):
        raise BioelError(Errors.B175.format(pooling=pooling))
    if not collective and isinstance(tok2vec, Tok2VecListener):
        raise BioelError(Errors.B177)
    settings = {"pooling": pooling, "from_words": from_words}
    return reading_model(
        "dual_encoder",
        _forward,
        {"tok2vec": tok2vec, "names": names},
        kind=ReadingKind(_tower, "mentions.safetensors"),
        settings=settings,
        collective=collective,
    )


def _tower(model: DualEncoder) -> nn.Module:
    from spacy_bioel.nn.encoders import MentionTower

    return MentionTower(
        width=model.get_ref("tok2vec").get_dim("nO"),
        dim=model.get_ref("names").get_dim("nO"),
        **model.attrs["settings"],
    )


def _one_by_one(docs: Sequence[Doc], spans: IntArray) -> tuple[list[Doc], IntArray]:
    """Cut out one short document per mention: the mention with its context.

    spans (IntArray): Start and end token of each mention, counted over the concatenated documents.
        Shape (n_mentions, 2).
    RETURNS (tuple[list[Doc], IntArray]): The cut documents, and the spans counted over them.
    """
    offsets = np.cumsum([0, *(len(doc) for doc in docs)])
    owners = np.searchsorted(offsets, spans[:, 0], side="right") - 1
    excerpts, places, n_tokens = [], [], 0
    for owner, (start, end) in zip(owners, spans - offsets[owners, None], strict=True):
        first = max(0, int(start) - _CONTEXT)
        excerpts.append(docs[owner][first : int(end) + _CONTEXT].as_doc())
        places.append((n_tokens + start - first, n_tokens + end - first))
        n_tokens += len(excerpts[-1])
    return excerpts, np.array(places, dtype=np.int64).reshape(-1, 2)


def _forward(
    model: DualEncoder, inputs: tuple[list[Doc], IntArray, Floats2d], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], FloatsXd]]:
    docs, spans, words = inputs
    if not model.attrs["collective"]:
        docs, spans = _one_by_one(docs, spans)
    found, backprop = forward_over_tokens(model, docs, (spans, words), is_train)
    return found, lambda d_found: backprop(d_found)[0]

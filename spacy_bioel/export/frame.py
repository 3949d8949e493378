"""Links as a data frame of pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.docs import Docs, with_ids
from spacy_bioel.export.links import LinkRow, link_rows
from spacy_bioel.pipeline.annotate import get_links
from spacy_bioel.pipeline.gold import SPANS_KEY

if TYPE_CHECKING:
    from pandas import DataFrame

_TYPES = {"start": "int64", "end": "int64", "score": "float64"}


def links_frame(docs: Docs, *, spans_key: str = SPANS_KEY) -> DataFrame:
    """Links of Docs as a data frame, one row a link.

    docs (Doc | Iterable): A Doc, or a stream of them, or of pairs (Doc, id), as `nlp.pipe(...,
        as_tuples=True)` makes them. No Doc is kept.
    spans_key (str): Span group of the links.
    RETURNS (DataFrame): Columns of `LinkRow`. "document" is the id, or the number of the Doc from
        0. Where there is no value, as with NIL, it is None, or NaN for a score.
    RAISES BioelError: [B192] without pandas.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise BioelError(
            Errors.B192.format(what="links_frame", extra="pandas", error=error)
        ) from error
    rows = [
        row
        for doc, id in with_ids(docs)
        for row in link_rows(id, doc.text, get_links(doc, spans_key))
    ]
    return pd.DataFrame(rows, columns=LinkRow._fields, dtype=object).astype(_TYPES)

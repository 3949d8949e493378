"""Biomedical entity linking for spaCy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from spacy.language import Language

__version__ = "0.1.0"


def load(
    *,
    disable: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
) -> Language:
    """A ready pipeline, without a download: diseases, chemicals, genes, organisms, cell lines and
    variants are found and linked to MeSH, NCBI Gene (human), NCBI Taxonomy and Cellosaurus.

    The first document that is linked waits some seconds, while the knowledge bases are built in
    the user's cache folder.

    disable, exclude (str | Iterable[str]): Pipes, "bioel_mentions" or "bioel_linker", that are
        loaded and not run, or not loaded, as in `spacy.load`.
    config (Mapping | None): Settings to change, nested or by dotted names:
        {"components.bioel_linker.nil_threshold": 0.6}.
    RETURNS (Language): Mentions with ids are in doc.spans["bioel"]; see `span._.cui`.
    """
    from spacy_bioel.pipeline.starter import load_starter

    return load_starter(disable=disable, exclude=exclude, config=config)

"""Biomedical entity linking for spaCy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.language import Language

__version__ = "0.1.0"


def load() -> Language:
    """A ready pipeline, without a download: diseases, chemicals, genes, organisms, cell lines and
    variants are found and linked to MeSH, NCBI Gene (human), NCBI Taxonomy and Cellosaurus.

    The first document that is linked waits some seconds, while the knowledge bases are built in
    the user's cache folder.

    RETURNS (Language): Mentions with ids are in doc.spans["bioel"]; see `span._.cui`.
    """
    from spacy_bioel.pipeline.starter import load_starter

    return load_starter()

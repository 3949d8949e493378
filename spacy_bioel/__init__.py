"""Biomedical entity linking for spaCy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.pipeline.explain import Report

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


def explain(nlp: Language, text: str, mention: str | None = None) -> Report:
    """Explain what a pipeline finds in a text and why; see `pipeline.explain.explain`."""
    from spacy_bioel.pipeline import explain as explaining

    return explaining.explain(nlp, text, mention)

"""Biomedical entity linking for spaCy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from spacy.language import Language

    from spacy_bioel.export.html import displacy_data as displacy_data
    from spacy_bioel.export.html import links_frame as links_frame
    from spacy_bioel.export.html import render as render
    from spacy_bioel.report import explain as explain

__version__ = "0.1.0"


def load(
    model: str | Path = "starter",
    *,
    disable: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
    context: bool = False,
    preset: str | None = None,
) -> Language:
    """Load a pipeline; by default that of the package, without a download: diseases, chemicals,
    genes, organisms, cell lines and variants are found and linked to MeSH, NCBI Gene (human,
    mouse, rat, zebrafish, fly, worm, yeasts), NCBI Taxonomy and Cellosaurus.

    The first document that is linked waits some seconds, while the knowledge bases are built in
    the user's cache folder.

    model (str | Path): "starter", or a pipeline by folder or package name, or the folder of a
        knowledge base, whose names are then found and linked.
    disable, exclude (str | Iterable[str]): Of the starter: pipes, "bioel_mentions" or
        "bioel_linker", that are loaded and not run, or not loaded, as in `spacy.load`.
    config (Mapping | None): Of the starter: settings to change, nested or by dotted names:
        {"components.bioel_linker.nil_threshold": 0.6}.
    context (bool): Also say whether a mention is negated, uncertain, past, conditional, or of
        another person: `span._.negated` and others of the pipe `bioel_context`.
    preset (str | None): "clinical", for notes: with `context`, and shorthand and measurements of
        notes are found. `bioel link --preset clinical` also reads a file of text as one note.
    RETURNS (Language): Mentions with ids are in doc.spans["bioel"]; see `span._.cui`.
    RAISES BioelError: [B492] on another preset.
    """
    from spacy_bioel.loading import STARTER, add_context, load_model, load_starter, set_preset

    if str(model) != STARTER:
        nlp = load_model(str(model))
    else:
        nlp = load_starter(disable=disable, exclude=exclude, config=config)
    if preset:
        set_preset(nlp, preset)
    elif context:
        add_context(nlp)
    return nlp


# Functions that are imported when they are asked for, and their modules.
_LATER = {
    "explain": "report",
    "links_frame": "export.html",
    "render": "export.html",
    "displacy_data": "export.html",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})

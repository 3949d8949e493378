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
    """Load a pipeline, by default the starter, which needs no download.

    The starter finds diseases, chemicals, genes, organisms, cell lines and variants, and links them
    to MeSH, NCBI Gene (human, mouse, rat, zebrafish, fly, worm, yeasts), NCBI Taxonomy and
    Cellosaurus. On first use, the first document takes 15 to 60 seconds longer, because the bundled
    knowledge bases are built in the user's cache folder.

    model (str | Path): "starter", the folder or package name of a pipeline, or a knowledge base
        folder, whose names are then found and linked.
    disable, exclude (str | Iterable[str]): Pipes to disable or exclude, as in `spacy.load`,
        such as "bioel_linker".
    config (Mapping | None): Settings to override in the pipeline, nested or with dotted names:
        {"components.bioel_linker.nil_threshold": 0.6}.
    context (bool): Add the `bioel_context` pipe, which marks mentions as negated, uncertain,
        historical, hypothetical, or about another person, in `span._.negated` and so on.
    preset (str | None): "clinical" for clinical notes: adds `bioel_context`, and also recognises
        shorthand and abnormal lab values.
    RETURNS (Language): A pipeline that writes mentions with ids to doc.spans["bioel"]; the id of a
        span is `span._.concept_id`.
    RAISES BioelError: [B662] if the preset is unknown; the same errors as `load_model`.
    """
    from spacy_bioel.loading import load_model, set_preset

    options: Any = {"disable": disable, "exclude": exclude, "config": config}
    nlp = load_model(str(model), preset=preset, **options)
    if context:
        set_preset(nlp, "context")
    return nlp


# Functions that are imported on first access, so that importing the package is fast. Plugins
# register further functions.
_LAZY_MODULES = {
    "explain": "report",
    "links_frame": "export.html",
    "render": "export.html",
    "displacy_data": "export.html",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    import spacy_bioel.registered as registered

    if name in _LAZY_MODULES:
        return getattr(import_module(f"{__name__}.{_LAZY_MODULES[name]}"), name)
    if name.startswith("_") or name not in registered.registered_names(registered.FUNCTIONS):
        plugin = "" if name.startswith("_") else registered.plugin_of(registered.FUNCTIONS, name)
        missing = f": it needs the plugin {plugin!r}, which is missing" if plugin else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{missing}")
    return registered.load_registered(registered.FUNCTIONS, name)


def __dir__() -> list[str]:
    import spacy_bioel.registered as registered

    names = registered.registered_names(registered.FUNCTIONS)
    return sorted({*globals(), *_LAZY_MODULES, *names})

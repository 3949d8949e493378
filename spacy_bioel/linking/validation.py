"""Settings that cannot work: with the model, the order of pipes, their labels, the KB's types."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from spacy.language import Language
from thinc.api import Model

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.rescoring import rescorer_of
from spacy_bioel.pipe import StoredPipe
from spacy_bioel.settings import (
    BY_DICTIONARY,
    DETECTOR,
    LINKER,
    SPANS_AND_DICTIONARY,
    EvidenceSettings,
    LinkerSettings,
)

_ENTS, _SPANS = "doc.ents", "doc.spans"
_N_SHOWN = 5  # types that the knowledge base has


def check_order(nlp: Language, linker: StoredPipe[LinkerSettings]) -> None:
    """Warn [W271] when all that finds mentions comes after the linker, [W320] when it is not where
    the linker looks, [W321] of labels in the settings that no pipe gives.

    linker (StoredPipe): In the pipeline, or taken out of it.
    RAISES BioelError: [B271] when another linker writes to the same span group.
    """
    names = [name for name, pipe in nlp.pipeline if pipe is linker]
    if not names:
        return
    key = linker.cfg["spans_key"]
    for name, pipe in nlp.pipeline:
        is_linker = nlp.get_pipe_meta(name).factory == LINKER
        if is_linker and pipe is not linker and pipe.cfg["spans_key"] == key:  # type: ignore[attr-defined]
            raise BioelError(Errors.B271.format(first=names[0], second=name, key=key))
    if linker.cfg["mentions"] in (BY_DICTIONARY, "model"):
        return
    at = nlp.pipe_names.index(names[0])
    before, after = dict(nlp.pipeline[:at]), dict(nlp.pipeline[at + 1 :])
    finders, late = _finders(nlp, before), _finders(nlp, after)
    if finders:
        if all(nlp.get_pipe_meta(name).assigns for name in before):  # a function may do anything
            _check_places(names[0], linker.cfg, finders)
            of_rules = linker.entities.labels  # type: ignore[attr-defined]
            _check_labels(linker.cfg, before, finders, of_rules)
    elif late:
        warnings.warn(Warnings.W271.format(linker=names[0], finder=next(iter(late))), stacklevel=2)


def _finders(nlp: Language, pipes: Mapping[str, Any]) -> dict[str, set[str]]:
    """Pipes that say that they find mentions, and where they write them: doc.ents, or a span group;
    "doc.spans" stands for a group that they do not name.
    """
    found = {}
    for name, pipe in pipes.items():
        meta = nlp.get_pipe_meta(name)
        places = {_ENTS, _SPANS} & set(meta.assigns)
        if not places or meta.factory == LINKER:
            continue
        if meta.factory == DETECTOR:
            places = {_group(pipe.cfg["spans_key"])} | ({_ENTS} if pipe.cfg["set_ents"] else set())
        elif _SPANS in places and isinstance(key := getattr(pipe, "key", None), str):
            places = places - {_SPANS} | {_group(key)}
        found[name] = places
    return found


def _group(key: str) -> str:
    return f"{_SPANS}[{key!r}]"


def _check_places(name: str, cfg: Mapping[str, Any], finders: Mapping[str, set[str]]) -> None:
    """Warn [W320] when the pipes before write mentions where the linker does not look."""
    spans = {_SPANS, _group(cfg["spans_key"])}
    places = {"ents": {_ENTS}, "spans": spans, SPANS_AND_DICTIONARY: spans}
    wanted = places.get(cfg["mentions"], {_ENTS, *spans})
    written = set().union(*finders.values())
    if wanted.isdisjoint(written):
        about = {"wanted": " or ".join(sorted(wanted - {_SPANS})), "mentions": cfg["mentions"]}
        about |= {"finders": ", ".join(finders), "written": ", ".join(sorted(written))}
        warnings.warn(Warnings.W320.format(linker=name, **about), stacklevel=3)


def _check_labels(
    cfg: Mapping[str, Any],
    pipes: Mapping[str, Any],
    finders: Mapping[str, object],
    of_rules: set[str],
) -> None:
    """Warn [W321] of labels in the settings that no pipe and no rule gives, if all pipes say which
    they give. That knowledge bases are set for more labels, as in the linker of the package, is
    no mistake."""
    given = {name: set(getattr(pipes[name], "labels", ())) for name in finders}
    if not all(given.values()):
        return
    known = set().union(*given.values())
    settings = {key: set(cfg[key]) for key in ("label_types", "kb") if isinstance(cfg[key], dict)}
    if known <= settings.get("kb", set()):
        return
    for setting, labels in settings.items():
        if unknown := sorted(labels - known - of_rules):
            about = {"finders": ", ".join(finders), "known": sorted(known)}
            message = Warnings.W321.format(setting=setting, unknown=unknown, **about)
            warnings.warn(message, stacklevel=3)


def check_types(kb: KnowledgeBase, label_types: Mapping[str, Iterable[str]]) -> None:
    """Warn [W272] of semantic types that the knowledge base does not have."""
    known = set(kb.type_names)
    if not known:  # then the setting has no effect
        return
    for label, types in label_types.items():
        if unknown := sorted(set(types) - known):
            shown = sorted(known)[:_N_SHOWN]
            message = Warnings.W272.format(label=label, unknown=unknown, path=kb.where, known=shown)
            warnings.warn(message, stacklevel=2)


def check_saved_kb(kb: KnowledgeBase | None, linker: str, *, includes_kb: bool) -> None:
    """RAISES BioelError: [B467] when the pipe is saved without a knowledge base that is nowhere
    else, and would come back with that of the package."""
    if kb is not None and not includes_kb and any(part.path is None for part in parts_of(kb)):
        raise BioelError(Errors.B467.format(name=linker))


def check_settings(cfg: Mapping[str, Any], model: Model[Any, Any]) -> LinkerSettings:
    """All settings of a linker, as they are wherever one is made, used, saved or loaded.

    RAISES BioelError: [B270] on a wrong one; [B301] when mentions are to be read by a model that
        finds none, [B066] when no evidence brings candidates.
    """
    settings = LinkerSettings.of(cfg)
    rescorer = rescorer_of(model)
    if settings.mentions == "model" and not (rescorer and rescorer.finds_mentions):
        raise BioelError(Errors.B301.format(model=model.name))
    proposed = {rescorer.evidence} if rescorer and rescorer.proposes else set()
    idle = {"contextual", "generated"} - proposed
    if not settings.evidence.names - idle:
        raise BioelError(Errors.B066.format(known=list(EvidenceSettings.model_fields)))
    return settings

"""Settings that cannot work, found at first use: the order of pipes, and semantic types."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spacy.language import Language

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.linker.settings import BY_KB
from spacy_bioel.pipeline.loading import LINKER

_MENTIONS = {"doc.ents", "doc.spans"}
_N_SHOWN = 5


def check_order(nlp: Language, linker: Any) -> None:
    """Warn [W271] when all that finds mentions comes after the linker.

    linker (Linker): A pipe of it, or one that was taken out.
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
    at = nlp.pipe_names.index(names[0])
    before, after = nlp.pipe_names[:at], nlp.pipe_names[at + 1 :]
    late = _finders(nlp, after)
    if linker.cfg["mentions"] not in (*BY_KB, "read") and late and not _finders(nlp, before):
        warnings.warn(Warnings.W271.format(linker=names[0], finder=late[0]), stacklevel=2)


def _finders(nlp: Language, names: Sequence[str]) -> list[str]:
    """Pipes that say that they find mentions."""
    metas = {name: nlp.get_pipe_meta(name) for name in names}
    return [n for n, m in metas.items() if m.factory != LINKER and _MENTIONS & set(m.assigns)]


def check_types(kb: KnowledgeBase, label_types: Mapping[str, Iterable[str]]) -> None:
    """Warn [W272] of semantic types that the knowledge base does not have."""
    known = set(kb.type_names)
    for label, types in label_types.items():
        if unknown := sorted(set(types) - known):
            shown = sorted(known)[:_N_SHOWN]
            message = Warnings.W272.format(label=label, unknown=unknown, path=kb.where, known=shown)
            warnings.warn(message, stacklevel=2)

"""The presets "clinical" (for clinical notes) and "context" (for `bioel_context` alone)."""

from __future__ import annotations

from spacy.language import Language
from spacy.util import registry

from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.explanation import register_extensions
from spacy_bioel.loading import find_detector, find_linker, pipes_made_by, spans_key
from spacy_bioel.plugins.clinical.factories import CONTEXT
from spacy_bioel.plugins.clinical.tables import note_tables


def add_context(nlp: Language) -> None:
    """Append a `bioel_context` pipe to a pipeline that lacks one."""
    if not any(pipes_made_by(CONTEXT, nlp)):
        nlp.add_pipe(CONTEXT, config={"spans_key": spans_key(find_linker(nlp))})


def adapt_to_notes(nlp: Language) -> None:
    """Adapt a pipeline to clinical notes.

    The pipeline then recognises shorthand and abnormal lab values, and marks mentions as negated,
    historical, and so on.
    """
    if linker := find_linker(nlp):
        notes = {"@misc": "spacy-bioel.Notes.v1", "clinical": True, "measurements": True}
        linker.entities = RuleSet(linker.entities.rules | registry.resolve({"notes": notes}))
        register_extensions(linker.entities.fact_names)
        name = next(name for name, pipe in nlp.pipeline if pipe is linker)
        nlp._pipe_configs[name].setdefault("entities", {})["notes"] = notes
    if detector := find_detector(nlp):
        detector.cfg["exclude"] = sorted({*detector.cfg["exclude"], *note_tables()["exclude"]})
    add_context(nlp)

"""The `bioel_context` factory; spaCy imports this module for every pipeline."""

# No `from __future__ import annotations`: spaCy reads the annotations as types.

from typing import TYPE_CHECKING, Any

from pydantic import Field
from spacy.language import Language

from spacy_bioel.plugins.clinical.status import CONTEXT_VALUES
from spacy_bioel.settings import Settings, takes

CONTEXT = "bioel_context"

if TYPE_CHECKING:
    from spacy_bioel.plugins.clinical.context import MentionContext


class ContextSettings(Settings):
    pipe = CONTEXT

    rules: str = Field(
        default="",
        description='JSON file with cues and sections; `""`: the bundled rules. The rules are '
        "saved with the pipeline.",
    )
    spans_key: str = Field(
        default="",
        description='Span group with the mentions. `""`: all groups written by the detectors and '
        "linkers in the pipeline.",
    )


@Language.factory(
    CONTEXT,
    assigns=[f"span._.{name}" for name in (*CONTEXT_VALUES, "context_cues")],
    requires=["doc.spans"],
    default_config=ContextSettings.defaults(),
)
@takes(ContextSettings)
def make_context(nlp: Language, name: str, **settings: Any) -> "MentionContext":
    """Make a `bioel_context` pipe, which marks mentions as negated, historical, and so on."""
    from spacy_bioel.pipe import keep_config_current
    from spacy_bioel.plugins.clinical.context import MentionContext

    context = MentionContext(nlp.tokenizer, name, **dict(ContextSettings.of(settings)))
    keep_config_current(nlp, context)
    return context

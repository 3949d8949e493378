"""The context of a mention, and the "context" fact that stores it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from spacy_bioel.types import DeclaredFact, Link


@dataclass(frozen=True, slots=True)
class Context:
    """What a note says about a mention (see `context.py`). Unknown flags are None.

    experiencer (str): Who has the condition: "patient", "family" or "other".
    relative (str): The relative with the condition, such as "mother"; "" if the text names none.
    layout (str): The kinds of layout nodes around the mention: "section, list, item".
    cues (tuple): Start, end and meaning of each cue that determines the context.
    """

    negated: bool | None = False
    uncertain: bool | None = False
    historical: bool | None = False
    hypothetical: bool | None = False
    experiencer: str = "patient"
    relative: str = ""
    layout: str = ""
    cues: tuple[tuple[int, int, str], ...] = ()

    @property
    def assertion(self) -> str:
        """The status in one word: "unknown", or the first that applies of "absent" (even in a
        relative), "family", "other", "conditional", "possible", "historical" and "present"."""
        if self.negated is None:
            return "unknown"
        if self.negated:
            return "absent"
        if self.experiencer != "patient":
            return self.experiencer
        if self.hypothetical:
            return "conditional"
        return "possible" if self.uncertain else "historical" if self.historical else "present"

    @classmethod
    def of(cls, link: Link) -> Context | None:
        """Return the context of a link; None if `bioel_context` did not run."""
        if (value := link.facts.get("context")) is None:
            return None
        cues = tuple((cue["start"], cue["end"], cue["says"]) for cue in value["cues"])
        return cls(**{name: value[name] for name in CONTEXT_VALUES[:-1]}, cues=cues)

    def to_fact(self) -> dict[str, Any]:
        """Return the value of the "context" fact: the context as JSON, with the assertion."""
        values = {name: getattr(self, name) for name in CONTEXT_VALUES}
        cues = [{"start": start, "end": end, "says": says} for start, end, says in self.cues]
        return {**values, "cues": cues}


# Names of a context's values, used as keys of the fact and as `Span` extensions.
CONTEXT_VALUES = (
    "negated uncertain historical hypothetical experiencer relative layout assertion".split()
)


def _moved(value: Mapping[str, Any], by: int) -> dict[str, Any]:
    cues = [{**cue, "start": cue["start"] + by, "end": cue["end"] + by} for cue in value["cues"]]
    return {**value, "cues": cues}


def _described(value: Mapping[str, Any], text: str) -> str:
    """Describe what a text says about a mention, with the cues: 'negated ("denies")'."""
    cues: dict[str, list[str]] = defaultdict(list)
    for cue in value["cues"]:
        cues[cue["says"]].append(" ".join(text[cue["start"] : cue["end"]].split()))
    return ", ".join(f'{meaning} ("{", ".join(words)}")' for meaning, words in cues.items())


def _noted(value: Mapping[str, Any], text: str) -> str:
    said = (value["assertion"], value["relative"], _described(value, text), value["layout"])
    return "; ".join(filter(None, said))


def _css_class(value: Mapping[str, Any]) -> str:
    is_affirmed = value["hypothetical"] is False and value["experiencer"] == "patient"
    return "negated" if value["negated"] else "" if is_affirmed else "other"


def _value_of(name: str, value: Mapping[str, Any], text: str) -> Any:
    return value[name]


def _cue_texts(value: Mapping[str, Any], text: str) -> tuple[str, ...]:
    return tuple(text[cue["start"] : cue["end"]] for cue in value["cues"])


CONTEXT_FACT = DeclaredFact(
    columns={
        "context": lambda value: "|".join(sorted({cue["says"] for cue in value["cues"]})) or None,
        "assertion": lambda value: value["assertion"],
        "relative": lambda value: value["relative"] or None,
    },
    extensions={
        **{name: partial(_value_of, name) for name in CONTEXT_VALUES},
        "context_cues": _cue_texts,
    },
    moved=_moved,
    described=_described,
    noted=_noted,
    css_class=_css_class,
    css_classes=("negated", "other"),
    legend="Struck through: negated. Pale: conditional, unknown, or about another person.",
)

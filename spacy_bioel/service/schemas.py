"""Forms of requests and answers, which are also their documentation in /openapi.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from spacy_bioel.service import Limits
from spacy_bioel.types import KbRelease


def _string(value: object) -> str:
    """Check the type only: pydantic refuses lone surrogates, of which the text itself fails."""
    if not isinstance(value, str):
        raise ValueError("expected a string")
    return value


def _object(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        return {"text": value}
    raise ValueError('expected a text, as a string or as {"text": ..., "id": ...}')


String = Annotated[str, PlainValidator(_string), WithJsonSchema({"type": "string"})]


class Request(BaseModel):
    """Object of a request, with the keys that it may have and no other."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})

    @model_validator(mode="before")
    @classmethod
    def _no_other_key(cls, value: object) -> object:
        # pydantic would make an error of each key, of which a request may have a million.
        if isinstance(value, Mapping):
            for key in value:
                if key not in cls.model_fields:
                    expected = ", ".join(cls.model_fields)
                    raise ValueError(f"unknown key {key[:80]!r}, expected {expected}")
        return value


class Text(Request):
    """A text with an id of its own."""

    text: String = Field(description="The text, as Unicode; offsets in the answer count characters")
    id: Annotated[
        str | None,
        PlainValidator(lambda value: value if value is None else _string(value)),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ] = Field(default=None, description="Id of the text, which the answer repeats")


class LinkRequest(Request):
    """Texts to link, one or many."""

    texts: Annotated[
        list[Annotated[Text, BeforeValidator(_object, json_schema_input_type=str | Text)]],
        FailFast(),
    ] = Field(
        description="Texts, each a string or an object with a text and an id",
        examples=[["Naloxone reverses the hypotension that clonidine causes."]],
    )
    candidates: bool = Field(
        default=True, strict=True, description="Whether links have their candidates"
    )
    xrefs: bool = Field(
        default=False,
        strict=True,
        description="Whether candidates have their cross-references to other vocabularies",
    )


class Failure(BaseModel):
    """The error of a text that could not be linked."""

    code: str = Field(description='Code of the message, such as "B384"', examples=["B384"])
    message: str = Field(description="The error: what was found, what was expected, what to do")


class Problem(Failure):
    """An error. Its code is listed with the errors of spacy-bioel."""

    where: str | None = Field(description='Place in the request, such as "body.texts.3"')


class Candidate(BaseModel):
    """A concept that the mention may be linked to."""

    id: str
    score: float = Field(description="From 0 to 1, comparable across mentions")
    name: str = Field(description="The name of the concept that matched")
    evidence: str = Field(description='Sources of evidence, the strongest first: "exact+dense"')
    xrefs: list[str] | None = Field(default=None, description="Cross-references, on request")


class Cue(BaseModel):
    """Words that say something of a mention."""

    start: int
    end: int
    says: str = Field(description='What they say, such as "negated"')


class Context(BaseModel):
    """What the text says of a mention."""

    negated: bool
    uncertain: bool
    historical: bool
    hypothetical: bool
    experiencer: str = Field(description='"patient", "family" or "other"')
    cues: list[Cue]


class Link(BaseModel):
    """A mention, and what it is linked to.

    Further keys are facts that rules for its kind of text found, such as hgvs, component and gene
    of a variant.
    """

    model_config = ConfigDict(extra="allow")

    start: int = Field(description="Offset of the first character in the text")
    end: int = Field(description="Offset after the last character")
    text: str = Field(description="The mention")
    label: str = Field(description='Its type, such as "Disease"')
    id: str | None = Field(description="The first of ids; null: no concept (NIL)")
    ids: list[str] = Field(description="Ids of concepts; several of a composite mention")
    candidates: list[Candidate] | None = Field(
        default=None, description="Best first; absent if not wanted"
    )
    context: Context | None = Field(
        default=None, description="Of a pipeline with the pipe bioel_context"
    )


class LinkedText(BaseModel):
    """A text with its links, the same as a line of `bioel link`."""

    id: str | None
    text: str | None = Field(description="The text; null if it was too long")
    links: list[Link]
    error: Failure | None = Field(description="Null, or why this text could not be linked")


class LinkAnswer(BaseModel):
    """The texts in the order of the request. One that failed does not concern the others."""

    documents: list[LinkedText]


class Concept(BaseModel):
    """An entry of the knowledge base."""

    id: str = Field(description="The current id, if another was asked for that is retired")
    name: str = Field(description="The preferred name")
    names: list[str] = Field(description="All names, the preferred one first")
    types: list[str]
    parents: list[str] = Field(description="Ids of broader concepts")
    definition: str = Field(description="May be empty")
    xrefs: list[str] = Field(description="Cross-references to other vocabularies")


class FoundConcept(BaseModel):
    """A concept that a search found."""

    id: str
    name: str = Field(description="The preferred name")
    matched: str = Field(description="The name that is most like the words, or the id")
    score: float = Field(description="Likeness in spelling, up to 1")
    types: list[str]


class SearchAnswer(BaseModel):
    """Concepts that a search found, the best first."""

    concepts: list[FoundConcept]


@dataclass(frozen=True, slots=True)
class KbInfo(KbRelease):
    """A knowledge base; texts are empty where it does not say."""

    names: int


class ModelInfo(BaseModel):
    """Name and version of the pipeline."""

    name: str
    version: str


class Info(BaseModel):
    """Everything that answers depend on, and the limits."""

    model: ModelInfo
    versions: dict[str, str]
    kbs: list[KbInfo]
    limits: Limits


class Status(BaseModel):
    """Answer to a probe."""

    status: str

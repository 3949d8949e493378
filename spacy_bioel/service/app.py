"""The HTTP application: the forms of requests and answers, which are also their documentation in
/openapi.json, and routes to the service.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
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

from spacy_bioel import __version__
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.service import Limits
from spacy_bioel.service.middleware import (
    HANDLERS,
    CheckHost,
    Failure,
    LimitRequests,
    MeasureRequests,
    Metrics,
    Refusal,
    problems,
)
from spacy_bioel.service.service import Job, Service, Values
from spacy_bioel.types import KbRelease

_MOST_FOUND = 100
_LONGEST_QUERY = 500
# The page needs nothing but itself and this service.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


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


class _Strict(BaseModel):
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


class Text(_Strict):
    """A text with an id of its own."""

    text: String = Field(description="The text, as Unicode; offsets in the answer count characters")
    id: Annotated[
        str | None,
        PlainValidator(lambda value: value if value is None else _string(value)),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ] = Field(default=None, description="Id of the text, which the answer repeats")


class LinkRequest(_Strict):
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


def create_app(service: Service, limits: Limits, *, hosts: Collection[str] = ()) -> FastAPI:
    """Make the application of a service.

    service (Service): Started by the caller, before or after.
    hosts (Collection[str]): Names by which it may be asked; see `middleware.CheckHost`.
    """
    app = FastAPI(
        title="spacy-bioel",
        version=__version__,
        description="Biomedical entity linking: mentions in texts, and the concepts that they name",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=HANDLERS,
    )
    metrics = Metrics(service)
    app.add_middleware(LimitRequests, limits=limits)
    app.add_middleware(CheckHost, hosts=hosts)
    app.add_middleware(MeasureRequests, metrics=metrics)
    _add_verbs(app, service, limits)
    _add_probes(app, service, metrics)
    return app


def _add_verbs(app: FastAPI, service: Service, limits: Limits) -> None:
    @app.post(
        "/link",
        response_model=LinkAnswer,
        responses=problems(400, 408, 413, 415, 422, 503),
        dependencies=[Depends(_require_json)],
    )
    async def link(request: LinkRequest) -> Response:
        """Find and link the mentions of texts."""
        if len(request.texts) > limits.texts:
            found = len(request.texts)
            raise Refusal(
                422, Errors.B383.format(found=found, most=limits.texts), where="body.texts"
            )
        jobs = [
            Job((text.text, text.id), candidates=request.candidates, xrefs=request.xrefs)
            for text in request.texts
        ]
        return JSONResponse({"documents": await service.link(jobs)})

    @app.get("/concepts/{id:path}", response_model=Concept, responses=problems(404, 422, 503))
    def concept(id: str) -> Values:
        """Look up a concept by its id, or by an id that it replaced."""
        return service.concept(id)

    @app.get("/search", response_model=SearchAnswer, responses=problems(422, 503))
    def search(
        q: Annotated[
            str,
            Query(
                min_length=1,
                max_length=_LONGEST_QUERY,
                description="Words of a name, in any order, also misspelled; or an id",
            ),
        ],
        k: Annotated[int, Query(ge=1, le=_MOST_FOUND, description="Number of concepts")] = 10,
    ) -> Values:
        """Search for concepts by their names."""
        return {"concepts": service.search(q, k)}

    @app.get("/info", response_model=Info, responses=problems(503))
    def info() -> Values:
        """Tell which model, knowledge bases and versions answer, and the limits."""
        return service.about() | {"limits": limits}


def _add_probes(app: FastAPI, service: Service, metrics: Metrics) -> None:
    @app.get("/livez", response_model=Status)
    async def livez() -> dict[str, str]:
        """Tell that the process answers."""
        return {"status": "alive"}

    @app.get("/readyz", response_model=Status, responses=problems(503))
    async def readyz() -> dict[str, str]:
        """Tell whether the pipeline is loaded and has linked a text."""
        if not service.is_ready:
            raise BioelError(Errors.B387)
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    async def prometheus() -> Response:
        return Response(metrics.page(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        html = files("spacy_bioel.service").joinpath("page.html").read_text(encoding="utf8")
        return HTMLResponse(html, headers={"Content-Security-Policy": _POLICY})


def _require_json(request: Request) -> None:
    """RAISES Refusal: [B394] a body that is not declared as JSON."""
    found = request.headers.get("content-type", "")
    if found.partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, Errors.B394.format(found=found[:80] or "none"), where="header")

"""The HTTP application: request and response models, and the service's routes.

The models and the route docstrings are also the documentation in /openapi.json.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from inspect import getdoc
from typing import Annotated, Any, get_type_hints

from fastapi import Depends, FastAPI, Query, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    WithJsonSchema,
    create_model,
    model_validator,
)

from spacy_bioel import __version__
from spacy_bioel.errors import BioelError
from spacy_bioel.export.html import FACTS, columns_of
from spacy_bioel.export.pages import pages_of
from spacy_bioel.export.rows import DocumentRow, LinkRow
from spacy_bioel.plugins.service import Limits
from spacy_bioel.plugins.service.errors import ServiceErrors
from spacy_bioel.plugins.service.functions import offer_registered, runs_in_worker
from spacy_bioel.plugins.service.middleware import (
    HANDLERS,
    CheckHost,
    LimitRequests,
    MeasureRequests,
    Metrics,
    Refusal,
    problems,
)
from spacy_bioel.plugins.service.service import Service, Values
from spacy_bioel.plugins.service.worker import LOST_TEXT_CODES, Job
from spacy_bioel.registered import ROUTES
from spacy_bioel.types import KbRelease

_MAX_SEARCH_RESULTS = 100
_MAX_QUERY_LENGTH = 500
# Content security policy: pages load nothing from other servers.
_POLICY = (
    "default-src 'none'; script-src {}; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def _check_string(value: object) -> str:
    """Check only the type: pydantic would reject a whole request for one lone surrogate."""
    if not isinstance(value, str):
        raise ValueError("expected a string")
    return value


_String = Annotated[str, PlainValidator(_check_string), WithJsonSchema({"type": "string"})]


def _to_text_object(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        return {"text": value}
    raise ValueError('expected a text, as a string or as {"text": ..., "id": ...}')


class _Strict(BaseModel):
    """Base class for objects in a request; unknown keys are errors."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, value: object) -> object:
        # pydantic would create an error for each key, and a request may have a million keys.
        if isinstance(value, Mapping):
            for key in value:
                if key not in cls.model_fields:
                    expected = ", ".join(cls.model_fields)
                    raise ValueError(f"unknown key {key[:80]!r}, expected {expected}")
        return value


class TextIn(_Strict):
    """A text to link, with an optional id."""

    text: _String = Field(
        description="The text, as Unicode; offsets in the response count characters"
    )
    id: _String | None = Field(default=None, description="Id of the text, repeated in the response")


def _describe_text(schema: dict[str, Any]) -> None:
    """Specify in the schema that a request has "texts" or, for a single text, "text"."""
    schema["properties"]["text"] = schema["properties"]["texts"]["items"]
    schema["oneOf"] = [{"required": ["text"]}, {"required": ["texts"]}]
    schema["additionalProperties"] = False
    del schema["required"]


class _TextsRequest(_Strict):
    model_config = ConfigDict(json_schema_extra=_describe_text)

    @model_validator(mode="before")
    @classmethod
    def _take_text(cls, value: object) -> object:
        if isinstance(value, dict) and "text" in value and "texts" not in value:
            value = value | {"texts": [value["text"]]}
            del value["text"]
        return value


class LinkRequest(_TextsRequest):
    """Texts to link. A single text may be sent as `text` instead of `texts`."""

    texts: Annotated[
        list[
            Annotated[TextIn, BeforeValidator(_to_text_object, json_schema_input_type=str | TextIn)]
        ],
        FailFast(),
    ] = Field(
        description="Texts, each a string or an object with a text and an id",
        examples=[["Naloxone reverses the hypotension that clonidine causes."]],
    )
    candidates: bool = Field(
        default=True, strict=True, description="Whether links include their candidates"
    )
    xrefs: bool = Field(
        default=False,
        strict=True,
        description="Whether candidates include cross-references to other vocabularies",
    )
    explain: bool = Field(
        default=False,
        strict=True,
        description="Whether links include a reason, and candidates the preferred name and species",
    )


class CueOut(BaseModel):
    """Words that signal the context of a mention, such as negation."""

    start: int
    end: int
    says: str = Field(description='The context that the words signal, such as "negated"')


class ContextOut(BaseModel):
    """A mention's context, such as whether the text negates it; null if that is not clear."""

    negated: bool | None
    uncertain: bool | None
    historical: bool | None
    hypothetical: bool | None
    experiencer: str = Field(description='"patient", "family" or "other"')
    relative: str = Field(description='The relative who has it, such as "mother", or ""')
    layout: str = Field(description='The parts of the note around it: "section, list, item"')
    assertion: str = Field(description='The status in one word, such as "absent"')
    cues: list[CueOut]


class LinkOut(LinkRow):
    __doc__ = LinkRow.__doc__

    context: ContextOut | None = Field(
        default=None, description="Present if the pipeline has a bioel_context pipe"
    )


class DocumentOut(DocumentRow):
    __doc__ = DocumentRow.__doc__

    links: list[LinkOut]  # type: ignore[assignment]


class LinkAnswer(BaseModel):
    """The linked texts, in request order. A failed text does not affect the others."""

    documents: list[DocumentOut]


class ConceptOut(BaseModel):
    """A concept in the knowledge base."""

    id: str = Field(description="The current id, if a retired id was requested")
    name: str = Field(description="The preferred name")
    names: list[str] = Field(description="All names, the preferred one first")
    types: list[str]
    parents: list[str] = Field(description="Ids of broader concepts")
    definition: str = Field(description="May be empty")
    xrefs: list[str] = Field(description="Cross-references to other vocabularies")


class ConceptHit(BaseModel):
    """A concept found by a search."""

    id: str
    name: str = Field(description="The preferred name")
    matched: str = Field(description="The name most similar to the words, or the id")
    score: float = Field(description="Similarity of spelling, up to 1")
    types: list[str]


class SearchAnswer(BaseModel):
    """Concepts found by a search, best first."""

    concepts: list[ConceptHit]


@dataclass(frozen=True, slots=True)
class KbInfo(KbRelease):
    """A knowledge base; unknown values are empty."""

    names: int


class ModelInfo(BaseModel):
    """The pipeline's name, version, pipes and threshold."""

    name: str
    version: str
    pipes: list[str] = Field(description='With "bioel_context" if links have a context')
    nil_threshold: float = Field(description="Minimum score of a link")


class Info(BaseModel):
    """The pipeline, versions and knowledge bases that results depend on, and the limits."""

    model: ModelInfo
    versions: dict[str, str]
    kbs: list[KbInfo]
    limits: Limits


class Status(BaseModel):
    """Response to a health probe."""

    status: str


def create_app(service: Service, limits: Limits, *, hosts: Collection[str] = ()) -> FastAPI:
    """Create the HTTP application for a service.

    service (Service): The caller starts it, before or after this call.
    hosts (Collection[str]): Allowed host names; see `middleware.CheckHost`.
    """
    app = FastAPI(
        title="spacy-bioel",
        version=__version__,
        description="Biomedical entity linking: find mentions in texts, and link them to concepts",
        docs_url=None,  # FastAPI's own pages load scripts from other servers
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=HANDLERS,
    )
    metrics = Metrics(service)
    app.add_middleware(LimitRequests, limits=limits)
    app.add_middleware(CheckHost, hosts=hosts)
    app.add_middleware(MeasureRequests, metrics=metrics)
    _add_api(app, service, limits)
    _add_probes(app, service, metrics)
    page = pages_of(__package__).get_template("service.html").render(columns=columns_of(FACTS))
    _add_page(app, "/", page)
    swagger = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="spacy-bioel: API",
        swagger_js_url="swagger/swagger-ui-bundle.js",
        swagger_css_url="swagger/swagger-ui.css",
        swagger_favicon_url="data:,",
    )
    _add_page(app, "/docs", bytes(swagger.body).decode())
    app.mount("/swagger", StaticFiles(packages=[("fastapi_offline", "static")]))
    return app


def _add_api(app: FastAPI, service: Service, limits: Limits) -> None:
    posted: Any = {"responses": problems(400, 408, 413, 415, 422, 429, 503)}
    posted["dependencies"] = [Depends(_require_json)]

    @app.post("/link", response_model=LinkAnswer, **posted)
    async def link(request: LinkRequest) -> Response:
        """Find and link the mentions in texts."""
        _check_number(request.texts, limits)
        jobs = [
            Job((text.text, text.id), request.candidates, request.xrefs, request.explain)
            for text in request.texts
        ]
        answers = await service.link(jobs)
        errors = [answer.error for answer in answers]
        lost = [error for error in errors if error and error.code in LOST_TEXT_CODES]
        if lost and len(lost) == len(answers):
            raise Refusal(503, f"[{lost[0].code}] {lost[0].message}", where="body.texts")
        # The workers build the JSON, because doing so here would delay other requests.
        content = b'{"documents":[%s]}' % b",".join(answer.row for answer in answers)
        return Response(content, media_type="application/json")

    _add_others(app, service, limits, posted)

    @app.get("/concepts/{id:path}", response_model=ConceptOut, responses=problems(404, 422, 503))
    def concept(id: str) -> Values:
        """Look up a concept by its id, or by a retired id that now resolves to it."""
        return service.concept(id)

    @app.get("/search", response_model=SearchAnswer, responses=problems(422, 503))
    def search(
        q: Annotated[
            str,
            Query(
                min_length=1,
                max_length=_MAX_QUERY_LENGTH,
                description="Words of a name, in any order, possibly misspelled; or an id",
            ),
        ],
        k: Annotated[
            int, Query(ge=1, le=_MAX_SEARCH_RESULTS, description="Number of concepts")
        ] = 10,
    ) -> Values:
        """Search for concepts by name."""
        return {"concepts": service.search(q, k)}

    @app.get("/info", response_model=Info, responses=problems(503))
    def info() -> Values:
        """Return the service's model, knowledge bases, versions and limits."""
        return service.about() | {"limits": limits}


def _add_others(app: FastAPI, service: Service, limits: Limits, posted: Any) -> None:
    """Add routes from other packages; an unusable route responds with the reason.

    Requests that take a list `texts` may have `text` instead, with the same limits as for /link.
    """

    def add(name: str, function: Callable[..., Any]) -> None:
        hints = get_type_hints(function, include_extras=True).items()
        _, (parameter, request_type), (_, answer_type) = hints
        about: Any = {"name": name, "description": getdoc(function), "response_model": answer_type}

        def bound(request: _Strict) -> Callable[..., Any]:
            values = dict(request)
            texts = values.get("texts", ())
            _check_number(texts, limits)
            service.refuse_long([*values.values(), *texts])
            # Use the function's own type, because a worker process cannot import the strict one.
            own = request_type.model_construct(request.model_fields_set, **values)
            return partial(function, **{parameter: own})

        def here(request: _Strict) -> Any:
            return bound(request)(service.kb)

        async def in_worker(request: _Strict) -> Response:
            return Response(await service.call(bound(request)), media_type="application/json")

        endpoint = in_worker if runs_in_worker(function) else here
        strict = _TextsRequest if "texts" in request_type.model_fields else _Strict
        endpoint.__annotations__["request"] = create_model(
            request_type.__name__, __base__=(strict, request_type), __doc__=request_type.__doc__
        )
        app.post(f"/{name}", **about, **posted)(endpoint)

    def refuse(error: BioelError) -> None:
        raise error

    for name, error in offer_registered(ROUTES, ["link"], add).items():
        app.post(f"/{name}", include_in_schema=False)(partial(refuse, error))


def _check_number(texts: Sized, limits: Limits) -> None:
    """Check the number of texts in a request. RAISES Refusal: [B383] if there are too many."""
    if len(texts) > limits.texts:
        message = ServiceErrors.B383.format(found=len(texts), most=limits.texts)
        raise Refusal(422, message, where="body.texts")


def _add_probes(app: FastAPI, service: Service, metrics: Metrics) -> None:
    @app.get("/livez", response_model=Status)
    async def livez() -> dict[str, str]:
        """Report that the process is running."""
        return {"status": "alive"}

    @app.get("/readyz", response_model=Status, responses=problems(503))
    async def readyz() -> dict[str, str]:
        """Report whether the pipeline is loaded and has linked a text."""
        if not service.is_ready:
            raise BioelError(ServiceErrors.B387)
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    async def prometheus() -> Response:
        page = generate_latest(metrics.registry)
        return Response(page, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _add_page(app: FastAPI, path: str, html: str) -> None:
    """Add a page that may run only the scripts that it contains or links to."""
    scripts = [part.partition("</script>")[0] for part in html.split("<script>")[1:]]
    digests = (sha256(script.encode()).digest() for script in scripts)
    sources = [f"'sha256-{b64encode(digest).decode()}'" for digest in digests]
    sources += ["'self'"] if "<script src=" in html else []
    policy = _POLICY.format(" ".join(sources))

    @app.get(path, include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})


def _require_json(request: Request) -> None:
    """Check the content type. RAISES Refusal: [B394] if it is not JSON."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise Refusal(
            415, ServiceErrors.B394.format(found=content_type[:80] or "none"), where="header"
        )

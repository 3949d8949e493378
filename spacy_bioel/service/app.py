"""The HTTP application: routes to the service."""

from __future__ import annotations

from collections.abc import Collection
from importlib.resources import files
from typing import Annotated

from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from spacy_bioel import __version__
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.service import Limits, schemas
from spacy_bioel.service.middleware import (
    HANDLERS,
    CheckHost,
    LimitRequests,
    MeasureRequests,
    Metrics,
    Refusal,
    problems,
)
from spacy_bioel.service.service import Job, Service, Values

_MOST_FOUND = 100
_LONGEST_QUERY = 500
# The page needs nothing but itself and this service.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


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
        response_model=schemas.LinkAnswer,
        responses=problems(400, 408, 413, 415, 422, 503),
        dependencies=[Depends(_require_json)],
    )
    async def link(request: schemas.LinkRequest) -> Response:
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

    @app.get(
        "/concepts/{id:path}", response_model=schemas.Concept, responses=problems(404, 422, 503)
    )
    def concept(id: str) -> Values:
        """Look up a concept by its id, or by an id that it replaced."""
        return service.concept(id)

    @app.get("/search", response_model=schemas.SearchAnswer, responses=problems(422, 503))
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

    @app.get("/info", response_model=schemas.Info, responses=problems(503))
    def info() -> Values:
        """Tell which model, knowledge bases and versions answer, and the limits."""
        return service.about() | {"limits": limits}


def _add_probes(app: FastAPI, service: Service, metrics: Metrics) -> None:
    @app.get("/livez", response_model=schemas.Status)
    async def livez() -> dict[str, str]:
        """Tell that the process answers."""
        return {"status": "alive"}

    @app.get("/readyz", response_model=schemas.Status, responses=problems(503))
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

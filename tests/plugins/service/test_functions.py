"""Routes and agent tools that other packages register, and the service without any."""

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from mcp import Client
from starlette.testclient import TestClient
from tables import cases

import spacy_bioel.registered as registered
from spacy_bioel.errors import BioelError
from spacy_bioel.loading import load_model
from spacy_bioel.plugins.service import Limits
from spacy_bioel.plugins.service.app import create_app
from spacy_bioel.plugins.service.mcp import make_agent_tools
from spacy_bioel.plugins.service.service import Service
from spacy_bioel.registered import ROUTES, TOOLS

MODULE = '''
import os
from typing import Annotated, Any

from pydantic import BaseModel, Field
from spacy.language import Language

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.knowledge_base import KnowledgeBase


class Part(BaseModel):
    text: str


class Question(BaseModel):
    """A text, or its parts."""

    text: str = ""
    parts: list[Part] = []


class Size(BaseModel):
    """A number, and the process that counted."""

    n: int = Field(description="The number")
    process: int


def concepts(kb: KnowledgeBase, question: Question) -> Size:
    """Count the concepts."""
    return Size(n=len(kb), process=os.getpid())


def mentions(nlp: Language, question: Question) -> Size:
    """Count the mentions in a text."""
    if "bug" in question.text:
        raise KeyError(question.text)
    if "wrong" in question.text:
        raise BioelError("[B337] There is no such thing.")
    if "dies" in question.text:
        os._exit(3)
    texts = [question.text, *(part.text for part in question.parts)]
    return Size(n=sum(len(doc.spans["bioel"]) for doc in nlp.pipe(texts)), process=os.getpid())


def count_concepts(kb: KnowledgeBase) -> dict[str, Any]:
    """Count the concepts."""
    return {"n": len(kb)}


def count_mentions(
    nlp: Language, text: Annotated[str, Field(description="Running text")], times: int = 1
) -> dict[str, Any]:
    """Count the mentions in a text."""
    return {"n": times * len(nlp(text).spans["bioel"])}


count_mentions.instructions = "Count with count_mentions."


def untyped(nlp, question): ...
def of_a_text(text: str, question: Question) -> Size: ...
def no_request(kb: KnowledgeBase) -> Size: ...
def no_model(kb: KnowledgeBase, question: str) -> Size: ...
'''
COUNTS = {"size/concepts": "third:concepts", "mentions": "third:mentions"}
Install = Callable[..., None]


def forget() -> None:
    registered._registered.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture
def install(tmp_path, monkeypatch) -> Iterator[Install]:
    """Install a distribution with a module `third`, and these routes and tools."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "third.py").write_text(MODULE)

    def install(name: str = "third", **groups: dict[str, str]) -> None:
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            line
            for group, points in groups.items()
            for line in (f"[spacy_bioel_{group}]", *map(" = ".join, points.items()))
        ]
        (about / "entry_points.txt").write_text("\n".join(lines))
        forget()

    yield install
    sys.modules.pop("third", None)
    monkeypatch.undo()
    forget()


@pytest.fixture(scope="module")
def service(nlp, new_service) -> Service:
    service = new_service(lambda: nlp)
    service.start()
    service.wait()
    return service


def client_of(service: Service) -> TestClient:
    app = create_app(service, Limits(characters=50))
    return TestClient(app, "http://localhost", raise_server_exceptions=False)


def asked(service: Service, ask: Callable[[Client], Any]) -> Any:
    async def run() -> Any:
        async with Client(make_agent_tools(service)) as client:
            return await ask(client)

    return asyncio.run(run())


def tools_of(service: Service) -> list[str]:
    return [tool.name for tool in asked(service, Client.list_tools).tools]


def test_a_service_alone(service, monkeypatch):
    known, hidden = registered._registered, {ROUTES, TOOLS}
    of_group = lambda group: {} if group in hidden else known(group)  # noqa: E731
    monkeypatch.setattr(registered, "_registered", of_group)
    client = client_of(service)
    answer = client.post("/link", json={"texts": ["Narcan was given."]})
    assert [link["id"] for link in answer.json()["documents"][0]["links"]] == ["X:1"]
    answer = client.post("/check", json={"text": "Narcan (X:1)"})
    assert (answer.status_code, answer.json()["code"]) == (404, "B380")
    described = client.get("/openapi.json").json()
    assert sorted(described["paths"]) == [
        "/concepts/{id}", "/info", "/link", "/livez", "/readyz", "/search"
    ]  # fmt: skip
    assert not [name for name in described["components"]["schemas"] if "Check" in name]
    assert tools_of(service) == ["link_text", "get_concept", "search_concepts"]
    assert str(make_agent_tools(service).instructions).endswith("find out what an id means.")


def test_routes(service, install, monkeypatch):
    install(routes=COUNTS)
    client = client_of(service)
    found = client.post("/size/concepts", json={}).json()
    assert found == {"n": len(service.kb), "process": os.getpid()}
    body = {"text": "Narcan and clonidine", "parts": [{"text": "Narcan"}]}
    assert client.post("/mentions", json=body).json()["n"] == 3
    about = client.get("/openapi.json").json()
    operation = about["paths"]["/mentions"]["post"]
    assert operation["description"] == "Count the mentions in a text."
    schema = about["components"]["schemas"]["Question"]
    assert schema["description"] == "A text, or its parts."
    assert schema["additionalProperties"] is False
    assert "/link" in about["paths"] and "/size/concepts" in about["paths"]
    metrics = client.get("/metrics").text
    assert 'bioel_requests_total{route="/mentions",status="200"} 1.0' in metrics
    assert "bioel_texts_total{" not in metrics  # calls are no texts
    monkeypatch.setattr("third.Size", None)  # a bug in this process
    answer = client.post("/size/concepts", json={})
    assert (answer.status_code, answer.json()["code"]) == (500, "B392")


@pytest.mark.parametrize("path", ["/size/concepts", "/mentions"])
def test_requests_to_routes_have_the_limits_of_all_requests(service, install, path):
    install(routes=COUNTS)
    client = client_of(service)
    for body in ({"text": "x" * 51}, {"txt": "Narcan"}, {"text": 1}, {"parts": [1]}):
        answer = client.post(path, json=body)
        code = "B386" if "x" * 51 in body.values() else "B384"
        assert (answer.status_code, answer.json()["code"]) == (422, code)
    headers = {"Content-Type": "text/plain"}
    assert client.post(path, content="{}", headers=headers).json()["code"] == "B394"
    assert client.get(path).json()["code"] == "B381"


def test_while_the_pipeline_is_loading(nlp, install, new_service):
    install(routes=COUNTS)
    service = new_service(lambda: nlp)
    client = client_of(service)
    assert client.post("/size/concepts", json={}).json()["code"] == "B387"
    service.start()
    assert client.post("/mentions", json={"text": "Narcan"}).json()["n"] == 1


@pytest.fixture
def with_worker(kb, install, new_service) -> Service:
    install(routes=COUNTS)
    return new_service(partial(load_model, str(kb)), n_workers=1, deadline=100)


def test_calls_in_a_worker_process(capfd, with_worker):
    with_worker.start()  # here, since a process keeps the standard error that it starts with
    client = client_of(with_worker)
    counted = client.post("/mentions", json={"text": "Narcan", "parts": [{"text": "Narcan"}]})
    assert (counted.status_code, counted.json()["n"]) == (200, 2)
    assert counted.json()["process"] == with_worker.worker_pids[0]
    answer = client.post("/mentions", json={"text": "a bug"})
    assert (answer.status_code, answer.json()["code"]) == (500, "B392")
    assert answer.json()["message"].startswith("Internal service error: KeyError.")
    logged = capfd.readouterr().err
    assert "third.py" in logged and "a bug" not in logged + answer.text
    assert client.post("/mentions", json={"text": "wrong"}).status_code == 404
    assert with_worker.worker_pids == [counted.json()["process"]]


@pytest.mark.slow
def test_a_call_that_ends_its_worker(with_worker):
    with_worker.start()
    client = client_of(with_worker)
    answer = client.post("/mentions", json={"text": "dies"})
    assert (answer.status_code, answer.json()["code"]) == (503, "B561")
    assert client.post("/mentions", json={"text": "Narcan"}).json()["n"] == 1


def test_tools(service, install):
    install(tools={"concepts": "third:count_concepts", "count": "third:count_mentions"})
    assert {"concepts", "count"} < {*tools_of(service)}
    text = {"text": "Narcan and clonidine"}
    for tool, arguments, expected in (
        ("concepts", {}, {"n": len(service.kb)}),
        ("count", text, {"n": 2}),
        ("count", text | {"times": 3}, {"n": 6}),
    ):
        call = partial(Client.call_tool, name=tool, arguments=arguments)
        assert asked(service, call).structured_content == expected
    for arguments, code in (({"text": "x" * 51}, "[B386]"), ({}, "[B487] The text argument of co")):
        failed = asked(service, partial(Client.call_tool, name="count", arguments=arguments))
        assert failed.is_error and failed.content[0].text.startswith(code)
    assert " Count with count_mentions." in str(make_agent_tools(service).instructions)


WRONG = cases(__file__, "wrong_functions")


def test_what_cannot_be_used_says_why_and_stops_no_other(service, install, caplog):
    wrong = {name: WRONG[name][0] for name in ("nowhere", "untyped", "text")}
    routes = {name: value for name, (value, _, _) in WRONG.items()} | COUNTS
    install(routes=routes, tools={**wrong, "concepts": "third:count_concepts"})
    found = tools_of(service)
    assert not {*wrong} & {*found} and "concepts" in found
    for name in wrong:
        assert f"The agent tool {name!r} " in caplog.text
    client = client_of(service)
    for name, (_, code, message) in WRONG.items():
        answer = client.post(f"/{name}", json={}).json()
        assert answer["code"] == code and answer["message"].startswith(f"The route {name!r} ")
        assert message in answer["message"]
        assert f"[{code}] The route {name!r} " in caplog.text
    assert client.post(f"/{name}", json={}).status_code == 501
    assert client.post("/mentions", json={"text": "Narcan"}).json()["n"] == 1
    assert not {f"/{name}" for name in WRONG} & {*client.get("/openapi.json").json()["paths"]}


@pytest.mark.parametrize(("group", "name", "packages", "message"), cases(__file__, "taken_names"))
def test_names_that_are_taken(service, install, group, name, packages, message):
    for package, function in zip(packages, ("count_concepts", "count_mentions"), strict=False):
        install(package, **{group: {name: f"third:{function}"}})
    with pytest.raises(BioelError, match=rf"\[B660\] .* {message}"):
        (client_of if group == "routes" else make_agent_tools)(service)

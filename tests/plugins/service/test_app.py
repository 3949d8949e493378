"""The HTTP application, in this process."""

import json
import re
from base64 import b64encode
from functools import partial
from hashlib import sha256
from threading import Event
from typing import Any

import pytest
import spacy
from spacy.language import Language
from starlette.testclient import TestClient
from tables import cases
from tiny import linking_nlp

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.plugins.service import Limits
from spacy_bioel.plugins.service.app import create_app
from spacy_bioel.plugins.service.service import Service
from spacy_bioel.registered import ROUTES, registered_names
from spacy_bioel.types import Concept

needs_check = pytest.mark.skipif(
    "check" not in registered_names(ROUTES), reason="the plugin `curation` is missing"
)
JSON, TEXT = ({"Content-Type": kind} for kind in ("application/json", "text/plain"))
LIMITS = Limits(body_bytes=2_000, waiting_bytes=4_000, texts=3, characters=50, seconds=30)


def client_of(service: Service) -> TestClient:
    app = create_app(service, LIMITS)
    return TestClient(app, "http://localhost", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(nlp, new_service) -> TestClient:
    service = new_service(lambda: nlp)
    service.start()
    service.wait()
    return client_of(service)


def ids(answer: Any) -> list[list[str | None]]:
    return [[link["id"] for link in document["links"]] for document in answer["documents"]]


def test_links(client):
    texts = ["Narcan was given.", {"text": "clonidine", "id": "b"}, ""]
    answer = client.post("/link", json={"texts": texts}).json()
    assert ids(answer) == [["X:1"], ["X:2"], []]
    assert [document["id"] for document in answer["documents"]] == [None, "b", None]
    (link,) = answer["documents"][0]["links"]
    (candidate,) = link.pop("candidates")
    assert link == {
        "start": 0, "end": 6, "text": "Narcan", "label": "Drug", "id": "X:1", "ids": ["X:1"]
    }  # fmt: skip
    assert (candidate["id"], candidate["name"], "xrefs" in candidate) == ("X:1", "Narcan", False)
    for text in texts[:2]:
        one, several = (
            client.post("/link", json=body).json() for body in ({"text": text}, {"texts": [text]})
        )
        assert one == several and len(ids(one)[0]) == 1


@needs_check
def test_a_route_that_is_registered_has_the_limits_of_texts(client):
    assert client.post("/check", json={"text": "x" * 51}).json()["code"] == "B386"
    assert client.post("/check", json={"texts": [""] * 4}).json()["code"] == "B383"
    (finding,) = client.post("/check", json={"texts": ["a", "Narcan (X:1)"]}).json()["findings"]
    assert (finding["text"], finding["verdict"]) == (1, "synonym")


def test_a_text_that_fails_leaves_the_others_alone(client):
    body = json.dumps({"texts": ["a\ud800b", "Narcan", {"text": "x" * 51, "id": "\ud800"}]})
    response = client.post("/link", content=body, headers=JSON)
    assert (response.status_code, ids(response.json())) == (200, [[], ["X:1"], []])
    errors = [document["error"] for document in response.json()["documents"]]
    assert [error and error["code"] for error in errors] == ["B251", None, "B386"]
    assert response.json()["documents"][2]["id"] == "?"
    assert errors[2]["message"].startswith("The text has 51 characters, expected at most 50.")


# pydantic would make an object of each text that is wrong: of a request of some MB, a million.
MANY_WRONG = '{"texts": [%s0]}' % ("0," * 900)
MISTAKES = [
    *((asked, JSON, *answer) for asked, *answer in cases(__file__, "mistakes")),
    ("[" * 1_999, JSON, 400, "B385", None, "The request body is not JSON: damaged, nested"),
    (MANY_WRONG, JSON, 422, "B384", "body.texts.0", "Invalid request: "),
    (" " * 2_001, JSON, 413, "B382", "body", "The request body is larger than 2,000"),
    ("texts=a", TEXT, 415, "B394", "header", "The request body has the content"),
]


@pytest.mark.parametrize(("asked", "headers", "status", "code", "where", "message"), MISTAKES)
def test_mistakes_of_clients(client, asked, headers, status, code, where, message):
    if asked.startswith("/"):
        response = client.get(asked)
    else:
        response = client.post("/link", content=asked.encode("latin1"), headers=headers)
    problem = response.json()
    assert (response.status_code, problem["code"], problem["where"]) == (status, code, where)
    assert problem["message"].startswith(message)


@pytest.mark.parametrize(("asked", "answer"), cases(__file__, "answers"))
def test_answers(client, asked, answer):
    found = client.get(asked)
    assert (found.status_code, found.json()) == (200, json.loads(json.dumps(answer)))


@pytest.mark.parametrize(("host", "status"), cases(__file__, "hosts"))
def test_names_of_others_are_refused(nlp, host, status):
    """As that of a page whose name leads to this machine, and which would read the answer."""
    service = Service(lambda: nlp, max_characters=50)
    client = TestClient(create_app(service, LIMITS, hosts=["bioel.example.org"]))
    for path in ("/", "/metrics"):
        response = client.get(path, headers={"Host": host})
        assert response.status_code == status
        assert (status == 200) or response.json()["code"] == "B486"
    anyone = TestClient(create_app(service, LIMITS, hosts=["*"]))
    assert anyone.get("/livez", headers={"Host": host}).status_code == 200


def test_an_error_of_our_own_is_in_the_log_and_not_in_the_answer(client, monkeypatch, caplog):
    def damaged(*_: Any) -> Any:
        raise BioelError("[B211] /srv/me/kb is damaged. Run bioel kb build.")

    monkeypatch.setattr(Service, "concept", damaged)
    response = client.get("/concepts/X:1")
    assert (response.status_code, response.json()["code"]) == (500, "B392")
    assert "/srv" not in response.text and "B211" in response.json()["message"]
    assert "/srv/me/kb is damaged" in caplog.text


def test_info(client):
    info = client.get("/info").json()
    (kb,) = info["kbs"]
    assert (kb["source"], kb["release"], kb["concepts"], kb["names"]) == ("Small", "2026", 2, 3)
    assert len(kb["fingerprint"]) == 32
    model = {"name": "en_pipeline", "version": "0.0.0", "pipes": ["bioel_linker"]}
    assert info["model"] == {**model, "nil_threshold": 0.25}
    assert set(info["versions"]) == {"spacy-bioel", "spacy"}
    assert info["limits"]["texts"] == 3


def test_it_is_ready_when_it_has_linked_a_text(nlp, new_service):
    go_on = Event()

    def load() -> Language:
        assert go_on.wait(60)
        return nlp

    client = client_of(service := new_service(load))
    service.start()
    for path in ("/readyz", "/info", "/search?q=a", "/concepts/X:1"):
        response = client.get(path)
        assert (response.status_code, response.json()["code"]) == (503, "B387")
        assert response.headers["Retry-After"] == "2"
    assert client.get("/livez").json() == {"status": "alive"}
    go_on.set()
    assert ids(client.post("/link", json={"texts": ["Narcan"]}).json()) == [["X:1"]]
    assert client.get("/readyz").json() == {"status": "ready"}


def test_a_pipeline_without_a_linker_is_refused(new_service):
    service = new_service(lambda: spacy.blank("en"))
    service.start()
    service.wait()
    assert str(service.failure).startswith("[B388] The pipeline has no linker to serve")


def test_metrics(client):
    def counted(name: str) -> float:
        (value,) = re.findall(rf"^{re.escape(name)} (.*)$", client.get("/metrics").text, re.M)
        return float(value)

    names = [
        'bioel_requests_total{route="/concepts/{id:path}",status="200"}',
        'bioel_texts_total{outcome="linked"}',
        'bioel_texts_total{outcome="failed"}',
        'bioel_mentions_total{outcome="linked"}',
    ]
    client.get("/concepts/X:1")
    client.post("/link", json={"texts": ["Narcan", "x" * 51]})
    before = [counted(name) for name in names]
    client.get("/concepts/X:1")
    client.post("/link", json={"texts": ["Narcan", "clonidine", "x" * 51]})
    assert [counted(n) - b for n, b in zip(names, before, strict=True)] == [1, 2, 1, 2]
    assert (counted("bioel_ready"), counted("bioel_waiting_texts")) == (1, 0)


def test_another_generation_of_the_knowledge_base(tmp_path, new_service):
    build_kb([Concept("A:1", ("aspirin",))], tmp_path / "kb")
    load = partial(linking_nlp, tmp_path / "kb", mentions="dictionary", model={"dim": 16})
    client = client_of(service := new_service(load))
    service.start()
    assert ids(client.post("/link", json={"texts": ["aspirin"]}).json()) == [["A:1"]]
    before = client.get("/info").json()["kbs"][0]["fingerprint"]
    build_kb([Concept("B:1", ("aspirin",))], tmp_path / "kb")
    assert ids(client.post("/link", json={"texts": ["aspirin"]}).json()) == [["A:1"]]
    assert service.reopen_kb() != before
    assert ids(client.post("/link", json={"texts": ["aspirin"]}).json()) == [["B:1"]]


def allowed(policy: str, directive: str) -> list[str]:
    (sources,) = re.findall(rf"{directive} ([^;]*)", policy)
    return sources.split()


def test_the_pages_need_nothing_from_elsewhere(client):
    files = ["swagger/swagger-ui.css", "swagger/swagger-ui-bundle.js"]
    for path, links in (("/", ["docs", "openapi.json", "info", "metrics"]), ("/docs", files)):
        response = client.get(path)
        assert response.status_code == 200
        policy, html = response.headers["Content-Security-Policy"], response.text
        for directive in ("default-src", "base-uri", "form-action", "frame-ancestors"):
            assert allowed(policy, directive) == ["'none'"]
        # The browser runs the page's own script, and no other.
        (script,) = re.findall("<script>(.*?)</script>", html, re.S)
        digest = b64encode(sha256(script.encode()).digest()).decode()
        own = ["'self'"] if path == "/docs" else []
        assert allowed(policy, "script-src") == [f"'sha256-{digest}'", *own]
        tags = re.findall(r"<[a-z][^>]*>", html.replace(script, ""))
        addresses = re.findall(r"(?:src|href)=\"([^\"]*)\"", "".join(tags))
        assert [address for address in addresses if address != "data:,"] == links
        assert not re.search(r"innerHTML|//cdn|url\(|@import|import\(", html)
    for path in files:
        response = client.get(f"/{path}")
        assert (response.status_code, len(response.content) > 100_000) == (200, True)
        if path.endswith(".css"):
            assert not re.search(rb"url\(\"?(?!\"?data:)|@import", response.content)
    for path in ("/redoc", "/swagger/../app.py", "/swagger/none.js"):
        assert client.get(path).json()["code"] == "B380"


def test_candidates_and_reasons_are_optional(client):
    def link(**options: bool) -> dict[str, Any]:
        request = {"texts": ["Narcan"], "xrefs": True} | options
        (link,) = client.post("/link", json=request).json()["documents"][0]["links"]
        return link

    (candidate,) = link(candidates=True)["candidates"]
    assert candidate["xrefs"] == ["Y:1"] and "preferred" not in candidate
    explained = link(explain=True)
    assert explained["why"].startswith("Linked: Narcan (X:1)")
    assert explained["candidates"][0]["preferred"] == "Naloxone"
    assert "why" not in link() and not link(candidates=False).get("candidates")
    assert {"why", "candidates"} & {*link(explain=True, candidates=False)} == {"why"}

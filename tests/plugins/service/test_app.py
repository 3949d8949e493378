"""The HTTP application, in this process."""

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from threading import Event
from typing import Any

import pytest
from spacy.language import Language
from starlette.testclient import TestClient
from tables import cases

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
JSON = {"Content-Type": "application/json"}
LIMITS = Limits(body_bytes=2_000, waiting_bytes=4_000, texts=3, characters=50, seconds=30)


def make(
    load: Callable[[], Language], started: list[Any], limits: Limits = LIMITS
) -> tuple[TestClient, Service]:
    service = Service(load, max_characters=limits.characters)
    started.append(service)
    app = create_app(service, limits)
    return TestClient(app, "http://localhost", raise_server_exceptions=False), service


@pytest.fixture(scope="module")
def client(nlp, started) -> TestClient:
    client, service = make(lambda: nlp, started)
    service.start()
    service.wait()
    return client


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


def test_candidates_and_their_xrefs_are_optional(client):
    request: dict[str, Any] = {"texts": ["Narcan"], "xrefs": True}
    for candidates, expected in ((True, [["Y:1"]]), (False, None)):
        request["candidates"] = candidates
        (link,) = client.post("/link", json=request).json()["documents"][0]["links"]
        found = link.get("candidates")
        assert (found and [candidate["xrefs"] for candidate in found]) == expected


def test_one_text(client):
    for text in ("Narcan", {"text": "Narcan", "id": "a"}):
        one, several = (
            client.post("/link", json=body).json() for body in ({"text": text}, {"texts": [text]})
        )
        assert one == several and ids(one) == [["X:1"]]


@needs_check
def test_check(client):
    text = "Narcan (X:1).\nClonidine (X:1)"
    first, second = client.post("/check", json={"text": text}).json()["findings"]
    assert (first["verdict"], second["found"]["name"]) == ("synonym", "Naloxone")
    assert client.post("/check", json={"text": "x" * 51}).json()["code"] == "B386"
    both = client.post("/check", json={"texts": ["X:1", text]}).json()["findings"]
    assert [finding["text"] for finding in both] == [0, 1, 1] and both[1:] == [
        finding | {"text": 1} for finding in (first, second)
    ]
    assert client.post("/check", json={"texts": [""] * 4}).json()["code"] == "B383"


def test_a_text_that_fails_leaves_the_others_alone(client):
    body = json.dumps({"texts": ["a\ud800b", "Narcan", {"text": "x" * 51, "id": "\ud800"}]})
    response = client.post("/link", content=body, headers=JSON)
    assert (response.status_code, ids(response.json())) == (200, [[], ["X:1"], []])
    errors = [document["error"] for document in response.json()["documents"]]
    assert [error and error["code"] for error in errors] == ["B251", None, "B386"]
    assert response.json()["documents"][2]["id"] == "?"
    assert errors[2]["message"].startswith("The text has 51 characters, expected at most 50.")


def post(content: bytes, content_type: str = "application/json") -> dict[str, Any]:
    return {"method": "POST", "url": "/link", "content": content,
            "headers": {"Content-Type": content_type}}  # fmt: skip


def get(url: str, method: str = "GET") -> dict[str, Any]:
    return {"method": method, "url": url}


MISTAKES: list[tuple[dict[str, Any], int, str, str | None, str]] = [
    (post(b"{"), 400, "B385", "body", "The request body is not JSON: Expecting property name"),
    (post(b"[" * 1_999), 400, "B385", None, "The request body is not JSON: damaged, nested"),
    (post(b'"\xff"'), 400, "B385", None, "The request body is not JSON: damaged, nested"),
    # pydantic would make an object of each that is wrong: of a request of some MB, a million.
    (post(b'{"texts": [%s0]}' % (b"0," * 900)), 422, "B384", "body.texts.0", "Invalid request: "),
    (post(b"{}"), 422, "B384", "body.texts", "Invalid request: Field required."),
    (post(b'{"texts": ["a", NaN]}'), 422, "B384", "body.texts.1", "Invalid request: expected a te"),
    (post(b'{"texts": [{"id": "a"}]}'), 422, "B384", "body.texts.0.text", "Invalid request: "),
    (post(b'{"texts": [{"text": 1}]}'), 422, "B384", "body.texts.0.text", "Invalid request: exp"),
    (post(b'{"texts": [], "text": "a"}'), 422, "B384", "body", "Invalid request: unknown key 't"),
    (post(b'{"texts": [], "\\ud800": 1}'), 422, "B384", "body", "Invalid request: unknown key "),
    (post(b'{"texts": [], "xrefs": 1}'), 422, "B384", "body.xrefs", "Invalid request: Input shou"),
    (post(b'{"texts": ["","","",""]}'), 422, "B383", "body.texts", "The request contains 4 texts"),
    (post(b" " * 2_001), 413, "B382", "body", "The request body is larger than 2,000"),
    (post(b"texts=a", "text/plain"), 415, "B394", "header", "The request body has the content"),
    (get("/link"), 405, "B381", None, "/link does not accept GET, expected POST."),
    (get("/links"), 404, "B380", None, "This service has no path /links."),
    (get("/concepts/X:9"), 404, "B337", None, "There is no concept 'X:9' in the"),
    (get("/concepts/%00%ED%A0%80"), 404, "B337", None, "There is no concept '\\x00"),
    (get("/search"), 422, "B384", "query.q", "Invalid request: Field required."),
    (get("/search?q=a&k=0"), 422, "B384", "query.k", "Invalid request: Input should be greater"),
]


@pytest.mark.parametrize(("request_", "status", "code", "where", "message"), MISTAKES)
def test_mistakes_of_clients(client, request_, status, code, where, message):
    response = client.request(**request_)
    problem = response.json()
    assert (response.status_code, problem["code"], problem["where"]) == (status, code, where)
    assert problem["message"].startswith(message)


HOSTS = cases(__file__, "hosts")


@pytest.mark.parametrize(("host", "status"), HOSTS)
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


def test_concepts(client):
    expected = {
        "id": "X:1",
        "name": "Naloxone",
        "names": ["Naloxone", "Narcan"],
        "types": ["Drug"],
        "parents": [],
        "definition": "An antagonist.",
        "xrefs": ["Y:1"],
    }
    assert client.get("/concepts/X:1").json() == expected
    assert client.get("/concepts/X:3").json() == expected  # it is retired


def test_search(client):
    (found,) = client.get("/search", params={"q": "narcan", "k": 1}).json()["concepts"]
    assert found == {
        "id": "X:1", "name": "Naloxone", "matched": "Narcan", "score": 1.0, "types": ["Drug"]
    }  # fmt: skip
    assert client.get("/search", params={"q": "\x00 ☃"}).json() == {"concepts": []}


def test_info(client):
    info = client.get("/info").json()
    (kb,) = info["kbs"]
    assert (kb["source"], kb["release"], kb["concepts"], kb["names"]) == ("Small", "2026", 2, 3)
    assert len(kb["fingerprint"]) == 32
    model = {"name": "en_pipeline", "version": "0.0.0", "pipes": ["bioel_linker"]}
    assert info["model"] == {**model, "nil_threshold": 0.25}
    assert set(info["versions"]) == {"spacy-bioel", "spacy"}
    assert info["limits"]["texts"] == 3


def test_it_is_ready_when_it_has_linked_a_text(nlp, started):
    go_on = Event()

    def load() -> Language:
        assert go_on.wait(60)
        return nlp

    client, service = make(load, started)
    service.start()
    for path in ("/readyz", "/info", "/search?q=a", "/concepts/X:1"):
        response = client.get(path)
        assert (response.status_code, response.json()["code"]) == (503, "B387")
        assert response.headers["Retry-After"] == "2"
    assert client.get("/livez").json() == {"status": "alive"}
    go_on.set()
    assert ids(client.post("/link", json={"texts": ["Narcan"]}).json()) == [["X:1"]]
    assert client.get("/readyz").json() == {"status": "ready"}


def test_a_pipeline_without_a_linker_is_refused(started):
    import spacy

    _, service = make(lambda: spacy.blank("en"), started)
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


def test_another_generation_of_the_knowledge_base(tmp_path, started):
    from tiny import linking_nlp

    build_kb([Concept("A:1", ("aspirin",))], tmp_path / "kb")
    client, service = make(
        lambda: linking_nlp(tmp_path / "kb", mentions="dictionary", model={"dim": 16}), started
    )
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
    programs = ["docs", "openapi.json", "info", "metrics"]
    for path, links in (("/", programs), ("/docs", files)):
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
    assert client.get("/redoc").json()["code"] == "B380"
    assert client.get("/swagger/../app.py").json()["code"] == "B380"
    assert client.get("/swagger/none.js").json()["code"] == "B380"


def test_functions_of_pages_are_written_once():
    names = Counter[str]()
    for name in ("templates/mentions", "templates/links", "plugins/service/templates/service"):
        script = (files("spacy_bioel") / f"{name}.js").read_text("utf8")
        names.update(re.findall(r"^(?:async )?function (\w+)", script, re.M))
    # Each page has its own `showId`.
    assert {name for name, n in names.items() if n > 1} == {"showId"}


def test_reasons_and_preferred_names_are_optional(client):
    request: dict[str, Any] = {"texts": ["Narcan"]}
    for explain, why, preferred in ((True, "Linked: Narcan (X:1)", "Naloxone"), (False, "", None)):
        request["explain"] = explain
        (link,) = client.post("/link", json=request).json()["documents"][0]["links"]
        assert link.get("why", "").startswith(why) and ("why" in link) == explain
        assert link["candidates"][0].get("preferred") == preferred
    (link,) = client.post("/link", json=request | {"explain": True, "candidates": False}).json()[
        "documents"
    ][0]["links"]
    assert "why" in link and "candidates" not in link

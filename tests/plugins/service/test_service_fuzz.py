"""Requests made from /openapi.json: no error of the service's own, and answers of the form that it
promises.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from starlette.testclient import TestClient

from spacy_bioel.plugins.service import Limits
from spacy_bioel.plugins.service.app import create_app
from spacy_bioel.plugins.service.service import Service
from spacy_bioel.registered import ROUTES as REGISTERED
from spacy_bioel.registered import registered_names

LONGEST = 20  # characters of a text
# Statuses of all answers, to requests that fit the description and to such that do not. Routes that
# are not there twice have nothing to get wrong.
ROUTES = {
    ("/link", GenerationMode.POSITIVE): {200},
    ("/link", GenerationMode.NEGATIVE): {400, 422},
    ("/concepts/{id}", GenerationMode.POSITIVE): {404},
    ("/search", GenerationMode.POSITIVE): {200},
    ("/search", GenerationMode.NEGATIVE): {200, 422},  # a second `k` is not an error
    ("/info", GenerationMode.POSITIVE): {200},
    ("/livez", GenerationMode.POSITIVE): {200},
    ("/readyz", GenerationMode.POSITIVE): {200},
}
if "check" in registered_names(REGISTERED):  # unless the plugin `curation` is missing
    ROUTES["/check", GenerationMode.POSITIVE] = {200}
    ROUTES["/check", GenerationMode.NEGATIVE] = {400, 422}
SAME_EACH_TIME = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@pytest.fixture(scope="module")
def app(nlp) -> Iterator[Any]:
    # Training, which tests of the same process may have run, switches small floats off.
    torch.set_flush_denormal(False)
    limits = Limits(characters=LONGEST, texts=50, body_bytes=20_000)
    service = Service(lambda: nlp, max_characters=limits.characters)
    service.start()
    service.wait()
    yield create_app(service, limits, hosts=["*"])
    service.close()


@pytest.fixture(scope="module")
def operations(app) -> dict[str, Any]:
    openapi = schemathesis.openapi.from_asgi("/openapi.json", app)
    found = [result.ok() for result in openapi.get_all_operations()]
    assert {operation.path for operation in found} == {route for route, _ in ROUTES}
    return {operation.path: operation for operation in found}


@pytest.mark.parametrize(("route", "mode"), ROUTES, ids=str)
def test_requests(operations, route, mode):
    seen = set()

    @given(case=operations[route].as_strategy(generation_mode=mode))
    @SAME_EACH_TIME
    def ask(case: Any) -> None:
        seen.add(case.call_and_validate().status_code)

    ask()
    assert seen and seen <= ROUTES[route, mode]


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)  # lone surrogates too


@given(texts=st.lists(ANY_TEXT | st.fixed_dictionaries({"text": ANY_TEXT, "id": ANY_TEXT})))
@SAME_EACH_TIME
def test_texts_of_any_characters(app, texts):
    content = json.dumps({"texts": texts})
    headers = {"Content-Type": "application/json"}
    answer = TestClient(app).post("/link", content=content, headers=headers).json()
    errors = [document["error"] for document in answer["documents"]]
    expected = [_error_of(text) for text in json.loads(content)["texts"]]
    assert [error and error["code"] for error in errors] == expected


def _error_of(given: Any) -> str | None:
    text, id = (given["text"], given["id"]) if isinstance(given, dict) else (given, "")
    if len(text) > LONGEST:
        return "B386"
    is_broken = any("\ud800" <= character <= "\udfff" for character in text + id)
    return "B251" if is_broken else None

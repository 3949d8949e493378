"""A small pipeline to serve, and services that end with the tests of a file."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spacy.language import Language
from tiny import linking_nlp

from spacy_bioel.kb.build import build_kb
from spacy_bioel.plugins.service.service import Service
from spacy_bioel.types import Concept

CONCEPTS = [
    Concept("X:1", ("Naloxone", "Narcan"), ("Drug",), definition="An antagonist.", xrefs=("Y:1",)),
    Concept("X:2", ("Clonidine",), ("Drug",), parents=("X:1",)),
    Concept("X:3", (), replaced_by="X:1"),
]


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("service") / "kb"
    build_kb(CONCEPTS, folder, source="Small", release="2026")
    return folder


@pytest.fixture(scope="module")
def nlp(kb) -> Language:
    return linking_nlp(kb, mentions="dictionary", model={"dim": 16})


@pytest.fixture(scope="module")
def new_service() -> Iterator[Callable[..., Service]]:
    """Make services, which are closed when the tests of the file end."""
    services: list[Service] = []

    def make(load: Callable[[], Any], **settings: Any) -> Service:
        services.append(Service(load, **{"max_characters": 50} | settings))
        return services[-1]

    yield make
    for service in services:
        service.close()

"""Agents get links, concepts and search results of limited size, and messages without commands."""

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.server import MCPServer
from spacy.language import Language
from tables import cases

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.loading import check_there
from spacy_bioel.plugins.service.mcp import make_agent_tools
from spacy_bioel.plugins.service.service import Service
from spacy_bioel.registered import TOOLS, registered_names
from spacy_bioel.types import Concept


@pytest.fixture(scope="module")
def server(nlp) -> Iterator[MCPServer[Any]]:
    service = Service(lambda: nlp, max_characters=100)
    service.start()
    yield make_agent_tools(service)
    service.close()


def call(server: Any, tool: str, **arguments: Any) -> tuple[bool, Any]:
    """RETURNS (tuple): Whether it is an error; then its message, else the values."""

    async def run() -> tuple[bool, Any]:
        async with Client(server) as client:
            answer = await client.call_tool(tool, arguments)
            if answer.is_error:
                return True, answer.content[0].text
            return False, answer.structured_content

    return asyncio.run(run())


def test_tools_have_descriptions(server):
    async def run() -> list[Any]:
        async with Client(server) as client:
            return (await client.list_tools()).tools

    tools = asyncio.run(run())
    names = ["link_text", "get_concept", "search_concepts", *registered_names(TOOLS)]
    assert [tool.name for tool in tools] == names
    for tool in tools:
        assert tool.annotations.read_only_hint and len(tool.description) > 100
        assert all(schema["description"] for schema in tool.input_schema["properties"].values())


def test_link_text(server):
    failed, found = call(server, "link_text", text="Narcan was given.")
    assert not failed and found["omitted"] == 0
    (link,) = found["links"]
    assert link.pop("score") > 0.9
    assert link == {
        "start": 0, "end": 6, "text": "Narcan", "label": "Drug", "ids": ["X:1"], "name": "Narcan"
    }  # fmt: skip


def test_answers_are_bounded(server, monkeypatch):
    monkeypatch.setattr("spacy_bioel.plugins.service.mcp._MAX_LINKS", 1)
    monkeypatch.setattr("spacy_bioel.plugins.service.mcp._MAX_LIST_LENGTH", 1)
    monkeypatch.setattr("spacy_bioel.plugins.service.mcp._MAX_DEFINITION_LENGTH", 6)
    _, found = call(server, "link_text", text="Narcan, Narcan and Narcan.")
    assert (len(found["links"]), found["omitted"]) == (1, 2)
    lists = {"names": ["Naloxone"], "types": ["Drug"], "parents": [], "xrefs": ["Y:1"]}
    concept = {"id": "X:1", "name": "Naloxone", "definition": "An ant"} | lists
    assert call(server, "get_concept", id="X:3") == (False, concept)


def test_search_concepts(server):
    _, found = call(server, "search_concepts", words="clonidin", limit=1)
    (concept,) = found["concepts"]
    assert concept.pop("score") > 0.7
    assert concept == {"id": "X:2", "name": "Clonidine", "matched": "Clonidine", "types": ["Drug"]}


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("link_text", {"text": "x" * 101}, "[B386] The text has 101 characters"),
        ("search_concepts", {"words": "a" * 501}, "at most 500 characters"),
        *cases(__file__, "agents_mistakes"),
    ],
)
def test_mistakes(server, tool, arguments, message):
    failed, found = call(server, tool, **arguments)
    assert failed and message in found
    assert not re.search(r"--\w|bioel [a-z]|pydantic|https?:|validation error|input_value", found)


def test_each_call_tells_why_there_is_no_pipeline():
    def load() -> Language:
        raise BioelError("[B071] no such pipeline")

    service = Service(load, max_characters=100)
    service.start()
    server = make_agent_tools(service)
    for tool, arguments in (("link_text", {"text": "a"}), ("get_concept", {"id": "a"})):
        assert call(server, tool, **arguments)[1].endswith("[B071] no such pipeline")


def test_models_that_are_not_there_are_refused_at_once():
    for model in ("starter", "starter:mesh", str(Path(__file__).parent)):
        check_there(model)
    with pytest.raises(BioelError, match=r"\[B071\] The pipeline 'mesh' cannot be loaded"):
        check_there("mesh")


@pytest.mark.slow
def test_over_stdio(tmp_path):
    """Of the process, with a knowledge base as its model. Warnings do not come between."""
    build_kb([Concept("X:1", ("Naloxone", "Narcan"))], tmp_path / "kb")
    command = ["-W", "always", "-m", "spacy_bioel", "mcp", str(tmp_path / "kb")]
    server = StdioServerParameters(
        command=sys.executable, args=command, env=dict(os.environ), cwd=Path.cwd()
    )
    failed, found = call(server, "link_text", text="Narcan was given.")
    assert (failed, [link["ids"] for link in found["links"]]) == (False, [["X:1"]])

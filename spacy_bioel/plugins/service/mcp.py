"""MCP tools for agents: link texts, find concepts, and call tools from other packages.

Results are short, because agents read them in full.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field, ValidationError

from spacy_bioel import __version__
from spacy_bioel.errors import BioelError
from spacy_bioel.loading import check_there, load_model
from spacy_bioel.plugins.service.errors import ServiceErrors
from spacy_bioel.plugins.service.functions import offer_registered, runs_in_worker
from spacy_bioel.plugins.service.service import Service, Values
from spacy_bioel.plugins.service.worker import Job
from spacy_bioel.registered import TOOLS

_MAX_CHARACTERS = 20_000
_MAX_LINKS = 200
_MAX_LIST_LENGTH = 20
_MAX_DEFINITION_LENGTH = 2_000
_MAX_CONCEPTS = 25
_INSTRUCTIONS = """\
Find the diseases, chemicals, genes, organisms and other biomedical entities that a text mentions, \
and the ids of their concepts in ontologies (MeSH, NCBI Gene, ..., as loaded). Take ids from these \
tools only. Use link_text for running text, search_concepts for a single term, and get_concept to \
find out what an id means."""


def run_agent_tools(model: str, preset: str | None = None) -> None:
    """Serve the tools over stdin and stdout until stdin is closed.

    model, preset (str): As in `loading.load_model`. The first calls wait until the model is loaded;
        if loading fails, each call returns the error.
    RAISES BioelError: [B071] if there is no such model.
    """
    check_there(model)
    load = partial(load_model, model, preset=preset)
    service = Service(load, max_characters=_MAX_CHARACTERS)
    service.start()
    make_agent_tools(service).run("stdio")
    service.close()


class _Server(MCPServer[Any]):
    async def call_tool(
        self, name: str, arguments: Values, context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool.

        RAISES ToolError: With the message of a BioelError, for the agent to read; [B487] for
            invalid arguments.
        """
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(cause := error.__cause__, BioelError):
                raise ToolError(str(cause)) from error
            if not isinstance(cause, ValidationError):
                raise
            first = cause.errors()[0]
            where, problem = ".".join(map(str, first["loc"])), first["msg"]
            raise ToolError(
                ServiceErrors.B487.format(name=where, tool=name, problem=problem)
            ) from error


def make_agent_tools(service: Service) -> MCPServer[Any]:
    """Create the MCP server. Agents read its tools' docstrings.

    service (Service): A service that the caller starts.
    """
    hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    tools: list[Tool] = []
    instructions = [_INSTRUCTIONS]

    def tool(function: Callable[..., Any]) -> None:
        tools.append(Tool.from_function(function, annotations=hints))

    def add(name: str, function: Callable[..., Any]) -> None:
        tool(_as_tool(service, name, function))
        instructions.extend(filter(None, [getattr(function, "instructions", "")]))

    @tool
    async def link_text(
        text: Annotated[
            str, Field(description=f"Running text in English, up to {_MAX_CHARACTERS} characters")
        ],
    ) -> Values:
        """Find the biomedical mentions in a text and link each to a concept.

        Returns the mentions in text order: start and end (offsets in characters), text, label
        (type, such as Disease or Gene), ids (of the concept; several if the mention refers to
        several concepts; none if it is not in the knowledge base), name (the concept name that
        matched) and score (confidence from 0 to 1). `omitted` counts mentions beyond the first 200.
        """
        (answer,) = await service.link([Job((text, None))])
        row = json.loads(answer.row)
        if row["error"]:
            raise ToolError("[{code}] {message}".format(**row["error"]))
        links = [_short_link(link) for link in row["links"][:_MAX_LINKS]]
        return {"links": links, "omitted": len(row["links"]) - len(links)}

    @tool
    async def get_concept(
        id: Annotated[str, Field(description='Id with its prefix, such as "MESH:D003920"')],
    ) -> Values:
        """Look up a concept by its id, or by an id that was retired or merged into another.

        Returns id (current), name (preferred), names (synonyms), types, parents (ids of broader
        concepts), definition (may be empty) and xrefs (ids in other vocabularies). Lists have at
        most 20 entries.
        """
        await service.ready()
        return _short_concept(await asyncio.to_thread(service.concept, id))

    @tool
    async def search_concepts(
        words: Annotated[
            str,
            Field(description="Words of a name, in any order, possibly misspelled", max_length=500),
        ],
        limit: Annotated[
            int, Field(description="Maximum number of concepts", ge=1, le=_MAX_CONCEPTS)
        ] = 10,
    ) -> Values:
        """Search for concepts by the spelling of their names, not by meaning.

        Returns concepts, best first: id, name (preferred), matched (the name most similar to the
        words), types and score (similarity of spelling, up to 1).
        """
        await service.ready()
        concepts = await asyncio.to_thread(service.search, words, limit)
        return {"concepts": [_short_concept(concept) for concept in concepts]}

    offer_registered(TOOLS, [own.name for own in tools], add)
    return _Server(
        "spacy-bioel",
        version=__version__,
        instructions=" ".join(instructions),
        tools=tools,
        log_level="WARNING",
    )


def _as_tool(service: Service, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as a tool: the service passes its first argument, the agent the rest."""
    in_worker = runs_in_worker(function)

    async def call(**arguments: Any) -> Any:
        await service.ready()
        service.refuse_long(arguments.values())
        bound = partial(function, **arguments)
        if in_worker:
            return json.loads(await service.call(bound))
        return await asyncio.to_thread(bound, service.kb)

    of_function = signature(function, eval_str=True)
    parameters = list(of_function.parameters.values())[1:]
    call.__signature__ = of_function.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__name__, call.__doc__ = name, function.__doc__
    return call


def _short_link(link: Values) -> Values:
    values = {key: link[key] for key in ("start", "end", "text", "label", "ids")}
    linked = (candidate for candidate in link["candidates"] if candidate["id"] in link["ids"])
    if first := next(linked, None):
        values |= {"name": first["name"], "score": first["score"]}
    return values


def _short_concept(concept: Values) -> Values:
    values = {
        key: value[:_MAX_LIST_LENGTH] if isinstance(value, list) else value
        for key, value in concept.items()
    }
    if "definition" in values:
        values["definition"] = values["definition"][:_MAX_DEFINITION_LENGTH]
    return values

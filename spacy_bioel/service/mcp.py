"""Tools for agents over MCP: link a text, look up a concept, search for concepts.

An answer is always small, since an agent reads all of it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field, ValidationError

from spacy_bioel import __version__
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.loading import check_there, load_model
from spacy_bioel.service.service import Job, Service, Values

_MOST_CHARACTERS = 20_000
_MOST_LINKS = 200
_MOST_NAMES = 20
_LONGEST_DEFINITION = 2_000
_MOST_FOUND = 25
_INSTRUCTIONS = """\
Find the diseases, chemicals, genes, organisms and other biomedical entities that a text names, \
and the ids of their concepts in ontologies (MeSH, NCBI Gene, ..., as loaded). Take ids from these \
tools only. Use link_text for running text, search_concepts for a single term, and get_concept to \
check what an id means."""


def run_agent_tools(model: str, preset: str | None = None) -> None:
    """Serve the tools over stdin and stdout until stdin ends.

    model, preset (str): As in `loading.load_model`. Loaded beside the first calls, which
        wait for it; each call tells the error, if that fails.
    RAISES BioelError: [B071] when there is no such model.
    """
    check_there(model)
    load = partial(load_model, model, preset=preset)
    service = Service(load, max_characters=_MOST_CHARACTERS)
    service.start()
    make_agent_tools(service).run("stdio")
    service.close()


class _Server(MCPServer[Any]):
    async def call_tool(
        self, name: str, arguments: Values, context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool.

        RAISES ToolError: With the message of a coded error, which the agent reads; [B487] wrong
            arguments.
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
            raise ToolError(Errors.B487.format(name=where, tool=name, problem=problem)) from error


def make_agent_tools(service: Service) -> MCPServer[Any]:
    """Make the server of the tools, whose docstrings agents read.

    service (Service): Started by the caller.
    """
    server = _Server(
        "spacy-bioel", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )
    tool = server.tool(
        annotations=ToolAnnotations(
            read_only_hint=True, idempotent_hint=True, open_world_hint=False
        )
    )

    @tool
    async def link_text(
        text: Annotated[
            str, Field(description=f"Running text in English, up to {_MOST_CHARACTERS} characters")
        ],
    ) -> Values:
        """Find the biomedical mentions in a text and link each to a concept.

        Returns the mentions in the order of the text: start and end (offsets in characters), text,
        label (type, such as Disease or Gene), ids (of the concept; several if the mention names
        several; none if no concept of the knowledge base is meant), name (of the concept, as it
        matched) and score (0 to 1: how sure the link is). `omitted` counts mentions beyond the
        first 200.
        """
        (row,) = await service.link([Job((text, None))])
        if row["error"]:
            raise ToolError("[{code}] {message}".format(**row["error"]))
        links = [_short_link(link) for link in row["links"][:_MOST_LINKS]]
        return {"links": links, "omitted": len(row["links"]) - len(links)}

    @tool
    async def get_concept(
        id: Annotated[str, Field(description='Id with its prefix, such as "MESH:D003920"')],
    ) -> Values:
        """Look up a concept by its id, also by an id that was retired or merged into another.

        Returns id (the current one), name (the preferred one), names (synonyms), types, parents
        (ids of broader concepts), definition (may be empty) and xrefs (ids in other vocabularies).
        Lists end after 20 entries.
        """
        await service.ready()
        return _short(await asyncio.to_thread(service.concept, id))

    @tool
    async def search_concepts(
        words: Annotated[
            str,
            Field(description="Words of a name in any order, also misspelled", max_length=500),
        ],
        limit: Annotated[int, Field(description="Most concepts", ge=1, le=_MOST_FOUND)] = 10,
    ) -> Values:
        """Search for concepts whose names are spelled like some words; not by meaning.

        Returns concepts, the best first: id, name (the preferred one), matched (the name that is
        most like the words), types and score (likeness in spelling, up to 1).
        """
        await service.ready()
        found = await asyncio.to_thread(service.search, words, limit)
        return {"concepts": [_short(concept) for concept in found]}

    return server


def _short_link(link: Values) -> Values:
    best = next((c for c in link["candidates"] if c["id"] in link["ids"]), None)
    shown = {key: link[key] for key in ("start", "end", "text", "label", "ids")}
    if best is not None:
        shown |= {"name": best["name"], "score": best["score"]}
    return shown


def _short(concept: Values) -> Values:
    shown = {
        key: value[:_MOST_NAMES] if isinstance(value, list) else value
        for key, value in concept.items()
    }
    if "definition" in shown:
        shown["definition"] = shown["definition"][:_LONGEST_DEFINITION]
    return shown

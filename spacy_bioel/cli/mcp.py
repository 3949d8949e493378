"""`bioel mcp`: tools for agents over stdin and stdout."""

from __future__ import annotations

from spacy_bioel.cli.serve import ModelArgument
from spacy_bioel.errors import BioelError, Errors


def mcp(model: ModelArgument = "starter") -> None:
    """Give agents three tools over MCP, on stdin and stdout: link_text, get_concept and
    search_concepts.

    A program of agents starts this command itself; docs/guides/service.md shows its settings.
    Needs the extra `mcp`.
    """
    try:
        from spacy_bioel.service.agents import run_agent_tools
    except ImportError as error:
        raise BioelError(Errors.B192.format(what="bioel mcp", extra="mcp", error=error)) from error

    run_agent_tools(model)

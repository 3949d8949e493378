"""`bioel serve` and `bioel mcp`: link texts over HTTP, and for agents."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from spacy_bioel.cli import console
from spacy_bioel.errors import BioelError, Errors, needing
from spacy_bioel.service import Limits

_MEGABYTE = 1_000_000
_LIMITS = Limits()

Model = Annotated[str, Argument(metavar="[MODEL]", help=console.MODEL.capitalize())]


def serve(
    model: Model = "starter",
    preset: console.Preset = None,
    code: console.Code = None,
    host: Annotated[
        str, Option(help="Address to listen on. A proxy should authenticate other machines.")
    ] = "127.0.0.1",
    allowed_host: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="A further name of this service, or *; can be repeated."),
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="0: a free one.")] = 8000,
    max_body: Annotated[
        float, Option(min=0.001, help="MB of the body of a request.")
    ] = _LIMITS.body_bytes / _MEGABYTE,
    max_waiting: Annotated[
        float, Option(min=0.001, help="MB of the bodies of all requests that wait.")
    ] = _LIMITS.waiting_bytes / _MEGABYTE,
    max_texts: Annotated[int, Option(min=1, help="Texts per request.")] = _LIMITS.texts,
    max_characters: Annotated[int, Option(min=1, help="Characters a text.")] = _LIMITS.characters,
    timeout: Annotated[
        float, Option(min=0.1, help="Seconds a request, with the wait for others.")
    ] = _LIMITS.seconds,
) -> None:
    """Link texts over HTTP, for programs and, with a page to paste text into, for people.

    The page is at /; programs use /link, /concepts/ID, /search?q=WORDS and /info, which
    /openapi.json describes; monitoring uses /livez, /readyz and /metrics.

    There is no authentication. Clients may ask by localhost, --host, any address, and each
    --allowed-host, such as the name of a proxy.

    SIGHUP opens the knowledge base anew after it was changed; SIGTERM ends the service when the
    requests that it has are answered. Needs the extra `serve`.
    """
    with needing("serve", "bioel serve"):
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401

        from spacy_bioel.service import run

    for name in allowed_host or []:
        if set(name) & set(":/"):
            raise BioelError(Errors.B488.format(found=name))
    # Before all that takes seconds to import, so that clients wait instead of being refused.
    listener = run.listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    console.show_note(
        f"http://{shown}:{listener.getsockname()[1]} serves {model}, which is being loaded."
    )
    limits = Limits(
        body_bytes=round(max_body * _MEGABYTE),
        waiting_bytes=round(max_waiting * _MEGABYTE),
        texts=max_texts,
        characters=max_characters,
        seconds=timeout,
    )
    run.serve(
        *(listener, model, limits),
        preset=preset,
        hosts=[host, *(allowed_host or [])],
        tell=console.show_note,
    )


def mcp(model: Model = "starter", preset: console.Preset = None, code: console.Code = None) -> None:
    """Give agents three tools over MCP, on stdin and stdout: link_text, get_concept and
    search_concepts.

    A program of agents starts this command itself; docs/guides/service.md shows its settings.
    Needs the extra `mcp`.
    """
    with needing("mcp", "bioel mcp"):
        from spacy_bioel.service.mcp import run_agent_tools

    run_agent_tools(model, preset)


COMMANDS = (serve, mcp)  # in the order of the help

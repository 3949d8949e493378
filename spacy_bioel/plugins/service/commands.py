"""`bioel serve` and `bioel mcp`: serve a pipeline over HTTP, or over MCP for agents."""

from __future__ import annotations

import os
from typing import Annotated

from typer import Argument, Option

from spacy_bioel.cli import console
from spacy_bioel.errors import BioelError, needing
from spacy_bioel.parallel import free_gpu_memory
from spacy_bioel.plugins.service import Limits
from spacy_bioel.plugins.service.errors import ServiceErrors, ServiceWarnings

_MEGABYTE = 1_000_000
_DEFAULT_LIMITS = Limits()

Model = Annotated[str, Argument(metavar="[MODEL]", help=console.MODEL.capitalize())]


def serve(
    model: Model = "starter",
    preset: console.Preset = None,
    code: console.Code = None,
    gpu_id: console.GpuId = -1,
    host: Annotated[
        str, Option(help="Address to listen on. Put an authenticating proxy in front of it.")
    ] = "127.0.0.1",
    allowed_host: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Additional host name of the service; *: any. Repeatable."),
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0: any free port.")] = 8000,
    max_body: Annotated[
        float, Option(min=0.001, help="Maximum size of a request, in MB.")
    ] = _DEFAULT_LIMITS.body_bytes / _MEGABYTE,
    max_waiting: Annotated[
        float, Option(min=0.001, help="Maximum total size of all requests in progress, in MB.")
    ] = _DEFAULT_LIMITS.waiting_bytes / _MEGABYTE,
    max_texts: Annotated[
        int, Option(min=1, help="Maximum number of texts per request.")
    ] = _DEFAULT_LIMITS.texts,
    max_characters: Annotated[
        int, Option(min=1, help="Maximum number of characters per text.")
    ] = _DEFAULT_LIMITS.characters,
    timeout: Annotated[
        float, Option(min=0.1, help="Maximum time per request in seconds, including waiting.")
    ] = _DEFAULT_LIMITS.seconds,
    workers: Annotated[
        int | None,
        Option(min=1, help="Number of worker processes; default: one per core, or one on a GPU."),
    ] = None,
    deadline: Annotated[
        float, Option(min=0.1, help="Maximum time to link a text, in seconds.")
    ] = _DEFAULT_LIMITS.deadline,
) -> None:
    """Link texts over HTTP, with an API for programs and a web page for people.

    The web page is at /. Programs use /link, /concepts/ID, /search?q=WORDS and /info, described in
    /openapi.json and on the /docs page. Monitoring tools use /livez, /readyz and /metrics.

    There is no authentication. Host headers may contain localhost, --host, any IP address, or
    an --allowed-host, such as a proxy's name.

    A text that exceeds --deadline fails with status 503, and its worker process is replaced; other
    texts are unaffected. SIGHUP reloads a knowledge base that has changed. SIGTERM stops the
    service within a few seconds; requests in progress are completed. Requires the `serve` extra.

    Example: `bioel serve --port 8000`
    """
    with needing("serve", "bioel serve"):
        import fastapi  # noqa: F401
        import fastapi_offline  # noqa: F401
        import prometheus_client  # noqa: F401

        from spacy_bioel.plugins.service import run

    for name in allowed_host or []:
        if set(name) & set(":/"):
            raise BioelError(ServiceErrors.B488.format(found=name))
    # Listen before the slow imports, so that clients wait instead of being refused.
    listener = run.listen(host, port)
    url_host = f"[{host}]" if ":" in host else host
    url = f"http://{url_host}:{listener.getsockname()[1]}"
    console.show_note(f"{url} serves {model}. The pipeline is loading.")
    limits = Limits(
        body_bytes=round(max_body * _MEGABYTE),
        waiting_bytes=round(max_waiting * _MEGABYTE),
        texts=max_texts,
        characters=max_characters,
        seconds=timeout,
        deadline=deadline,
    )
    n_cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        n_cores = len(os.sched_getaffinity(0))  # cores that this process may use
    n_workers = workers or (n_cores if gpu_id < 0 else 1)
    if gpu_id >= 0 and n_workers > 1:
        free = free_gpu_memory()
        console.show_note(
            ServiceWarnings.W650.format(n=n_workers, free=free, share=free / n_workers)
        )
    run.run_server(
        *(listener, model, limits),
        preset=preset,
        n_workers=n_workers,
        hosts=[host, *(allowed_host or [])],
    )


def mcp(model: Model = "starter", preset: console.Preset = None, code: console.Code = None) -> None:
    """Serve agents over MCP on stdin and stdout, with tools for linking and concept lookup.

    The tools are link_text, get_concept, search_concepts and check_ids. Agent programs start this
    command themselves; see docs/guides/service.md to configure them. Requires the `mcp` extra.

    Example: `bioel mcp starter`
    """
    with needing("mcp", "bioel mcp"):
        from spacy_bioel.plugins.service.mcp import run_agent_tools

    run_agent_tools(model, preset)

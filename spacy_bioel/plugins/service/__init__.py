"""Serve a pipeline to programs and people over HTTP, and to agents over MCP."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Service limits, defined here so that `--help` can show them without the `serve` extra.

    body_bytes (int): Bytes in a request body.
    waiting_bytes (int): Bytes in the bodies of all requests in progress. If there is only one
        request, it may have up to `body_bytes`.
    texts (int): Texts per request.
    characters (int): Characters per text.
    seconds (float): Seconds per request, from its first byte to the response.
    deadline (float): Seconds to link a text.
    """

    body_bytes: int = 8_000_000
    waiting_bytes: int = 32_000_000
    texts: int = 1_000
    characters: int = 100_000
    seconds: float = 60.0
    deadline: float = 10.0

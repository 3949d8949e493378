"""Serve a pipeline: over HTTP for programs and people, and over MCP for agents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a service, defined here because `--help` shows them without the extra `serve`.

    body_bytes (int): Bytes of the body of a request.
    waiting_bytes (int): Bytes of the bodies of all requests in progress. A single request may have
        up to `body_bytes`.
    texts (int): Texts per request.
    characters (int): Characters per text.
    seconds (float): Seconds per request, from its first byte to its answer.
    """

    body_bytes: int = 8_000_000
    waiting_bytes: int = 32_000_000
    texts: int = 1_000
    characters: int = 100_000
    seconds: float = 60.0

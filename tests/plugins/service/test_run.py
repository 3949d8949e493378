"""The service as a process, and its command."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kb_files import columns_of, with_header

from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

GUIDE = Path(__file__).parents[3] / "docs/guides/service.md"
Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture()
def serve() -> Iterator[Serve]:
    """Start `bioel serve` on a free port; killed at the end if it still runs."""
    processes = []

    def start(*argv: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "spacy_bioel", "serve", *map(str, argv), "--port", "0"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline().strip()


def ask(url: str, body: Any) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="has no signal for it")
def test_a_life(serve, tmp_path):
    folder = tmp_path / "kb"
    build_kb([Concept("A:1", ("aspirin",))], folder)
    process = serve(folder)
    url, serves, *_ = line_of(process).split()
    assert (url.rpartition(":")[0], serves) == ("http://127.0.0.1", "serves")

    def ids() -> list[str]:
        (document,) = ask(f"{url}/link", {"texts": ["aspirin"]})["documents"]
        return [link["id"] for link in document["links"]]

    assert ids() == ["A:1"]  # asked while it loads
    assert line_of(process).startswith("Ready after ")
    build_kb([Concept("B:1", ("aspirin",))], folder)
    process.send_signal(signal.SIGHUP)
    assert line_of(process).startswith("Reloaded the knowledge base, fingerprint ")
    assert ids() == ["B:1"]
    with_header(columns_of(folder), b"{")
    process.send_signal(signal.SIGHUP)
    assert line_of(process).startswith("The knowledge base was not reloaded: [B")
    assert ids() == ["B:1"]
    process.send_signal(signal.SIGTERM)
    assert (process.wait(60), line_of(process)) == (0, "Ended.")


@pytest.mark.slow
def test_a_pipeline_that_cannot_be_loaded_ends_it(serve, tmp_path):
    process = serve(tmp_path / "none")
    line_of(process)
    assert process.wait(60) == 2
    assert line_of(process).startswith("error: [B071]")


def test_the_guide_says_when_idle_connections_are_closed():
    from spacy_bioel.plugins.service.run import _IDLE_SECONDS

    assert f"within {_IDLE_SECONDS} seconds of the last response" in GUIDE.read_text("utf8")


def test_a_port_that_is_taken(bioel):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        shown = bioel("serve", "--port", port, status=2).err
    assert f"error: [B393] Cannot listen on 127.0.0.1, port {port}:" in shown


@pytest.mark.parametrize(("command", "package"), [("serve", "fastapi"), ("mcp", "mcp.server")])
def test_without_the_extra(monkeypatch, bioel, command, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "spacy_bioel.plugins.service.mcp", raising=False)
    shown = bioel(command, status=2).err
    assert f"[B192] bioel {command} needs packages from the {command} extra, which" in shown
    assert f"Run: pip install 'spacy-bioel[{command}]'" in shown

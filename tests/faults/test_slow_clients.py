"""Clients that send half a request or never read the answer, over real local sockets."""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no limit of open files to set")

# The number of open files is limited, so that a few hundred connections are too many.
SERVE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
from spacy_bioel.cli import main
main(["serve", sys.argv[1], "--port", "0", "--timeout", "2"])
"""
MOST = 50  # connections that this process accepts
HALVES = {
    "nothing": b"",
    "half a line": b"GET /livez HT",
    "half of the headers": b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: ",
    "half of a second request": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez HT",
    "half of a body": b"POST /link HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
    b"Content-Type: application/json\r\n\r\n{",
}


class Served:
    """A running service."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.log = log
        command = [sys.executable, "-c", SERVE, str(folder)]
        self.process = subprocess.Popen(command, stderr=log.open("w"))
        self.port = int(self.line(0).split()[0].rpartition(":")[2])
        self.line(1)

    def line(self, number: int) -> str:
        """Return a line of its log; wait until it is written."""
        for _ in range(1_200):
            lines = self.log.read_text().splitlines(keepends=True)
            if len(lines) > number and lines[number].endswith("\n"):
                return lines[number]
            assert self.process.poll() is None
            time.sleep(0.05)
        raise AssertionError(f"no line {number}: {lines}")

    def connect(self, sent: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        client.sendall(sent)
        return client

    def ask(self, path: str = "/livez", body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        content = None if body is None else json.dumps(body)
        method = "GET" if body is None else "POST"
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def closed(client: socket.socket) -> bytes:
    """Return the bytes received until the service closes the connection."""
    received = b""
    try:
        while piece := client.recv(1 << 16):
            received += piece
    except ConnectionError:
        pass
    return received


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("slow")
    build_kb([Concept("X:1", ("Naloxone",))], folder / "kb")
    served = Served(folder / "kb", folder / "log")
    yield served
    served.process.kill()
    served.process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("half", HALVES)
def test_half_of_a_request_is_not_waited_for(served, half):
    client = served.connect(HALVES[half])
    answered = {"half of a second request": b"HTTP/1.1 200", "half of a body": b"HTTP/1.1 408"}
    assert closed(client)[:12] == answered.get(half, b"")


@pytest.mark.slow
def test_a_request_that_trickles_in_is_not_waited_for(served):
    """Each byte arrives in time, but the whole request takes too long."""
    client = served.connect(b"GET /livez HTTP/1.1\r\n")
    client.settimeout(0.1)
    for n in range(600):
        try:
            client.sendall(b"X-A: b\r\n")
            assert client.recv(1) == b""
            break
        except TimeoutError:
            assert n < 599
        except ConnectionError:
            break


@pytest.mark.slow
@pytest.mark.parametrize("half", HALVES)
def test_many_halves_stop_nobody_and_write_no_log(served, half):
    clients = [served.connect(HALVES[half]) for _ in range(300)]
    assert [served.ask() for _ in range(3)] == [(200, {"status": "alive"})] * 3
    [document] = served.ask("/link", {"texts": ["Naloxone."]})[1]["documents"]
    assert [link["id"] for link in document["links"]] == ["X:1"]
    for client in clients:
        client.close()
    lines = served.log.read_text().splitlines()
    assert len(lines) <= 3
    assert [line for line in lines if line.startswith(f"More than {MOST} connections")] == lines[2:]


@pytest.mark.slow
def test_connections_beyond_the_limit_close_the_one_that_waits_longest(served):
    first = served.connect()
    others = [served.connect() for _ in range(MOST)]
    assert closed(first) == b""
    others[-1].sendall(b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert closed(others[-1]).startswith(b"HTTP/1.1 200")

"""Requests that are too large, too slow or too many are refused before they cost memory."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from spacy_bioel.plugins.service import Limits
from spacy_bioel.plugins.service.middleware import LimitRequests


class Client:
    """A request that sends its body when it is told to."""

    def __init__(self, path: str = "/link") -> None:
        self.scope: Scope = {"type": "http", "path": path, "method": "POST", "headers": []}
        self.pieces: asyncio.Queue[Message] = asyncio.Queue()
        self.answer: list[Message] = []

    def send_body(self, n_bytes: int, *, more: bool = False) -> None:
        self.pieces.put_nowait({"type": "http.request", "body": b" " * n_bytes, "more_body": more})

    async def ask(self, app: LimitRequests) -> tuple[int, str, str]:
        """RETURNS (tuple): Status, code, and after which seconds to ask again."""

        async def note(message: Message) -> None:
            self.answer.append(message)

        await app(self.scope, self.pieces.get, note)
        start, body = self.answer
        headers = dict(start["headers"])
        return start["status"], json.loads(body["body"])["code"], headers.get(b"retry-after", b"")


class Linking:
    """An application that reads the body and answers when it is told to."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"code": ""}'})


def limited(**limits: Any) -> tuple[LimitRequests, Linking]:
    linking = Linking()
    settings = {"body_bytes": 100, "waiting_bytes": 150, "seconds": 60.0} | limits
    return LimitRequests(linking, limits=Limits(**settings)), linking


def test_too_much_at_once_is_refused_until_others_are_done():
    async def run() -> list[Any]:
        app, linking = limited()
        first, second, probe, third = Client(), Client(), Client("/livez"), Client()
        first.send_body(100)
        asking = asyncio.create_task(first.ask(app))
        await asyncio.sleep(0)
        second.send_body(51)
        refused = await second.ask(app)
        probe.send_body(51)
        linking.go_on.set()
        answers = [await probe.ask(app), await asking]
        third.send_body(51)
        return [refused, *answers, await third.ask(app)]

    ok = (200, "", b"")
    assert asyncio.run(run()) == [(429, "B389", b"2"), ok, ok, ok]


@pytest.mark.parametrize(
    ("limits", "pieces", "length", "expected"),
    [
        ({"waiting_bytes": 10}, [60, 40], b"", (200, "", b"")),  # large, but alone
        ({}, [60, 41], b"", (413, "B382", b"")),
        ({}, [], b"101", (413, "B382", b"")),  # before the body
        ({"seconds": 0.05}, [], b"", (408, "B390", b"")),
        ({"seconds": 0.05}, [1], b"", (503, "B391", b"2")),
    ],
)
def test_a_request(limits, pieces, length, expected):
    async def run() -> Any:
        app, linking = limited(**limits)
        if expected[0] == 200:
            linking.go_on.set()
        client = Client()
        client.scope["headers"] = [(b"content-length", length)]
        for n, piece in enumerate(pieces, 1):
            client.send_body(piece, more=n < len(pieces))
        return await client.ask(app)

    assert asyncio.run(run()) == expected

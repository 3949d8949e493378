"""Texts of documents are confidential: messages quote at most 80 characters, service logs none."""

import asyncio
import json
import logging
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import spacy
from kb_files import made_kb
from mcp import Client
from spacy.language import Language
from spacy.tokens import Doc
from starlette.testclient import TestClient
from tiny import linking_nlp

from spacy_bioel.cli import main
from spacy_bioel.entities import EntityRules
from spacy_bioel.export.rows import link_mentions, link_texts
from spacy_bioel.plugins.service import Limits
from spacy_bioel.plugins.service.app import create_app
from spacy_bioel.plugins.service.mcp import make_agent_tools
from spacy_bioel.plugins.service.service import Service
from spacy_bioel.types import AnnotatedText, Concept, Mention

SECRET = "Fever of Mrs Zelda Quackenbush, " + ", ".join(f"note {i:03} of her" for i in range(40))
NOTHING = 15  # characters that words of other texts may have in common with the secret


def longest_quote(text: str) -> int:
    """Length of the longest part of the secret that a text contains."""
    longest = 0
    for start in range(len(SECRET)):
        while SECRET[start : start + longest + 1] in text and start + longest < len(SECRET):
            longest += 1
    return longest


def test_the_measure():
    assert longest_quote("nothing") <= NOTHING and longest_quote(f"x{SECRET[100:190]}y") == 90


@Language.component("quotes")
def quotes(doc: Doc) -> Doc:
    if "crash" in doc.text:
        raise ValueError(f"cannot process {doc.text!r}")
    return doc


class Quoting(EntityRules):
    """Rules that quote the text in their errors, as many do."""

    function = "rescore"

    def rescore(self, batch: Any) -> Any:
        self._raise("rescore", batch.docs)
        return batch.candidates

    def facts(self, batch: Any) -> Any:
        self._raise("facts", batch.docs)
        if self.function == "wrong facts":
            return [{"fact": {doc.text for doc in batch.docs}} for _ in batch.links]
        return [{} for _ in batch.links]

    def _raise(self, name: str, docs: Any) -> None:
        if name == self.function:
            raise KeyError(*(doc.text for doc in docs))


@spacy.registry.misc("tests.Quoting.v1")
def create_quoting(function: str) -> Quoting:
    rules = Quoting()
    rules.function = function
    return rules


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("private") / "kb"
    made_kb(folder, [Concept("X:1", ("Fever",)), Concept("X:2", (SECRET,))])
    return folder


@pytest.fixture(params=["quotes", "rescore", "facts", "wrong facts"])
def failing(request, kb) -> Language:
    """A pipeline that fails on each text, with an error that quotes it."""
    settings: dict[str, Any] = {"mentions": "dictionary", "model": {"dim": 16}}
    if request.param != "quotes":
        rules = {"@misc": "tests.Quoting.v1", "function": request.param}
        settings["entities"] = {"quoting": rules}
    nlp = linking_nlp(kb, **settings)
    if request.param == "quotes":
        nlp.add_pipe("quotes", first=True)
    return nlp


JSON = {"Content-Type": "application/json"}
TEXT = f"A crash. Fever. {SECRET}"


@pytest.mark.parametrize("n_process", [1, 2])
def test_rows_of_failed_documents(failing, n_process, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    (row,) = link_texts(failing, [(TEXT, "1")], n_process=n_process)
    assert row.error is not None
    assert longest_quote(row.error.message) <= 80 and len(row.error.message) < 500
    (row,) = link_mentions(failing, [AnnotatedText("1", TEXT, (Mention(9, 14, "D"),))])
    assert row.error is None or longest_quote(row.error.message) <= 80
    out, err = capfd.readouterr()
    assert longest_quote(out + err + caplog.text) <= NOTHING


REQUESTS: list[Any] = [
    {"texts": [TEXT]},
    {"texts": [TEXT, "\ud800" + SECRET]},
    {"texts": [{"text": TEXT, "id": SECRET}]},
    {"texts": TEXT},
    {"texts": [[TEXT]]},
    {"texts": [{"text": [TEXT]}]},
    {"texts": [{"text": {TEXT: TEXT}}]},
    {"texts": [{"text": "x", "id": [TEXT]}]},
    {"texts": [{TEXT: TEXT}]},
    {"texts": [], TEXT: 1},
    {"texts": [], "candidates": TEXT},
    {TEXT: TEXT},
    [TEXT],
    TEXT,
    {"texts": ["x" * 6000 + SECRET]},
    {"texts": [TEXT] * 9},
    {"texts": [TEXT] * 900},
]


def client_of(nlp: Language) -> tuple[TestClient, Service]:
    service = Service(lambda: nlp, max_characters=5000)
    service.start()
    limits = Limits(body_bytes=50_000, texts=5, characters=5000)
    return TestClient(create_app(service, limits), "http://localhost"), service


def test_service(failing, capfd, caplog):
    """No log contains a text, and no answer quotes it, except as the text itself."""
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # the client's own log has addresses
    nlp = failing
    if nlp.has_pipe("quotes"):
        client, service = client_of(nlp)
    else:  # the service tries its pipeline first, which must not fail then
        rules = nlp.get_pipe("bioel_linker").entities.rules["quoting"]
        rules.function, function = "none", rules.function
        client, service = client_of(nlp)
        service.wait()
        service._pipelines[0]._linker.generator.rules.rules["quoting"].function = function
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        messages = []
        for request in REQUESTS:
            answer = client.post("/link", content=json.dumps(request), headers=JSON).json()
            errors = [
                one["error"] or {} for one in answer.get("documents", [answer | {"error": answer}])
            ]
            messages += [f"{error.get('message')} {error.get('where')}" for error in errors]
        for body in (TEXT, json.dumps({"texts": [TEXT]})[:-4], '{"texts": ["\\ud8 ' + TEXT):
            messages.append(client.post("/link", content=body, headers=JSON).text)
        messages.append(client.post("/link", content=TEXT, headers={"Content-Type": "text/x"}).text)
        messages.append(client.get(f"/search?q={TEXT}&k=x").text)
        messages.append(client.get("/search", params={"q": TEXT * 3}).text)
        messages.append(client.get(f"/concepts/{TEXT}").text)
        messages.append(client.get(f"/{TEXT}").text)
        messages.append(client.put(f"/concepts/{TEXT}").text)
    service.close()
    assert len(messages) > len(REQUESTS) and all(longest_quote(m) <= 80 for m in messages)
    out, err = capfd.readouterr()
    logs = out + err + caplog.text + "".join(str(one.message) for one in caught)
    assert longest_quote(logs) <= NOTHING


@pytest.mark.parametrize("name", ["link", "concept", "search", "about"])
def test_bugs_in_the_service(kb, name, monkeypatch, capfd, caplog):
    client, service = client_of(linking_nlp(kb, mentions="dictionary", model={"dim": 16}))
    service.wait()

    def bug(*_: Any) -> Any:
        try:
            raise KeyError(TEXT)
        except KeyError as error:
            raise RuntimeError(f"{TEXT} is not expected") from error

    monkeypatch.setattr(service._pipelines[0] if name == "link" else service, name, bug)
    paths = {"link": "/link", "concept": "/concepts/X:1", "search": "/search?q=x", "about": "/info"}
    json_of = {"json": {"texts": [TEXT]}} if name == "link" else {}
    answer = client.request("POST" if json_of else "GET", paths[name], **json_of)
    assert (answer.status_code, answer.json()["code"]) == (500, "B392")
    service.close()
    out, err = capfd.readouterr()
    logs = out + err + caplog.text
    assert "RuntimeError" in logs and ", in bug" in logs and longest_quote(logs) <= NOTHING
    assert longest_quote(answer.text) <= NOTHING


def test_agents(kb, monkeypatch, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    service = Service(lambda: linking_nlp(kb, mentions="dictionary"), max_characters=5000)
    service.start()
    server = make_agent_tools(service)

    async def call(**arguments: Any) -> Any:
        async with Client(server) as client:
            return await client.call_tool("link_text", arguments)

    answers = [asyncio.run(call(text={TEXT: TEXT})), asyncio.run(call(wrong=TEXT))]

    def bug(*_: Any) -> Any:
        raise RuntimeError(TEXT)

    monkeypatch.setattr(service._pipelines[0], "link", bug)
    answers.append(asyncio.run(call(text=TEXT)))
    service.close()
    assert all(answer.is_error for answer in answers)
    assert all(longest_quote(answer.content[0].text) <= 80 for answer in answers)
    out, err = capfd.readouterr()
    logs = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert longest_quote(out + err + "".join(map(str, logs))) <= NOTHING


FILES = {
    "text.csv": f'id,text\n1,"{SECRET}\n',
    "no_header.csv": f"{SECRET}\n{SECRET}\n",
    "broken.jsonl": json.dumps({"text": SECRET}) + "\n" + json.dumps({"text": SECRET})[:-2] + "\n",
    "number.jsonl": json.dumps({"text": {SECRET: SECRET}}) + "\n",
    "id.jsonl": json.dumps({"id": SECRET, "text": None}) + "\n",
    "bar.jsonl": json.dumps({"id": f"|{SECRET}", "text": SECRET}) + "\n",
    "list.jsonl": json.dumps([SECRET]) + "\n",
    "outside.jsonl": json.dumps(
        {"text": SECRET, "mentions": [{"start": 9, "end": 9999, "text": SECRET}]}
    ),
    "other_words.txt": f"1|t|{SECRET}\n1|a|x\n1\t0\t{len(SECRET)}\tx{SECRET[1:]}\tD\tX:1\n\n",
    "no_title.txt": f"1|t|{SECRET}\n{SECRET}\n\n",
    "no_columns.txt": f"1|t|{SECRET}\n1|a|x\n1\t{SECRET}\t{SECRET}\tD\tX:1\t\n\n",
    "other_id.txt": f"1|t|{SECRET}\n1|a|x\n{SECRET}\t0\t5\tFever\tD\tX:1\n\n",
    "broken.xml": f"<collection><document><text>{SECRET}</document></collection>",
    "passage.json": json.dumps({"documents": [{"id": SECRET, "passages": [{"text": SECRET}]}]}),
    "alone.ann": f"T1\tD 0 5\t{SECRET}\n{SECRET}\n",
    "latin1.txt": f"{SECRET}é\n".encode("latin1").decode("utf8", "surrogateescape"),
    "page.html": f"<html>{SECRET}</html>",
}


@pytest.fixture
def files(tmp_path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.write_bytes(content.encode("utf8", "surrogateescape"))
    (tmp_path / "alone.txt").write_text(SECRET)
    return tmp_path


# Most faults are those of readers, which commands share.
RUNS = [("pubtator", "bar.jsonl"), *((run, name) for run in ("link", "build") for name in FILES)]
RUNS += [
    pytest.param(run, name, marks=[pytest.mark.slow] * (run != "convert"))
    for run in ("convert", "given", "evaluate")
    for name in FILES
]


@pytest.mark.parametrize(("command", "name"), RUNS)
def test_commands_on_bad_files(kb, files, name, command, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    path = str(files / name)
    argv = {
        "link": ["link", str(kb), path, "-o", str(files / "out.csv")],
        "pubtator": ["link", str(kb), path, "-o", str(files / "out.pubtator")],
        "given": ["link", str(kb), path, "--mentions", "given", "-o", str(files / "out.csv")],
        "convert": ["convert", path, str(files / "out.spacy")],
        "evaluate": ["evaluate", str(kb), path],
        "build": ["kb", "build", str(files / "new"), path],
    }[command]
    with pytest.raises(SystemExit):
        main(argv)
    out, err = capfd.readouterr()
    assert longest_quote(err + caplog.text) <= 80, err


@pytest.mark.parametrize(
    "argv", [[TEXT], [TEXT, SECRET, SECRET], ["KB", TEXT, "--mention", SECRET[9:]]]
)
def test_a_text_on_the_command_line(kb, argv, capfd):
    with pytest.raises(SystemExit):
        main(
            ["explain", *(str(kb) if word == "KB" else word for word in argv), "--mention", SECRET]
        )
    assert longest_quote(capfd.readouterr().err) <= 80


CRASHES = """
import sys
from spacy_bioel.cli import documents, inputs, main
def crash(*_, **__):
    secret = open(sys.argv[1]).read()
    try:
        raise KeyError(secret)
    except KeyError as error:
        raise RuntimeError(secret) from error
inputs.write_links = crash
main(["link", sys.argv[2], sys.argv[1]])
"""


def test_a_crash_of_the_command(kb, tmp_path):
    (tmp_path / "secret.txt").write_text(SECRET)
    argv = [sys.executable, "-c", CRASHES, tmp_path / "secret.txt", kb]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 1 and "RuntimeError" in done.stderr and "in crash" in done.stderr
    assert 40 < longest_quote(done.stderr) <= 80 and done.stdout == ""

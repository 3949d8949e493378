"""`bioel link` that is interrupted: what is kept, and `--resume`, which goes on after it."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import INTERRUPTED
from tiny import needs

from spacy_bioel.cli import inputs
from spacy_bioel.export.rows import link_texts

BIOEL = (sys.executable, "-m", "spacy_bioel")
TEXTS = [f"Narcan and clonidine, document {i}." for i in range(40)]
OUTPUTS = ["jsonl", "csv", "html", "ann"]
OUTPUTS += [
    pytest.param(suffix, marks=pytest.mark.slow)
    for suffix in ("json", "tsv", "pubtator", "bioc.xml", "bioc.json", "parquet")
]


@pytest.fixture
def notes(tmp_path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


@pytest.fixture
def stop(monkeypatch) -> Callable[[int, BaseException], None]:
    """Let linking end with an error after some documents, as Ctrl+C does."""

    def stop_after(n: int, error: BaseException) -> None:
        def interrupted(*args: Any, **options: Any) -> Any:
            for number, linked in enumerate(link_texts(*args, **options)):
                if number == n:
                    raise error
                yield linked

        monkeypatch.setattr("spacy_bioel.export.rows.link_texts", interrupted)

    return stop_after


def contents(path: Path) -> dict[str, bytes]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file.name.replace(path.name, "OUT"): file.read_bytes() for file in files}


@needs("clinical")
@pytest.mark.parametrize("suffix", OUTPUTS)
def test_interrupted_and_resumed_is_as_if_it_had_never_stopped(
    bioel, model, notes, tmp_path, stop, monkeypatch, suffix
):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    whole, out = tmp_path / f"whole.{suffix}", tmp_path / f"out.{suffix}"
    expected = bioel("link", model, notes, "-o", whole, "--context")
    for n in (25, 10):
        stop(n, KeyboardInterrupt())
        argv = ("link", model, notes, "-o", out, "--context", "--batch-size", 7)
        done = bioel(*argv, *["--resume"][: n == 10], status=130)
        monkeypatch.undo()
        assert not out.exists()
    partial = tmp_path / f"out.{suffix}.partial"
    assert f"{partial} has 35 linked documents. To continue, add --resume" in done.err
    done = bioel("link", model, notes, "-o", out, "--context", "--resume")
    assert contents(out) == contents(whole)
    assert f"Continuing after the 35 linked documents in {partial}." in done.err
    assert done.err.splitlines()[-1] == expected.err.splitlines()[-1]
    assert not partial.exists()


@pytest.mark.parametrize("option", [pytest.param("--context", marks=needs("clinical")), "--xrefs"])
def test_options_of_the_output_apply_to_both_parts(bioel, model, notes, tmp_path, stop, option):
    notes.write_text("No Narcan. Clonidine.\n" * 9)
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    bioel("link", model, notes, "-o", whole, option)
    stop(4, KeyboardInterrupt())
    bioel("link", model, notes, "-o", out, option, status=130)
    bioel("link", model, notes, "-o", out, option, "--resume", status=130)  # stops again, after 8
    assert len((tmp_path / "out.jsonl.partial").read_text().splitlines()) == 9
    bioel("link", model, notes, "-o", out, option, "--resume")
    assert out.read_bytes() == whole.read_bytes()


def test_given_mentions_failed_documents_and_exit_status(
    bioel, model, corpus, tmp_path, monkeypatch
):
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    source = tmp_path / "some.jsonl"
    source.write_text('{"text": "Narcan"}\n{"text": null}\n{"text": "clonidine"}\n' * 3)
    for path, argv, status in (
        (corpus, ("--mentions", "given"), 0),
        (source, ("--format", "jsonl"), 1),
    ):
        bioel("link", model, path, "-o", whole, *argv, status=status)
        write = inputs.write_links

        def stopping(linked: Any, *args: Any, write: Any = write, **options: Any) -> None:
            def two() -> Any:
                yield next(linked)
                raise KeyboardInterrupt

            write(two(), *args, **options)

        monkeypatch.setattr(inputs, "write_links", stopping)
        bioel("link", model, path, "-o", out, *argv, status=130)
        monkeypatch.setattr(inputs, "write_links", write)
        done = bioel("link", model, path, "-o", out, *argv, "--resume", status=status)
        assert out.read_bytes() == whole.read_bytes()
        assert ("3 documents failed" in done.err) == bool(status)
        out.unlink()


@pytest.fixture
def interrupted(bioel, model, notes, tmp_path, stop) -> Path:
    """The partial file of a run that was stopped after 12 documents."""
    stop(12, KeyboardInterrupt())
    bioel("link", model, notes, "-o", tmp_path / "out.csv", status=130)
    return tmp_path / "out.csv.partial"


def other_input(notes: Path) -> None:
    notes.write_text(notes.read_text().replace("document 7", "document 8"))


def shorter_input(notes: Path) -> None:
    notes.write_text("\n".join(TEXTS[:7]))


@pytest.mark.parametrize("change", [other_input, shorter_input])
def test_another_input_is_refused(bioel, model, notes, interrupted, monkeypatch, change):
    monkeypatch.undo()
    before = interrupted.read_bytes()
    change(notes)
    out = interrupted.with_suffix("")
    shown = bioel("link", model, notes, "-o", out, "--resume", status=2).err
    assert "error: [B553] Document 8 of the input is not the document" in shown
    assert interrupted.read_bytes() == before and not out.exists()


def test_input_that_was_corrected_or_grew_after_that_place(
    bioel, model, notes, interrupted, monkeypatch, tmp_path
):
    monkeypatch.undo()
    notes.write_text(notes.read_text().replace("document 30", "document thirty") + "Narcan.\n")
    bioel("link", model, notes, "-o", tmp_path / "out.csv", "--resume")
    bioel("link", model, notes, "-o", tmp_path / "whole.csv")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_an_error_after_hours_also_keeps_what_is_done(bioel, model, tmp_path):
    source = tmp_path / "notes.jsonl"
    lines = [json.dumps({"text": text}) + "\n" for text in TEXTS]
    source.write_text("".join(lines[:30]) + "{broken\n" + "".join(lines[30:]))
    out = tmp_path / "out.jsonl"
    shown = bioel("link", model, source, "-o", out, "--batch-size", 4, status=2).err
    assert "error: [B131]" in shown and "out.jsonl.partial has 28 linked documents" in shown
    source.write_text("".join(lines))
    bioel("link", model, source, "-o", out, "--resume")
    assert len(out.read_text().splitlines()) == len(TEXTS)


def test_nothing_to_resume(bioel, model, notes, tmp_path, stop, monkeypatch):
    out = tmp_path / "out.jsonl"
    assert "[B550]" in bioel("link", model, notes, "--resume", status=2).err
    done = bioel("link", model, notes, "--resume", "-o", out)
    assert "[W350]" in done.err and out.exists()
    out.unlink()
    stop(0, KeyboardInterrupt())
    for argv in ("-o", out), ("-o", "-"):
        shown = bioel("link", model, notes, *argv, status=130).err
        assert shown == INTERRUPTED
    assert list(tmp_path.iterdir()) == [notes]
    monkeypatch.undo()
    stop(3, KeyboardInterrupt())
    done = bioel("link", model, notes, status=130)
    assert len(done.rows) == 3 and done.err == "Interrupted after 3 documents.\n"


def heed_interrupts() -> None:
    """A shell without job control starts background jobs, such as these tests, without SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


linux = pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc")


STOPPED = [(signal.SIGINT, 1), (signal.SIGKILL, 2)]
STOPPED += [
    pytest.param(number, n, marks=pytest.mark.slow)
    for number, n in ((signal.SIGINT, 2), (signal.SIGTERM, 1), (signal.SIGTERM, 2))
]


@linux
@pytest.mark.parametrize(("number", "n_process"), STOPPED)
def test_signals(bioel, model, tmp_path, monkeypatch, number, n_process):
    """A process that is stopped while it waits for more of a slow input, and then goes on."""
    out, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    argv = ["link", str(model), "-", "-o", str(out), "--batch-size", "1"]
    command = [*BIOEL, *argv, "--n-process", str(n_process)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write("".join(f"{text}\n" for text in TEXTS[:20]).encode())
        process.stdin.flush()
        deadline = time.monotonic() + 120
        while not partial.exists() or partial.read_bytes().count(b"\n") < 8:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        # As a terminal does, to the workers as well, but a killed worker would be another error.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        shown = process.stderr.read().decode()
        process.stdin.close()
        assert process.wait(timeout=60) == (130 if number == signal.SIGINT else -number)
    assert not out.exists() and "Traceback" not in shown
    if number == signal.SIGINT:
        assert f"{partial} has " in shown and shown.count("\n") == 1
    whole = tmp_path / "whole.jsonl"
    for arguments in ([*argv, "--resume"], ["link", str(model), "-", "-o", str(whole)]):
        lines = "".join(f"{text}\n" for text in TEXTS).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines), encoding="ascii"))
        assert "40 documents, 80 mentions" in bioel(*arguments).err
    assert out.read_bytes() == whole.read_bytes() and not partial.exists()


@linux
@pytest.mark.parametrize("kind", ["file", pytest.param("pipe", marks=pytest.mark.slow)])
def test_progress_on_a_terminal(model, notes, tmp_path, kind):
    """The number of documents and the time left; what comes on stdin is not counted."""
    terminal, stderr = os.openpty()
    out = tmp_path / "out.jsonl"
    source = str(notes) if kind == "file" else "-"
    command = [*BIOEL, "link", str(model), source, "--format", "text", "-o", str(out)]
    env = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with notes.open("rb") as file, subprocess.Popen(["cat"], stdin=file, stdout=-1) as texts:
        done = subprocess.run(command, stdin=texts.stdout, stderr=stderr, env=env, timeout=120)
    os.close(stderr)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert done.returncode == 0 and "40 documents, 80 mentions" in shown
    assert ("/40" in shown and "left:" in shown) == (kind == "file")
    assert len(out.read_text().splitlines()) == 40

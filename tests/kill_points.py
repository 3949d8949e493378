"""Kills commands that change a knowledge base, each before one of its changes to the disk.

python kill_points.py FOLDER N COMMAND ... forks a process for each of N points of each command,
chosen at random (0: all), and prints one JSON object a point: what was found after the kill, and
after the next run.
"""

import errno
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from typing import Any

from kb_files import encode

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import vector_files as writing
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import add_concepts, compact_kb, retire_ids
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import open_vectors
from spacy_bioel.types import Concept

EVENTS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.scandir", "os.chmod"}
REMOVALS = {"os.remove", "os.rmdir", "os.scandir"}
OLD = [Concept("X:1", ("one", "uno")), Concept("X:2", ("two",))]
NEW = [*OLD, Concept("X:3", ("three",))]


def outdate(kb: Path) -> None:
    build_kb(OLD, kb)
    encode(kb)
    add_concepts(kb, NEW[2:])


def outdate_and_retire(kb: Path) -> None:
    outdate(kb)
    retire_ids(kb, {"X:1": "X:2"})


def in_another_folder(kb: Path) -> None:
    outdate(kb.with_name("other"))
    encode(kb.with_name("other"))


def copy(kb: Path) -> None:
    KnowledgeBase.open(kb.with_name("other")).save_to(kb)


# What makes the state before, and the command.
COMMANDS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "first build": (lambda kb: None, lambda kb: build_kb(NEW, kb)),
    "build": (lambda kb: build_kb(OLD, kb), lambda kb: build_kb(NEW, kb)),
    "add": (lambda kb: build_kb(OLD, kb), lambda kb: add_concepts(kb, NEW[2:])),
    "encode": (outdate, encode),
    "compact": (outdate, compact_kb),
    "forget": (outdate_and_retire, partial(compact_kb, forget_retired=True)),
    "copy": (in_another_folder, copy),
}


def in_child(
    run: Callable[[Path], object],
    kb: Path,
    *,
    point: int = 0,
    events: Container[str] = EVENTS,
    within: Path | None = None,
    full: bool = False,
) -> tuple[int, int]:
    """Run a command in a process of its own, and kill it at a point, from 1.

    events: What the points are: these audit events, with a path in `within`, by default `kb`.
    full: The disk is full from this point on, instead: files can be read and removed.

    RETURNS (tuple): The signal that ended it, 0 for none; the points that it came by.
    """
    folder = str(within or kb)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.fsync = lambda descriptor: None  # it is the process that dies, and not the system
        writing._NAMES_PER_BLOCK = 1
        n = 0

        def count(event: str, args: tuple[Any, ...]) -> None:
            nonlocal n
            if event in events and str(args[0]).startswith(folder):
                n += 1
                if n == point and not full:
                    os.kill(os.getpid(), signal.SIGKILL)
                reads = event == "open" and not int(args[2] or 0) & (os.O_WRONLY | os.O_RDWR)
                if full and n >= point and event not in REMOVALS and not reads:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(args[0]))

        sys.addaudithook(count)
        try:
            run(kb)
        except BaseException as error:
            if not full:
                traceback.print_exc()
            os._exit(0 if full and isinstance(error, OSError | SystemExit) else 1)
        os.write(writer, str(n).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        n_points = int(pipe.read() or 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), n_points


def state(kb: Path) -> list[str]:
    """The ids, and whether there are current vectors, after a check of every byte."""
    try:
        opened = KnowledgeBase.open(kb)
    except BioelError as error:
        return [str(error)[:6]]
    opened.verify(homes=True)
    ids = [*opened.ids, *opened.retired]
    try:
        return [*ids, f"{len(open_vectors(opened, fingerprint='f'))} vectors"]
    except BioelError as error:
        assert str(error)[1:5] in ("B032", "B034")  # none, or outdated ones
        return ids


def kill(kb: Path, command: str, n: int) -> None:
    prepare, run = COMMANDS[command]
    prepare(kb)
    before = state(kb)
    _, n_points = in_child(run, kb)
    after = state(kb)
    points = list(range(1, n_points + 1))
    for point in random.Random(0).sample(points, n) if n else points:
        shutil.rmtree(kb)
        prepare(kb)
        ended, _ = in_child(run, kb, point=point)
        found = state(kb)
        in_child(run, kb)
        hidden = sorted(path.name for path in kb.iterdir() if path.name.startswith("."))
        line = {"command": command, "point": point, "killed": ended == -signal.SIGKILL}
        line |= {"whole": found in (before, after), "again": state(kb) == after, "hidden": hidden}
        print(json.dumps(line | {"columns": len(list(kb.glob("kb.*")))}))


if __name__ == "__main__":
    for command in sys.argv[3:]:
        kill(Path(sys.argv[1]) / command / "kb", command, int(sys.argv[2]))

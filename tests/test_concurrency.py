"""Whoever reads or writes a knowledge base at the same time as others, or as one is killed, finds
one whole state; and a pipeline in many threads gives the result of one."""

import multiprocessing
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest import mock

import pytest
import spacy
from kb_files import add, change, concept, hold, made_kb, ones
from projects import lines_of
from spacy.tokens import Span

import spacy_bioel
from spacy_bioel.errors import BioelError
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.kb import bundled
from spacy_bioel.kb import folder as transaction_module
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.folder import editing
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import Encoded, are_outdated, open_vectors, write_vectors
from spacy_bioel.linking import searches

SPAWN = multiprocessing.get_context("spawn")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes that it forks")
# -- Writers beside each other ------------------------------------------------------------------


@pytest.mark.parametrize("pool", [SPAWN.Pool, ThreadPool])
def test_all_that_add_at_once_take_effect(tmp_path, pool):
    build_kb([concept(0)], tmp_path / "kb")
    with pool(2) as workers:
        workers.starmap(add, [(tmp_path / "kb", i) for i in range(1, 11)], chunksize=1)
    assert list(KnowledgeBase.open(tmp_path / "kb").ids) == [f"X:{i:03}" for i in range(11)]


def test_what_is_added_while_encoding_waits_and_loses_nothing(tmp_path):
    build_kb([concept(0)], tmp_path / "kb")
    encoding, go_on = threading.Event(), threading.Event()

    def encode(names: Any) -> Any:
        encoding.set()
        assert go_on.wait(60)
        return ones(names)

    kb = KnowledgeBase.open(tmp_path / "kb")
    with ThreadPoolExecutor(2) as pool:
        encoded = pool.submit(write_vectors, kb, encode, fingerprint="f", dim=2)
        assert encoding.wait(60)
        added = pool.submit(add, tmp_path / "kb", 1)
        time.sleep(0.2)
        assert not added.done()
        go_on.set()
        assert encoded.result() == Encoded(2, 0, None)
        added.result()
    now = KnowledgeBase.open(tmp_path / "kb")
    assert list(now.ids) == ["X:000", "X:001"] and are_outdated(now, "f")
    assert write_vectors(kb, ones, fingerprint="f", dim=2) == Encoded(2, 2, None)
    assert len(open_vectors(now, fingerprint="f")) == 4


def test_who_waits_says_for_what(tmp_path, monkeypatch, caplog):
    build_kb([concept(0)], tmp_path / "kb")
    monkeypatch.setattr(transaction_module, "_WARN_AFTER", 0.05)
    with editing(tmp_path / "kb", to="encode names"), ThreadPoolExecutor(1) as pool:
        waits = pool.submit(_enter, tmp_path / "kb", 0.2)
        with pytest.raises(BioelError, match=r"\[B212\].*\(encode names, since"):
            waits.result()
    assert re.search(r"\[W212\].*process \d+ on .* \(encode names, since", caplog.text)
    _enter(tmp_path / "kb", 0)


def _enter(folder: Path, patience: float) -> None:
    with mock.patch.object(transaction_module, "PATIENCE", patience), editing(folder, to="try"):
        pass


def test_the_lock_of_a_process_that_was_killed(tmp_path):
    build_kb([concept(0)], tmp_path / "kb")
    held = SPAWN.Event()
    process = SPAWN.Process(target=hold, args=(tmp_path / "kb", held))
    process.start()
    assert held.wait(60)
    with pytest.raises(BioelError, match=rf"\[B212\].*process {process.pid} on"):
        _enter(tmp_path / "kb", 0)
    process.kill()
    process.join()
    add(tmp_path / "kb", 1)
    assert len(KnowledgeBase.open(tmp_path / "kb")) == 2


def test_a_failed_first_build_leaves_nothing_to_those_that_wait(tmp_path):
    def build(i: int) -> str:
        try:
            build_kb([concept(i)] if i % 2 else [], tmp_path / "kb")
        except BioelError as error:
            return str(error)[:6]
        return "built"

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(build, range(8))) == ["[B028]", "built"] * 4
    assert len(KnowledgeBase.open(tmp_path / "kb")) == 1


# -- Readers beside a writer --------------------------------------------------------------------


def check(kb: KnowledgeBase) -> str:
    """Parts that do not fit together in a knowledge base of `concept`s; "" if all do."""
    if len(kb) != kb.meta["counts"]["concepts"] or kb.n_names != 2 * len(kb):
        return f"{len(kb)} concepts, {kb.n_names} names, {kb.meta['counts']}"
    for row, id in enumerate(kb.ids):
        i = int(id.partition(":")[2])
        found = (kb.preferred_name(row), kb.definition(row), kb.find(id))
        if found != (f"name {i}", f"Of {i}.", row):
            return f"{id}: {found}"
    kb.verify()
    try:
        vectors = open_vectors(kb, fingerprint="f")
    except BioelError as error:
        return "" if str(error)[1:5] in ("B032", "B034") else str(error)
    return "" if len(vectors) == kb.n_names else f"{len(vectors)} vectors"


def test_readers_beside_a_writer_see_one_state(tmp_path):
    folder = tmp_path / "kb"
    first = made_kb(folder, [concept(0)])
    writer = SPAWN.Process(target=change, args=(folder, 16))
    writer.start()
    done = threading.Event()

    def read() -> tuple[int, list[str]]:
        n, wrong = 0, []
        while not done.is_set():
            n += 1
            try:
                wrong.append(check(KnowledgeBase.open(folder)))
            except Exception as error:  # of whatever kind: readers must not see any
                wrong.append(repr(error))
        return n, [found for found in wrong if found]

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        writer.join(120)
        done.set()
    assert writer.exitcode == 0
    assert [wrong for reader in readers for wrong in reader.result()[1]] == []
    assert sum(reader.result()[0] for reader in readers) > 10
    assert check(first) == "" and len(first) == 1


# -- Writers that are killed --------------------------------------------------------------------

COMMANDS = ["first build", "build", "add", "encode", "compact", "forget", "copy"]


def assert_old_or_new(points: list[dict[str, Any]]) -> None:
    expected = {"killed": True, "whole": True, "again": True, "hidden": [".lock"], "columns": 1}
    assert points == [point | expected for point in points]


@needs_fork
def test_a_kill_leaves_the_old_state_or_the_new(tmp_path):
    points = lines_of("kill_points.py", tmp_path, 2, *COMMANDS)
    assert len(points) == 14
    assert_old_or_new(points)


@needs_fork
@pytest.mark.slow
def test_a_kill_at_any_point(tmp_path):
    points = lines_of("kill_points.py", tmp_path, 0, *COMMANDS)
    assert sum(point["killed"] for point in points) > 400
    # The last point may not be reached: their number is not the same each time.
    assert_old_or_new([point | {"killed": True} for point in points])


# -- First use ----------------------------------------------------------------------------------


def test_first_use_by_threads_builds_and_encodes_once(small_starter):
    asked: list[int] = []

    def encode(names: Any) -> Any:
        asked.append(len(names))
        return ones(names)

    def first_use(_: int) -> tuple[int, int]:
        kb = bundled.starter_kb()
        done = write_vectors(kb, encode, fingerprint="f", dim=2)
        assert len(open_vectors(kb, fingerprint="f")) == 4
        return len(kb), done.encoded

    with ThreadPoolExecutor(16) as pool:
        found = sorted(pool.map(first_use, range(16)))
    assert found == [(2, 0)] * 15 + [(2, 4)]
    assert asked == [4]


def link_first(printed: Any) -> None:
    """Link with the bundled knowledge base, in a process of its own."""
    encoded = []

    def counted(*args: Any, **options: Any) -> Encoded:
        encoded.append(write_vectors(*args, **options))
        return encoded[-1]

    searches.write_vectors = counted
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_linker")
    doc = nlp.make_doc("With aspirin now")
    doc.ents = [Span(doc, 1, 2, label="X")]
    printed.put((nlp(doc).ents[0].kb_id_, sum(done.encoded > 0 for done in encoded)))


@needs_fork
def test_first_use_by_four_processes(small_starter):
    fork = multiprocessing.get_context("fork")
    printed = fork.SimpleQueue()
    processes = [fork.Process(target=link_first, args=(printed,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    expected = [("MESH:D001241", 0)] * 3 + [("MESH:D001241", 1)]
    assert sorted(printed.get() for _ in processes) == expected
    [kb] = filter(Path.is_dir, small_starter.iterdir())  # vectors of strings are a file
    assert len(list((kb / "vectors").iterdir())) == 1


# -- One pipeline in many threads -----------------------------------------------------------------

N_THREADS, N_TEXTS = 4, 8
SIX = Path(__file__).parent / "data" / "six.PubTator.txt"
Rows = list[list[tuple]]


def rows(docs) -> Rows:
    return [
        [(s.start, s.end, s.label_, s.kb_id_, s._.candidates) for s in doc.spans["bioel"]]
        for doc in docs
    ]


@pytest.mark.slow
def test_threads_give_the_serial_result():
    """32 documents, in threads that all begin at once with a pipeline that is cold."""
    words = [text.text for text in read_pubtator(SIX)]
    # Each different, so that the threads find little that is kept.
    texts = [f"{words[i % 6]} Case {i}." for i in range(N_TEXTS)]
    expected = rows(spacy_bioel.load().pipe(texts, batch_size=16))
    assert sum(map(len, expected)) > 30
    nlp = spacy_bioel.load()
    barrier = Barrier(N_THREADS)

    def work(number: int) -> int:
        order = list(range(number, N_TEXTS)) + list(range(number))
        barrier.wait()
        found = rows(nlp.pipe([texts[i] for i in order], batch_size=16))
        return sum(one == expected[i] for one, i in zip(found, order, strict=True))

    with ThreadPoolExecutor(N_THREADS) as pool:
        assert sum(pool.map(work, range(N_THREADS))) == N_THREADS * N_TEXTS

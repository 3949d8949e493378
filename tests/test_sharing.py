"""One pipeline in many threads: the results are those of one thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import spacy
from spacy.language import Language

ROOT = Path(__file__).parent
N_THREADS, N_TEXTS = 8, 125
Rows = list[list[tuple]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """A detector and a linker that know six documents by heart, and texts that they read."""
    sys.path.insert(0, str(ROOT / "pipeline"))
    try:
        from tiny import DETECTOR, LINKER, VOCABULARY, blank, train
    finally:
        sys.path.remove(str(ROOT / "pipeline"))
    from spacy_bioel.io.jsonl import read_concepts_jsonl
    from spacy_bioel.io.pubtator import read_pubtator
    from spacy_bioel.kb.build.build import build_kb

    folder = tmp_path_factory.mktemp("sharing")
    build_kb(read_concepts_jsonl(ROOT / "data" / "concepts.jsonl"), folder / "kb")
    texts = list(read_pubtator(ROOT / "data" / "six.PubTator.txt", prefix="MESH"))
    nlp = blank()
    nlp.add_pipe("bioel_mentions", config=DETECTOR)
    nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(folder / "kb")})
    nlp.config["initialize"]["components"]["bioel_linker"] = VOCABULARY
    train(nlp, texts, updates=30)
    nlp.to_disk(folder / "nlp")
    words = [text.text for text in texts]
    # Each different, so that the threads find little that is kept.
    yield folder / "nlp", [f"{words[i % 6]} Case {i}." for i in range(N_TEXTS)]


def rows(docs) -> Rows:
    return [
        [(s.start, s.end, s.label_, s.kb_id_, s._.candidates) for s in doc.spans["bioel"]]
        for doc in docs
    ]


def by_pipe(nlp: Language, texts: list[str]) -> Rows:
    return rows(nlp.pipe(texts, batch_size=16))


def by_call(nlp: Language, texts: list[str]) -> Rows:
    return rows(nlp(text) for text in texts)


@pytest.mark.parametrize("read", [by_pipe, by_call])
def test_eight_threads_give_the_serial_result(
    saved: tuple[Path, list[str]], read: Callable[[Language, list[str]], Rows]
) -> None:
    """1,000 documents, in threads that all begin at once with a pipeline that is cold."""
    folder, texts = saved
    expected = by_pipe(spacy.load(folder), texts)
    assert sum(map(len, expected)) > 500
    nlp = spacy.load(folder)
    barrier = Barrier(N_THREADS)

    def work(number: int) -> int:
        order = list(range(number, N_TEXTS)) + list(range(number))
        barrier.wait()
        found = read(nlp, [texts[i] for i in order])
        return sum(one == expected[i] for one, i in zip(found, order, strict=True))

    with ThreadPoolExecutor(N_THREADS) as pool:
        assert sum(pool.map(work, range(N_THREADS))) == 1000

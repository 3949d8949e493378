"""Changing the knowledge base of a linker while other threads predict."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from spacy.language import Language
from tiny import linking_nlp

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

N_THREADS = 4


def test_a_document_is_linked_to_one_knowledge_base(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, prefix in zip(folders, "AB", strict=True):
        concepts = [Concept(f"{prefix}:1", ("aspirin",)), Concept(f"{prefix}:2", ("seizure",))]
        build_kb(concepts, folder)
    nlp: Language = linking_nlp(folders[0], mentions="dictionary", model={"dim": 16})
    linker = nlp.get_pipe("bioel_linker")
    done = Event()

    def read() -> set[tuple[str, ...]]:
        found = set()
        while not done.is_set():
            doc = nlp("A seizure after aspirin.")
            found.add(tuple(span.kb_id_ for span in doc.spans["bioel"]))
        return found

    with ThreadPoolExecutor(N_THREADS) as pool:
        readers = [pool.submit(read) for _ in range(N_THREADS)]
        try:
            for number in range(40):
                nlp("A seizure after aspirin.")
                linker.set_kb(folders[(number + 1) % 2])
        finally:
            done.set()
        found = set().union(*(reader.result() for reader in readers))
    assert found <= {("A:2", "A:1"), ("B:2", "B:1")}
    doc = nlp("aspirin")
    assert [span.kb_id_ for span in doc.spans["bioel"]] == ["A:1"]


def test_an_assigned_knowledge_base_is_used_from_the_next_batch_on(tmp_path):
    for name in "ab":
        build_kb([Concept(f"{name.upper()}:1", ("aspirin",))], tmp_path / name)
    nlp = linking_nlp(tmp_path / "a", mentions="dictionary", model={"dim": 16})
    linker = nlp.get_pipe("bioel_linker")

    def linked() -> list[str]:
        doc = nlp("aspirin")
        return [span.kb_id_ for span in doc.spans["bioel"]]

    assert linked() == ["A:1"]
    linker.cfg["kb"] = str(tmp_path / "b")
    assert linked() == ["B:1"]
    linker.cfg["kb"] = {"Disease": str(tmp_path / "none")}
    with pytest.raises(BioelError, match=r"\[B020\] No knowledge base in .*none"):
        linked()
    linker.cfg["kb"] = str(tmp_path / "b")
    assert linked() == ["B:1"]

"""Linking with worker processes that were spawned, whichever start method is the system's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tiny import linking_nlp

from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.types import Concept

SCRIPT = """
import json, multiprocessing, sys
import spacy
from spacy_bioel.distributed.rows import link_texts, to_row

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    nlp = spacy.load(sys.argv[1])
    documents = [("Narcan was given.", "a"), (None, "b"), ("clonidine", "c")]
    rows = [to_row(one) for one in link_texts(nlp, documents, batch_size=2, n_process=2)]
    print(json.dumps([[row["id"], [link["id"] for link in row["links"]]] for row in rows]))
"""


def test_workers_that_are_spawned_link(tmp_path: Path) -> None:
    build_kb([Concept("X:1", ("Narcan",)), Concept("X:2", ("Clonidine",))], tmp_path / "kb")
    linking_nlp(tmp_path / "kb", mentions="kb", model={"dim": 16}).to_disk(tmp_path / "nlp")
    (tmp_path / "link.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "link.py"), str(tmp_path / "nlp")]
    done = subprocess.run(command, capture_output=True, check=True, timeout=300)
    assert json.loads(done.stdout) == [["a", ["X:1"]], ["b", []], ["c", ["X:2"]]]

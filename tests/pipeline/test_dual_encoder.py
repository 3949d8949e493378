"""`bioel_linker` with a dual encoder: it shares a transformer with the detector, and reads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from tiny import LINKER, VOCABULARY, blank, links, train

from spacy_bioel.types import AnnotatedText

pytest.importorskip("transformers")
LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "tok2vec"}


def dual_nlp(kb: Path, checkpoint: Path, **settings: Any) -> Language:
    nlp = blank()
    shared = {
        "@architectures": "spacy-bioel.Transformer.v1",
        "path": str(checkpoint),
        "width": 32,
        "max_pieces": 32,
        "overlap": 8,
        "learn_rate_scale": 0.1,
    }
    nlp.add_pipe("tok2vec", config={"model": shared})
    detector = {"max_width": 6, "hidden": 32, "tok2vec": LISTENER}
    nlp.add_pipe("bioel_mentions", config={"model": detector})
    model = {
        "@architectures": "spacy-bioel.DualEncoder.v1",
        "tok2vec": LISTENER,
        "names": {"@architectures": "spacy-bioel.ResCNN.v1"} | LINKER["model"],
    } | settings.pop("model", {})
    training = LINKER["training"] | {"candidates": 4}
    config = {"kb": str(kb), "model": model, "training": training, "mentions": "spans"}
    nlp.add_pipe("bioel_linker", config=config | settings)
    nlp.config["initialize"]["components"]["bioel_linker"] = VOCABULARY
    return nlp


@pytest.fixture(scope="module")
def saved(
    kb_folder: Path,
    checkpoint: Path,
    texts: list[AnnotatedText],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Trained from a checkpoint that is gone when the pipeline is loaded."""
    folder = tmp_path_factory.mktemp("dual")
    shutil.copytree(checkpoint, folder / "bert")
    spacy.util.fix_random_seed(0)
    nlp = dual_nlp(kb_folder, folder / "bert")
    train(nlp, texts, updates=100)
    nlp.to_disk(folder / "trained")
    shutil.rmtree(folder / "bert")
    return folder / "trained"


def test_learns_both_by_heart(saved: Path, texts: list[AnnotatedText]) -> None:
    nlp = spacy.load(saved)
    gold = {(t.text[m.start : m.end], "|".join(m.ids)) for t in texts for m in t.mentions}
    found = {link for doc in nlp.pipe(t.text for t in texts) for link in links(doc)}
    assert len(found & gold) >= 0.8 * len(gold)
    candidates = [c for t in texts for s in nlp(t.text).spans["bioel"] for c in s._.candidates]
    assert any("context" in c.evidence for c in candidates)

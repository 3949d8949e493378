"""`bioel_linker` with a multi-task model, which finds, types and links by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from tiny import DETECTOR, LINKER, blank, learn, links, with_linker

from spacy_bioel.types import AnnotatedText

TOK2VEC = {"@architectures": "spacy.Tok2Vec.v2"} | {
    "embed": {
        "@architectures": "spacy.MultiHashEmbed.v2",
        "width": 48,
        "rows": [500, 200, 200, 200],
        "attrs": ["NORM", "PREFIX", "SUFFIX", "SHAPE"],
        "include_static_vectors": False,
    },
    "encode": {
        "@architectures": "spacy.MaxoutWindowEncoder.v2",
        "width": 48,
        "window_size": 1,
        "maxout_pieces": 3,
        "depth": 1,
    },
}
VARIANTS: dict[str, dict[str, Any]] = {
    "multi": {"hidden": 0, "one_task": False},
    "hierarchical": {"hidden": 24, "one_task": False},
    "per_token": {"hidden": 0, "one_task": False, "per_token": True, "vocabulary": "closed"},
    "single_per_token": {
        "hidden": 0,
        "tasks": ["links"],
        "per_token": True,
        "vocabulary": "closed",
    },
}


def multitask_nlp(kb: Path, **settings: Any) -> Language:
    """A linker that finds its mentions, untrained. settings: Of the architecture."""
    model = {
        "@architectures": "spacy-bioel.HierarchicalLinker.v1",
        "tok2vec": TOK2VEC,
        "names": {"@architectures": "spacy-bioel.ResCNN.v1"} | LINKER["model"],
        "layers": 1,
        "dropout": 0.0,
        "max_width": DETECTOR["model"]["max_width"],
    } | settings
    return with_linker(blank(), kb, model, mentions="read")


@pytest.fixture(scope="module", params=list(VARIANTS))
def trained(
    request: pytest.FixtureRequest,
    kb_folder: Path,
    texts: list[AnnotatedText],
    tmp_path_factory: pytest.TempPathFactory,
) -> Language:
    spacy.util.fix_random_seed(0)
    nlp = multitask_nlp(kb_folder, **VARIANTS[request.param])
    with pytest.warns(UserWarning, match=r"\[W300\] 2 of 36 gold mentions"):
        losses = learn(nlp, texts, updates=60, name="bioel_linker")
    assert losses[-1] < losses[0] / 4
    folder = tmp_path_factory.mktemp("multitask") / "model"
    nlp.to_disk(folder)
    return spacy.load(folder)


def test_learns_by_heart(trained: Language, texts: list[AnnotatedText]) -> None:
    gold = {(t.text[m.start : m.end], "|".join(m.ids)) for t in texts for m in t.mentions if m.ids}
    docs = list(trained.pipe(t.text for t in texts))
    found = {link for doc in docs for link in links(doc)}
    print(gold - found, found - gold)
    assert len(gold - found) <= 3

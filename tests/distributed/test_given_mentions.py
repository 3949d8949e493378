from __future__ import annotations

from typing import Any

import pytest
from spacy.language import Language
from tiny import linking_nlp

from spacy_bioel.distributed.rows import link_given
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.types import AnnotatedText, Concept, Mention

TEXTS = [
    AnnotatedText("1", "anti-Narcan, rash", (Mention(5, 11, "Drug"), Mention(13, 17, "Sign"))),
    AnnotatedText("2", ""),
    AnnotatedText("3", "breaks", (Mention(0, 6, "Drug"),)),
    AnnotatedText("4", "rash", (Mention(0, 4, "Drug", ("D:9",)), Mention(0, 4, "Sign"))),
]


@pytest.fixture(scope="module")
def nlp(tmp_path_factory: pytest.TempPathFactory) -> Language:
    folder = tmp_path_factory.mktemp("given")
    build_kb([Concept("D:1", ("Naloxone", "Narcan")), Concept("D:2", ("Rash",))], folder / "drugs")
    build_kb([Concept("S:1", ("Rash",))], folder / "signs")
    kb: Any = {"Drug": str(folder / "drugs"), "Sign": str(folder / "signs")}
    nlp = linking_nlp(folder, mentions="kb", model={"dim": 16})
    nlp.get_pipe("bioel_linker").cfg["kb"] = kb  # type: ignore[attr-defined]
    return nlp


@pytest.mark.parametrize("batch_size", [1, 64])
def test_each_mention_is_linked_where_its_label_says(
    nlp: Language, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    linker: Any = nlp.get_pipe("bioel_linker")
    predict = linker.predict

    def predict_or_fail(docs: Any) -> Any:
        if any(doc.text == "breaks" for doc in docs):
            raise MemoryError
        return predict(docs)

    monkeypatch.setattr(linker, "predict", predict_or_fail, raising=False)
    found = list(link_given(nlp, TEXTS, batch_size=batch_size))
    assert [one.id for one in found] == ["1", "2", "3", "4"]
    assert [[(x.start, x.end, x.label, x.ids) for x in one.links] for one in found] == [
        [(5, 11, "Drug", ("D:1",)), (13, 17, "Sign", ("S:1",))],
        [],
        [],
        [(0, 4, "Drug", ("D:2",)), (0, 4, "Sign", ("S:1",))],
    ]
    assert [one.error and one.error.code for one in found] == [None, None, "MemoryError", None]
    assert linker.cfg["mentions"] == "kb"

"""Figures of tuning are what `bioel evaluate` says of the tuned pipeline on the same documents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from test_failed_loads import MAKERS
from test_organisms import GENES, HUMAN, MOUSE, OF_MICE, ORGANISMS
from tiny import VOCABULARY, blank, linking_nlp, step
from tiny import examples as examples_of

from spacy_bioel.io.jsonl import read_concepts_jsonl
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.pipeline.loading import find_detector, find_linker
from spacy_bioel.pipeline.measuring import changed, link_open, measure_pipeline
from spacy_bioel.pipeline.mentions.choosing import choose_mentions, consider_spans
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.scoring.protocols import get_protocol
from spacy_bioel.tuning import choosing
from spacy_bioel.tuning.run import tune
from spacy_bioel.types import AnnotatedText, Mention

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.*W300")
GENE = {"ABC1": "NCBIGene:1", "Abc1": "NCBIGene:11", "XYZ2": "NCBIGene:2"}
SPECIES = dict.fromkeys(("mice", "mouse"), MOUSE) | dict.fromkeys(("Patients", "human"), HUMAN)
# Organisms, of which the genes are, and composites of genes.
SENTENCES = [
    ("In mice and mouse cells ABC1 binds XYZ2.", {"ABC1": "NCBIGene:11", "XYZ2": "X:1"}),
    ("Patients had ABC1 and XYZ2. ABC1/XYZ2 was low.", {}),
    ("mouse Abc1 and XYZ2, but not human ABC1, in mice with a heart attack (HA). HA was rare.", {}),
    ("Acute kidney injury (AKI), not HA: AKIs in patients; lithium and XYZ2 or ABC1.", {}),
]


def text_of(number: int, words: str, ids: dict[str, str]) -> AnnotatedText:
    """A text with the genes and organisms that are words of it."""
    found = ((m, (GENE | ids).get(m[0]), SPECIES.get(m[0])) for m in re.finditer(r"\w+", words))
    mentions = tuple(
        Mention(*m.span(), "Gene" if gene else "Species", (gene or organism or "",))
        for m, gene, organism in found
        if gene or organism
    )
    return AnnotatedText(f"g{number}", words, mentions)


@pytest.fixture(scope="module")
def golds(texts: list[AnnotatedText]) -> list[AnnotatedText]:
    return texts + [text_of(i, *sentence) for i, sentence in enumerate(SENTENCES)]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names") / "kb"
    concepts = [
        *read_concepts_jsonl(Path(__file__).parents[1] / "data" / "concepts.jsonl"),
        *GENES,
        *OF_MICE,
        *ORGANISMS,
    ]
    build_kb(concepts, folder)
    return folder


SETTINGS = {
    "always": {"Disease": ["odd syndrome"], "Gene": ["binds"]},
    "never": ["lithium"],
    "threshold": 0.02,  # below what `predict` looks at by default
    "consistency": 0.5,
    "allow_overlap": False,
}


@pytest.fixture(params=["light", "bio", "dual", "ontology"])
def nlp(
    request: pytest.FixtureRequest, names: Path, checkpoint: Path, golds: list[AnnotatedText]
) -> Language:
    """A pipeline of each kind, trained so little that every setting matters."""
    if request.param == "ontology":
        return linking_nlp(names, mentions="kb", evidence={"dense": False})
    nlp = MAKERS[request.param](names, checkpoint)
    nlp.config["initialize"]["components"] = {"bioel_linker": VOCABULARY}
    data = examples_of(nlp, golds)
    optimizer = nlp.initialize(lambda: data)
    optimizer.learn_rate = 0.01
    for _ in range(25):
        step(nlp, golds, optimizer)
    find_detector(nlp).cfg.update(SETTINGS)
    return nlp


def test_every_setting_that_is_tried(
    nlp: Language, golds: list[AnnotatedText], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts of each setting are those of the whole pipeline, before one is chosen."""
    linker: Any = find_linker(nlp)
    detector: Any = find_detector(nlp)
    done = []

    def choose(what: str, settings: Any, counts: Any, *, protocol: str, **more: Any) -> Any:
        different = []
        for setting, tried in zip(settings, counts, strict=True):
            pipe, values = (detector if protocol == "mention" else linker), setting
            if "refitted" in setting:
                finding = {**linker.cfg["finding"], "threshold": setting["threshold"]}
                values = {"finding": finding}
            with changed(pipe.cfg, values):
                links = list(link_open(nlp, linker, golds))
            found = count_documents(golds, links, protocol=protocol, canonical=linker.kb.canonical)
            # Weights of finding are refitted by fold, each measured on other documents.
            assert tried == found or setting.get("refitted"), setting
            different += [found] if found not in different else []
        done.append(([*settings[0]][0], len(different) > 1))
        return choosing.choose(what, settings, counts, protocol=protocol, **more)

    monkeypatch.setattr("spacy_bioel.tuning.run.choose", choose)
    tune(nlp, golds)
    first = ("refitted", False) if detector is None else ("threshold", True)
    assert done == [first, ("nil_threshold", True)]


def test_the_report_is_of_the_pipeline_that_is_saved(
    nlp: Language, golds: list[AnnotatedText], tmp_path: Path
) -> None:
    report = tune(nlp, golds)
    nlp.to_disk(tmp_path / "tuned")
    loaded = spacy.load(tmp_path / "tuned")
    chosen = {one.protocol: get_protocol(one.protocol)[1] for one in report.tuned}
    figures = measure_pipeline(loaded, golds, chosen)
    assert len(report.tuned) >= 3
    for one in report.tuned:
        assert one.fitted == pytest.approx(figures[one.protocol, one.metric]), one
        assert 0 < one.fitted <= 100
    tuned = loaded.meta["bioel"]["tuning"]["tuned"]
    assert [one["fitted"] for one in tuned] == [round(one.fitted, 2) for one in report.tuned]


def test_what_spans_were_scored_changes_nothing() -> None:
    doc = blank().make_doc("fever and fever")
    cfg: Any = blank().add_pipe("bioel_mentions", config={"consistency": 0.75}).cfg  # type: ignore[attr-defined]
    spans = [(0, 1, "D", 0.9), (2, 3, "D", 0.04)]
    assert choose_mentions(doc, spans, cfg) == spans[:1]
    assert [one.reason for one in consider_spans(doc, spans, cfg)] == [
        "",
        "below the threshold of 0.5",
    ]

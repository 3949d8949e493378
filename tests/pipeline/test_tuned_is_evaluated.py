"""Figures of tuning agree with `bioel evaluate` for the tuned pipeline on the same documents."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.util import load_config
from test_failed_loads import MAKERS
from tiny import VOCABULARY, linking_nlp, needs, step
from tiny import examples as examples_of

from spacy_bioel.linking import starter
from spacy_bioel.linking.given import changed_settings
from spacy_bioel.loading import find_detector, find_linker
from spacy_bioel.plugins.evaluation import fit
from spacy_bioel.plugins.evaluation.evaluate import count_documents
from spacy_bioel.plugins.evaluation.run import link_bare_texts, measure_pipeline
from spacy_bioel.plugins.evaluation.tune import tune_pipeline
from spacy_bioel.scoring.protocols import get_protocol
from spacy_bioel.types import AnnotatedText

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.*W300")

SETTINGS = {
    "include": {"Disease": ["odd syndrome"]},
    "exclude": ["lithium"],
    "threshold": 0.02,  # below what `predict` looks at by default
    "document_smoothing": 0.5,
    "allow_overlap": False,
}


# The settings of the shipped pipeline, where the linker adds names that the detector misses.
STARTER = load_config(Path(starter.__file__).parents[1] / "assets/starter/config.cfg")
SHIPPED = {n: STARTER["components"]["bioel_linker"][n] for n in ("mentions", "nil_threshold")}
SHIPPED["label_types"] = {"Disease": ["Disease"], "Chemical": ["Chemical"]}


DUAL = pytest.param("dual", marks=[needs("contextual"), pytest.mark.slow])


@pytest.fixture(params=["light", "shipped", DUAL, "ontology"])
def nlp(request, kb_folder, checkpoint, texts) -> Language:
    """A pipeline of each kind, trained so little that every setting matters."""
    if request.param == "ontology":
        return linking_nlp(kb_folder, mentions="dictionary", evidence={"dense": False})
    nlp = MAKERS[{"shipped": "light"}.get(request.param, request.param)](kb_folder, checkpoint)
    if request.param == "shipped":
        nlp.get_pipe("bioel_linker").cfg.update(SHIPPED)  # type: ignore[attr-defined]
    train_briefly(nlp, texts, updates=25)
    find_detector(nlp).cfg.update(SETTINGS)
    if request.param == "shipped":
        nlp.add_pipe("sentencizer", before="bioel_linker")  # a pipe between the two
    return nlp


def train_briefly(nlp: Language, texts: list[AnnotatedText], *, updates: int) -> None:
    nlp.config["initialize"]["components"] = {"bioel_linker": VOCABULARY}
    data = examples_of(nlp, texts)
    optimizer = nlp.initialize(lambda: data)
    optimizer.learn_rate = 0.01
    for _ in range(updates):
        step(nlp, texts, optimizer)


def test_figures_are_of_each_setting_and_of_the_pipeline_that_is_saved(
    nlp, texts, tmp_path, monkeypatch
):
    linker: Any = find_linker(nlp)
    detector: Any = find_detector(nlp)
    done = []

    def choose_setting(settings: Any, counts: Any, *, protocol: str) -> Any:
        """Counts of each setting are those of the whole pipeline, before one is chosen."""
        chosen = fit.choose_setting(settings, counts, protocol=protocol)
        if len(counts[0]) < len(texts):
            return chosen  # in a fold
        different: list[Any] = []
        for setting, tried in zip(settings, counts, strict=True):
            pipe, values = (detector if protocol == "mention" else linker), setting
            if "left_out" in setting:
                finding = {**linker.cfg["dictionary"], "threshold": setting["threshold"]}
                values = {"dictionary": finding}
            with changed_settings(pipe.cfg, values):
                links = list(link_bare_texts(nlp, linker, texts))
            found = count_documents(texts, links, protocol=protocol, canonical=linker.kb.canonical)
            # Names are excluded by fold, and each fold is measured on the other documents.
            assert tried == found or setting.get("left_out"), setting
            different += [found] if found not in different else []
        assert detector is None or len(different) > 1
        done.append([*settings[0]][0])
        return chosen

    monkeypatch.setattr("spacy_bioel.plugins.evaluation.tune.choose_setting", choose_setting)
    report = tune_pipeline(nlp, texts)
    assert done == ["left_out" if detector is None else "threshold", "nil_threshold"]
    nlp.to_disk(tmp_path / "tuned")
    loaded = spacy.load(tmp_path / "tuned")
    chosen = {one.protocol: get_protocol(one.protocol)[1] for one in report.tuned}
    figures = measure_pipeline(loaded, texts, chosen)
    assert len(report.tuned) >= 3
    for one in report.tuned:
        assert one.fitted == pytest.approx(figures[one.protocol, one.metric]), one
        assert 0 < one.fitted <= 100
    tuned = loaded.meta["bioel"]["tuning"]["tuned"]
    assert [one["fitted"] for one in tuned] == [round(one.fitted, 2) for one in report.tuned]


def test_names_that_the_linker_adds_are_part_of_the_figures_of_the_detector(kb_folder, texts):
    """A detector that finds nothing: all mentions are names that the linker adds."""
    nlp = MAKERS["light"](kb_folder, kb_folder)
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.cfg.update(SHIPPED)
    train_briefly(nlp, texts, updates=0)
    find_detector(nlp).score_spans = lambda docs, **_: [[] for _ in docs]
    (detector,) = [one for one in tune_pipeline(nlp, texts).tuned if one.protocol == "mention"]
    assert detector.cross_fitted is not None and detector.fitted == detector.cross_fitted.value > 0

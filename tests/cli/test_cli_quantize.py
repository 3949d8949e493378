"""`bioel quantize` writes a smaller pipeline with its figures, and refuses a loss."""

import json

import pytest
import spacy

from spacy_bioel.plugins.evaluation import run as measuring


@pytest.fixture
def detector(tmp_path):
    """A pipeline with an untrained detector."""
    nlp = spacy.blank("en")
    spacy.util.fix_random_seed(0)
    pipe = nlp.add_pipe("bioel_mentions", config={"threshold": 0.2})
    for label in ("Chemical", "Disease"):
        pipe.add_label(label)  # type: ignore[attr-defined]
    nlp.initialize()
    nlp.to_disk(tmp_path / "detector")
    return tmp_path / "detector"


def test_a_quantised_pipeline_and_its_figures(bioel, detector, corpus, tmp_path):
    out, report = tmp_path / "quantised", tmp_path / "report.json"
    shown = bioel("quantize", detector, corpus, out, "--prefix", "MESH", "--json", report).words
    assert "mention 0.00 0.00" in shown
    assert f"6 mentions in 2 documents -> {out}" in shown
    written = json.loads(report.read_text())
    assert set(written["before"]) == set(written["after"]) == {"mention"}
    nlp = spacy.load(out)
    assert nlp.get_pipe("bioel_mentions").model.attrs["quantized"]  # type: ignore[attr-defined]
    sizes = [(f / "bioel_mentions" / "model.safetensors").stat().st_size for f in (detector, out)]
    assert sizes[1] < 0.4 * sizes[0]


def test_a_loss_is_refused(bioel, detector, corpus, tmp_path, monkeypatch):
    figures = iter([{("mention", "f1"): 80.0}, {("mention", "f1"): 79.75}])
    monkeypatch.setattr(measuring, "measure_pipeline", lambda *args, **kwargs: next(figures))
    run = bioel("quantize", detector, corpus, tmp_path / "out", "--prefix", "MESH", status=2)
    assert (
        "[B640] Quantising would reduce mention F1 from 80.00 to 79.75, by 0.25 points" in run.err
    )
    assert not (tmp_path / "out").exists()

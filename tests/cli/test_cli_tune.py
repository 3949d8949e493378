"""`bioel tune` writes a tuned pipeline with its figures, or leaves what was there."""

import json
import re
import shutil
from typing import Any

import pytest
import spacy

from spacy_bioel.cli import main
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.plugins.evaluation.tuning_commands import check_out, require_extra
from spacy_bioel.types import Concept


def test_tuned_pipeline_and_its_figures(bioel, model, corpus, tmp_path):
    out, report = tmp_path / "tuned", tmp_path / "tuning.json"
    shown = bioel("tune", model, corpus, out, "--prefix", "MESH", "--json", report).words
    assert "gold accuracy@1_nil_ignored" in shown and "bioel_linker nil_threshold" in shown
    assert f"6 mentions in 2 documents -> {out}" in shown
    written = json.loads(report.read_text())
    assert [(one["protocol"], one["metric"]) for one in written["tuned"]] == [
        ("gold", "accuracy@1_nil_ignored"),
        ("end_to_end", "f1"),
        ("end_to_end", "f1"),
    ]
    assert written["tuned"][1]["chosen"] == {"left_out": 0, "threshold": 0.5}
    # 4 of 5 linked mentions are names of the knowledge base: P 100, R 80.
    assert written["tuned"][2]["fitted"] == 88.89
    nlp = spacy.load(out)
    assert nlp.meta["bioel"]["tuning"] == written
    linker = nlp.get_pipe("bioel_linker")
    assert linker.fusion is not None  # type: ignore[attr-defined]
    chosen = written["tuned"][2]["chosen"]["nil_threshold"]
    assert linker.cfg["nil_threshold"] == chosen  # type: ignore[attr-defined]
    # What was reported is what `bioel evaluate` finds.
    (f1,) = (
        row["value"]
        for row in bioel("evaluate", out, corpus, "--prefix", "MESH", "--json", "-").json
        if (row["protocol"], row["metric"], row["label"]) == ("end_to_end", "f1", "")
    )
    assert round(f1, 2) == 88.89


def edited(gold: str, change: str) -> str:
    first, second = gold.split("\n\n", 1)
    return {
        "nothing": gold,
        "order": f"{second.rstrip()}\n\n{first}\n",
        "names of documents": re.sub(r"(?m)^1(?=[|\t])", "7", gold),
        "a text": gold.replace("raises it", "raises me"),
        "an offset": gold.replace("17\t33\tpressure", "17\t25\tpressure").replace(
            "pressure disease\tDis", "pressure\tDis"
        ),
        "a label": gold.replace("Narcan\tChemical", "Narcan\tDrug"),
        "an id": gold.replace("Narcan\tChemical\tD009270", "Narcan\tChemical\tD003000"),
    }[change]


@pytest.mark.parametrize(
    "change, shown",
    [
        *[(same, True) for same in ("nothing", "order", "names of documents")],
        *[(other, False) for other in ("a text", "an offset", "a label", "an id")],
    ],
)
def test_cross_fitted_figures_only_beside_their_documents(
    bioel, tuned_model, corpus, tmp_path, change, shown
):
    """Each edit leaves the numbers of documents and mentions as they were."""
    out, gold = shutil.copytree(tuned_model, tmp_path / "tuned"), corpus.read_text("utf8")
    corpus.write_text(edited(gold, change), encoding="utf8")
    assert (change == "nothing") == (corpus.read_text("utf8") == gold)
    done = bioel("evaluate", out, corpus, "--prefix", "MESH")
    assert ("cross-fitted" in done.out) == shown
    if not shown:
        return
    meta = json.loads((out / "meta.json").read_text("utf8"))
    del meta["bioel"]["tuning"]["digest"]  # by an earlier version
    (out / "meta.json").write_text(json.dumps(meta), encoding="utf8")
    assert "cross-fitted" not in bioel("evaluate", out, corpus, "--prefix", "MESH").out


def test_another_kb_is_saved_with_the_pipeline(bioel, model, corpus, tmp_path, caplog):
    build_kb([Concept("MESH:D006973", ("Pressure disease",))], tmp_path / "kb")
    out = tmp_path / "tuned"
    bioel("tune", model, corpus, out, "--prefix", "MESH", "--kb", tmp_path / "kb")
    assert "[W340] Only 2 of 5 gold ids in " in caplog.text
    assert list(spacy.load(out).get_pipe("bioel_linker").kb.ids) == ["MESH:D006973"]  # type: ignore[attr-defined]


def test_a_kb_of_one_label_is_saved_with_the_pipeline(bioel, by_label, corpus, tmp_path):
    organs = tmp_path / "organs=2"  # a folder may have the sign in its name
    build_kb([Concept("ORG:1", ("rats",))], organs)
    out = tmp_path / "tuned"
    with pytest.raises(BioelError, match=r"\[B230\]"):
        check_out(organs / "x", {"kb": f"Species={organs}"})
    bioel("tune", by_label, corpus, out, "--prefix", "MESH", "--kb", f"Species={organs}")
    linker: Any = spacy.load(out).get_pipe("bioel_linker")
    assert linker.cfg["kb"].keys() == {"Chemical", "Disease", "Species"}
    assert linker.kb.labels["Species"] == 1 and "ORG:1" in linker.kb


@pytest.mark.parametrize(
    "out", ["model", "model/tuned", ".", "model/../model", "kb", "kb/x", "dev"]
)
def test_out_is_apart_from_what_is_read(out, tmp_path):
    for name in ("model", "kb"):
        (tmp_path / name).mkdir()
    (tmp_path / "dev").write_text("")
    inputs = {name: tmp_path / name for name in ("model", "kb", "dev")}
    with pytest.raises(BioelError, match=r"\[B230\]"):
        check_out(tmp_path / out, {**inputs, "none": None})
    check_out(tmp_path / "models", inputs)


def test_a_tuned_pipeline_is_replaced_or_stays(model, corpus, tmp_path, bioel, monkeypatch):
    out = tmp_path / "tuned"
    out.mkdir()
    for _ in range(2):
        bioel("tune", model, corpus, out, "--prefix", "MESH")
    before = (out / "meta.json").read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("disk full")

    monkeypatch.setattr(spacy.language.Language, "to_disk", fail)
    with pytest.raises(RuntimeError, match="disk full"):  # the process ends with status 1
        main(["tune", str(model), str(corpus), str(out), "--prefix", "MESH"])
    assert (out / "meta.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gold.txt", "tuned"]


@pytest.mark.parametrize(
    ("attrs", "required"),
    [({"extra": "transformers"}, ["spacy-bioel[transformers]>=0.1.0,<0.2.0"]), ({}, None)],
)
def test_a_package_asks_for_what_its_models_need(attrs, required):
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_mentions").model.layers[0].attrs.update(attrs)  # type: ignore[attr-defined]
    nlp.add_pipe("sentencizer")
    require_extra(nlp)
    assert nlp.meta.get("requirements") == required


def test_gold_without_ids_is_refused_where_there_is_only_a_linker(bioel, model, tmp_path):
    dev = tmp_path / "dev.jsonl"
    dev.write_text('{"text": "flu", "mentions": [{"start": 0, "end": 3}]}\n')
    assert "[B333]" in bioel("tune", model, dev, tmp_path / "out", status=2).err

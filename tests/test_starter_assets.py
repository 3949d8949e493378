"""The steps that write spacy_bioel/assets choose the right names, and the files have them."""

import json
import lzma
import shutil
from typing import Any

import numpy as np
import pytest
import spacy
import srsly
import starter
from safetensors.numpy import load, load_file, save_file
from spacy.training import Example
from tiny import DETECTOR

from spacy_bioel.corpus import docs_to_bin
from spacy_bioel.factories import LINKER_MODEL
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.vectors import ExactIndex, quantize
from spacy_bioel.linking.starter import read_starter_encoder, starter_alias_table
from spacy_bioel.mentions.pipe import MentionDetector
from spacy_bioel.models.name_encoder import build_rescnn_v1, encode_names
from spacy_bioel.models.torch_io import weights_from_bytes, weights_to_bytes
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept

NO_NAMES = {  # names that bare ids of another vocabulary once gave to these concepts
    "MESH:D000038": "endometrioid stromal sarcoma of the cervix",
    "MESH:D002644": "Cole-Carpenter syndrome 1",
    "MESH:D004681": "gummatous frambeside",
    "MESH:D007037": "liver localised fibrous tumour",
    "MESH:D011778": "acute granulocytic leukaemia without maturation",
    "MESH:D017588": "complement component 2 deficiency",
}


def test_diseases_of_the_bundled_names():
    with lzma.open(ASSETS_FOLDER / "mesh.jsonl.xz", "rt", encoding="utf8") as file:
        rows = {row["id"]: row for row in map(json.loads, file)}
    for id, name in NO_NAMES.items():
        assert name not in rows[id]["names"], id
    for mesh, other in {
        "MESH:C566443": "OMIM:610102",
        "MESH:D020371": "OMIM:312080",
        "MESH:D000474": "OMIM:203500",
    }.items():
        assert other in rows[mesh]["xrefs"]
    assert "Cole-Carpenter syndrome 1" in rows["OMIM:112240"]["names"]
    assert "MONDO:0007204" in rows["OMIM:112240"]["xrefs"]
    for id, row in rows.items():
        assert not row.get("xrefs") or "names" in row, id
        assert not any(xref.startswith("MESH:") for xref in row.get("xrefs", ())), id
    omim = [row for id, row in rows.items() if id.startswith("OMIM:")]
    assert len(omim) > 4000
    assert not [name for row in omim for name in row["names"] if name.isupper()]


def test_the_alias_table_does_not_overrule_names(project):
    concepts = [
        Concept("MESH:D1", ("Statins",), types=("D",)),
        Concept("MESH:D2", ("Simvastatin",), types=("D",)),
        Concept("MESH:C3", ("Alkaptonuria",), types=("C",), xrefs=("OMIM:203500",)),
    ]
    build_kb(concepts, project / "kb" / "starter" / "descriptors")
    doc = spacy.blank("en")("statins statins zocor gone AKU")
    doc.spans["bioel_gold"] = [
        spacy.tokens.Span(doc, i, i + 1, "D", kb_id=kb_id)
        for i, kb_id in enumerate(("MESH:D1", "MESH:D2", "MESH:D2", "MESH:D9", "OMIM:203500"))
    ]
    (project / "corpus" / "mine").mkdir(parents=True)
    docs_to_bin([doc]).to_disk(project / "corpus" / "mine" / "train.spacy")
    (project / "spacy_bioel" / "assets").mkdir(parents=True)
    starter.alias_table(["mine"])
    written = srsly.read_json(project / "spacy_bioel" / "assets" / "alias_table.json")
    assert written == {
        "aku": {"MESH:C3": 1},  # by its cross-reference
        "statins": {"MESH:D1": 1},
        "zocor": {"MESH:D2": 1},
    }


def test_a_label_that_only_helped_is_dropped_and_weights_are_mixed(project, monkeypatch):
    nlp = spacy.blank("en")
    detector = nlp.add_pipe("bioel_mentions", config=DETECTOR)
    doc = nlp.make_doc("BRCA1 in mice")
    doc.spans["bioel_gold"] = [
        spacy.tokens.Span(doc, start, start + 1, label)
        for start, label in ((0, "AnyGene"), (0, "Gene"), (2, "Species"))
    ]
    nlp.initialize(lambda: [Example(nlp.make_doc(doc.text), doc)])
    detector.cfg |= {"threshold": 0.625, "allow_overlap": False}
    nlp.to_disk(project / "trained")
    starter.without("AnyGene", project / "trained", project / "plain")
    plain = spacy.load(project / "plain").get_pipe("bioel_mentions")
    assert plain.labels == ("Gene", "Species")

    def scores(pipe: MentionDetector) -> dict[tuple[int, int, str], float]:
        (spans,) = pipe.score_spans([nlp.make_doc(doc.text)], min_probability=0.0)
        return {(start, end, label): p for start, end, label, p in spans if label != "AnyGene"}

    assert scores(plain) == pytest.approx(scores(detector), rel=1e-5)

    monkeypatch.setattr(starter, "_counts", lambda corpora, kb: {})
    shipped = project / "spacy_bioel" / "assets" / "starter" / "bioel_mentions"
    shipped.mkdir(parents=True)
    config = shipped.parent / "config.cfg"
    shutil.copy(ASSETS_FOLDER / "starter" / "config.cfg", config)
    weights = load_file(project / "plain" / "bioel_mentions" / "model.safetensors")
    save_file({name: 0 * array for name, array in weights.items()}, shipped / "model.safetensors")
    starter.pipeline([], project / "plain", share=0.75)
    weights_from_bytes(plain.model, (shipped / "model.safetensors").read_bytes())
    assert plain.model.attrs["quantized"]
    plain.model.attrs["quantized"] = False
    mixed = load(weights_to_bytes(plain.model))
    for name, array in weights.items():
        step = max(float(abs(array).max()) / 127, 1e-6)
        assert mixed[name] == pytest.approx(0.75 * array, abs=step)
    text = config.read_text("utf8")
    assert "threshold = 0.625\ndocument_smoothing = 0.0\nallow_overlap = false\n" in text
    assert "nil_threshold = 0.4\n" in text  # of the other pipe


def mesh() -> list[dict[str, Any]]:
    with lzma.open(ASSETS_FOLDER / "mesh.jsonl.xz", "rt") as lines:
        return [concept for concept in map(json.loads, lines) if "replaced_by" not in concept]


def test_what_lies_in_the_package():
    concepts = {concept["id"]: concept["names"] for concept in mesh()}
    assert concepts["MESH:D008175"][0] == "Lung Neoplasms"
    assert concepts["MESH:D002122"][-2:] == ["CaCl2", "CaCl(2)"]
    assert {"Lung Cancer", "Lung Tumor", "tumour of lung"} < {*concepts["MESH:D008175"]}
    memory = starter_alias_table()
    assert "statins" not in memory.counts
    assert memory.counts["gastric cancer"] == {"MESH:D013274": 7}


def test_its_vectors_agree_with_those_of_float32():
    model = build_rescnn_v1(**{k: v for k, v in LINKER_MODEL.items() if k != "@architectures"})
    read_starter_encoder(model)
    concepts = mesh()
    names = list(dict.fromkeys(normalize_name(n) for c in concepts for n in c["names"]))[:6000]
    vectors = encode_names(model, names)
    # Names with a letter left out.
    queries = encode_names(
        model, [name[: len(name) // 2] + name[len(name) // 2 + 1 :] for name in names[::3]]
    )
    expected = (queries @ vectors.T).argmax(axis=1)
    found, _ = ExactIndex(quantize(vectors)).search(queries, 1)
    assert len(found) == 2000
    assert np.mean(found[:, 0] == expected) >= 0.999

"""The starter finds and links six types; how it is saved and changed. More texts: cases.yml."""

from contextlib import ExitStack
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc

import spacy_bioel
from benchmarks import house
from benchmarks.where import STEPS
from spacy_bioel.errors import BioelError
from spacy_bioel.kb import bundled
from spacy_bioel.kb.build import build_kb
from spacy_bioel.linking import starter
from spacy_bioel.loading import load_model
from spacy_bioel.report import explain
from spacy_bioel.types import Concept

# A mention of each type.
TEXT = (
    "The BRAF V600E mutation is common in melanoma, as in the cell line A375. "
    "Mice were treated with vemurafenib."
)
FOUND = {
    ("BRAF", "Gene", "NCBIGene:673"),
    ("V600E", "Variant", "NIL"),
    ("melanoma", "Disease", "MESH:D008545"),
    ("A375", "CellLine", "CVCL_0132"),
    ("Mice", "Species", "NCBITaxon:10090"),
    ("vemurafenib", "Chemical", "MESH:D000077484"),
}


def found(doc: Doc) -> set[tuple[str, str, str]]:
    return {(span.text, span.label_, span.kb_id_) for span in doc.spans["bioel"]}


@pytest.fixture(scope="module")
def nlp() -> Language:
    return spacy_bioel.load()


def test_six_types_are_found_and_linked_and_only_variants_have_forms(nlp):
    doc = nlp(TEXT)
    assert found(doc) == FOUND
    forms = {span.text: (span._.hgvs, span._.component) for span in doc.spans["bioel"]}
    assert forms.pop("V600E") == ("p.Val600Glu", "p|SUB|V|600|E")
    assert {*forms.values()} == {(None, None)}


def test_retired_ids(nlp):
    kb: Any = nlp.get_pipe("bioel_linker").kb
    assert kb.canonical("NCBITaxon:11103") == "NCBITaxon:3052230"
    assert kb.canonical("MESH:C009250") == "MESH:D000077149"  # sevoflurane


def test_explain_shows_the_mention_that_hid_a_name(nlp):
    considered = explain(nlp, "Patients with NSCLC got gefitinib.").considered
    (found,) = (c for c in considered if c.is_mention)
    assert (found.text, found.reason.split(" that ")[0]) == (
        "gefitinib",
        "a name in the knowledge base",
    )
    (hid,) = (c for c in considered if c.reason == "overlaps a name in the knowledge base")
    assert (hid.text, hid.label) == ("NSCLC got gefitinib", "Chemical") and hid.probability > 0.3


def test_each_step_that_is_timed_is_one_of_a_doc(nlp):
    """The benchmark patches functions by name; a renamed function would have a time of zero."""
    with ExitStack() as stack:
        noted = {
            path: stack.enter_context(patch(path, autospec=True, side_effect=resolve_name(path)))
            for path in STEPS
        }
        nlp(house.TEXT)
    assert [path for path in STEPS if not noted[path].called] == []


def test_variants_have_the_gene_and_the_rs_number_that_the_text_says(nlp):
    doc = nlp("The BRAF V600E mutation (rs113488022) is common in melanoma, V600K is not.")
    variants = [span for span in doc.spans["bioel"] if span.label_ == "Variant"]
    assert [(span.text, span._.cui, span._.component, span._.gene) for span in variants] == [
        ("V600E", "dbSNP:rs113488022", "p|SUB|V|600|E", "NCBIGene:673"),
        ("rs113488022", "dbSNP:rs113488022", None, "NCBIGene:673"),
        ("V600K", None, "p|SUB|V|600|K", "NCBIGene:673"),
    ]
    assert "dbSNP:rs113488022" in str(variants[0]._.explanation)
    assert doc.spans["bioel"][0]._.gene is None


def test_a_table_has_rs_numbers_of_changes(tmp_path):
    concepts = [
        Concept("dbSNP:rs113488022", ("rs113488022",), ("Variant",)),
        Concept("NCBIGene:673:p.Val600Glu", (), replaced_by="dbSNP:rs113488022"),
    ]
    build_kb(concepts, tmp_path / "variants")
    nlp = spacy_bioel.load()
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.set_kb(linker.cfg["kb"] | {"Variant": str(tmp_path / "variants")})
    doc = nlp("The BRAF V600E mutation is common in melanoma. KRAS V600E? V600K and rs113488021.")
    found = [(x.text, x._.cui) for x in doc.spans["bioel"] if x.label_ == "Variant"]
    assert dict(found[:1] + found[2:]) == {
        "V600E": "dbSNP:rs113488022",
        "V600K": None,
        "rs113488021": "dbSNP:rs113488021",  # as the text says, though the table has it not
    }
    assert found[1] == ("V600E", None)  # of KRAS


def test_it_says_what_it_is(nlp):
    assert (nlp.meta["lang"], nlp.meta["name"]) == ("en", "bioel_sm")
    assert load_model("starter").meta["name"] == "bioel_sm"
    assert load_model("starter").meta == nlp.meta
    assert nlp.pipe_names == ["bioel_mentions", "bioel_linker"]
    assert set(nlp.get_pipe("bioel_mentions").labels) == {label for _, label, _ in FOUND}  # type: ignore[attr-defined]


def test_saved_and_loaded(nlp, tmp_path):
    nlp.to_disk(tmp_path / "saved")
    assert not list((tmp_path / "saved").rglob("kb*"))  # the package has them
    assert found(spacy.load(tmp_path / "saved")(TEXT)) == FOUND
    assert found(spacy_bioel.load().from_bytes(nlp.to_bytes())(TEXT)) == FOUND


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["spawn"], indirect=True)
def test_with_two_processes_under_spawn(nlp, start_method):
    docs = nlp.pipe([TEXT] * 3, n_process=2, batch_size=1)
    assert [found(doc) for doc in docs] == [FOUND] * 3


def test_only_names_of_mesh_have_vectors(nlp):
    linker: Any = nlp.get_pipe("bioel_linker")
    dense = [starter.is_dense(part, linker.state.encoder) for part in linker.kb.parts]
    assert dense == [True, False, False, False]
    places = [bundled.place_of(part) for part in linker.kb.parts]
    assert places == ["", "starter:genes", "starter:species", "starter:cells"]
    assert (Path(linker.kb.parts[0].path) / "vectors").is_dir()
    assert not (Path(linker.kb.parts[1].path) / "vectors").exists()


def test_genes_alone_need_no_vectors():
    nlp = spacy_bioel.load()
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.cfg["label_types"] = {}
    linker.set_kb("starter:genes")
    assert linker.cfg["kb"] == "starter:genes"
    assert ("BRAF", "Gene", "NCBIGene:673") in found(nlp(TEXT))


def test_parts_of_it_and_other_settings():
    settings = {
        "components": {"bioel_mentions": {"include": {"Species": ["patient"]}, "threshold": 0.9}},
        "components.bioel_linker.nil_threshold": 1.0,
    }
    nlp = spacy_bioel.load(config=settings, disable="bioel_linker")
    detector: Any = nlp.get_pipe("bioel_mentions")
    assert (nlp.pipe_names, nlp.disabled) == (["bioel_mentions"], ["bioel_linker"])
    assert (detector.cfg["threshold"], detector.cfg["abbreviations"]) == (0.9, True)
    assert dict(nlp.components)["bioel_linker"].cfg["nil_threshold"] == 1.0
    doc = nlp("A patient.")
    assert [(span.text, span.label_) for span in doc.spans["bioel"]] == [("patient", "Species")]
    linker_only = spacy_bioel.load(exclude=["bioel_mentions"])
    assert linker_only.component_names == ["bioel_linker"]
    with pytest.raises(BioelError, match=r"\[B270\] .*\nnil_threshold = 2"):
        spacy_bioel.load(config={"components": {"bioel_linker": {"nil_threshold": 2.0}}})

"""`bioel kb`: build, look at, encode and change knowledge bases."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import spacy
from commands import INTERRUPTED
from kb_files import encode
from tiny import examples, linking_nlp

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import vector_files
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import add_concepts
from spacy_bioel.types import AnnotatedText, Concept, Mention

TINY_ENCODER = {
    "@architectures": "spacy-bioel.ResCNN.v1",
    **{"dim": 8, "blocks": 1, "filters": 4, "widths": [1], "pooling": "max"},
    **{"dropout": 0.0, "max_tokens": 8},
}


@pytest.fixture()
def kb(bioel, tmp_path, concepts_file) -> Path:
    bioel("kb", "build", tmp_path / "kb", concepts_file)
    return tmp_path / "kb"


def test_list(bioel, monkeypatch, tmp_path):
    shown = bioel("kb", "list").words
    for name in ("starter:mesh", "starter:genes", "starter:species", "starter:cells"):
        assert name in shown
    bioel("kb", "info", "starter:cells")
    kbs = {kb["name"]: kb for kb in bioel("kb", "list", "--json", "-").json}
    cells = kbs["starter:cells"]
    assert cells["contents"] == "cell lines" and "Cellosaurus" in cells["source"]
    assert cells["concepts"] > 100 and cells["release"] and cells["licence"]
    monkeypatch.setenv("SPACY_BIOEL_CACHE", str(tmp_path))
    assert bioel("kb", "list").words.count("not built yet") == 4
    assert list(tmp_path.iterdir()) == []  # nothing was built


def save_with_encoder(base: Path, model: Path, *, encoded: str = "") -> Any:
    """Build a knowledge base and save a pipeline with an encoder of its own; return its linker.

    encoded (str): The fingerprint of another encoder, of which the knowledge base has vectors.
    """
    build_kb([Concept("X:1", ("naloxone", "narcan")), Concept("X:2", ("clonidine",))], base)
    if encoded:
        encode(base, encoded)
    nlp = linking_nlp(base, ["naloxone"], model=TINY_ENCODER, mentions="ents")
    linker: Any = nlp.get_pipe("bioel_linker")
    gold = AnnotatedText("1", "naloxone", (Mention(0, 8, "D", ("X:1",)),))
    linker.initialize(lambda: examples(nlp, [gold]), vocabulary=100, width=8)
    nlp.to_disk(model)
    return linker


def test_encode_writes_vectors_of_the_pipelines_encoder(bioel, tmp_path, monkeypatch):
    base, model = tmp_path / "kb", tmp_path / "model"
    linker = save_with_encoder(base, model)

    def interrupted(*_: object, **about: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(vector_files, "serialized", interrupted)
        assert bioel("kb", "encode", base, model, status=130).err == INTERRUPTED
    assert bioel("kb", "info", base, "--json", "-").json["vectors"] == []
    assert f"Encoded 3 names of {base}" in bioel("kb", "encode", base, model).err
    [vectors] = bioel("kb", "info", base, "--verify", "--json", "-").json["vectors"]
    assert (vectors["n"], vectors["dim"]) == (3, 8)
    assert vectors["fingerprint"] == linker.fingerprint
    again = bioel("kb", "encode", base, model).err
    assert f"Encoded 0 names of {base}" in again and "3 already had vectors" in again
    assert "no approximate index" in bioel("kb", "info", base).words
    add_concepts(base, [Concept("X:9", ("ibuprofen",))])
    about = bioel("kb", "info", base, "--verify", "--json", "-").json
    assert (about["counts"]["names"], about["verified"]) == (4, True)
    assert [(v["n"], v["current"]) for v in about["vectors"]] == [(3, False)]


def test_encode_writes_the_vectors_of_the_copy_that_a_pipeline_has(bioel, tmp_path, monkeypatch):
    """As after training: the message that asks for vectors leads to a pipeline that has them."""
    base, model = tmp_path / "kb", tmp_path / "model"
    linker = save_with_encoder(base, model, encoded="other")
    saved = model / "bioel_linker" / "kb"

    monkeypatch.setattr("spacy_bioel.linking.searches.ENCODE_ON_LOAD", 0)  # as if it were large
    with pytest.raises(BioelError, match=r"\[B031\].*bioel kb encode .* MODEL"):
        spacy.load(model)("naloxone")
    done = bioel("kb", "encode", base, model)
    assert f"The copy in {saved} has the vectors too." in done.words
    assert spacy.load(model)("naloxone").ents[0].kb_id_ == "X:1"
    encoders = {v["fingerprint"] for v in bioel("kb", "info", saved, "--json", "-").json["vectors"]}
    assert linker.fingerprint in encoders
    assert bioel("kb", "info", saved, "--verify", "--json", "-").json["verified"] is True
    assert "Encoded 0 names" in bioel("kb", "encode", base, model).words

    add_concepts(base, [Concept("X:9", ("ibuprofen",))])
    assert f"Not encoded: {saved}" in bioel("kb", "encode", base, model).words
    shutil.rmtree(saved / "vectors")
    with pytest.raises(BioelError, match=rf"\[B032\].*bioel kb encode {saved} MODEL"):
        spacy.load(model)("naloxone")
    bioel("kb", "encode", saved, model)  # as the message says
    assert spacy.load(model)("naloxone").ents[0].kb_id_ == "X:1"


def test_encode_for_a_pipeline_without_a_copy(bioel, kb, tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("bioel_linker", config={"kb": str(kb), "include_kb": False})
    nlp.to_disk(tmp_path / "model")
    done = bioel("kb", "encode", kb, tmp_path / "model")
    assert "Encoded" in done.words and "copy" not in done.words and "Not encoded" not in done.words


def test_help_names_the_commands_and_needs_no_spacy():
    code = (
        "import sys\nfrom spacy_bioel.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as e:\n    print(e.code, 'spacy' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False False"
    for name in ("convert", "link", "explain", "kb"):
        assert name in done.stdout

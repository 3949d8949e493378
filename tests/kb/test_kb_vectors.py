from __future__ import annotations

import json

import numpy as np
import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import vectors as vectors_module
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.store import KnowledgeBase
from spacy_bioel.kb.vectors import open_vectors, verify_vectors, write_vectors
from spacy_bioel.types import Concept

# "disease", "illness", "cold", "common cold", "heart attack", "beta estradiol": length and
# number of "c"; "common cold" is [11, 2], divided by its length 11.18: [0.9839, 0.1789].
UNIT = [[1, 0], [1, 0], [0.9701, 0.2425], [0.9839, 0.1789], [0.9965, 0.083], [1, 0]]


def encode(names):
    return np.array([[len(name), name.count("c")] for name in names], dtype=np.float32)


def test_unit_vectors_in_row_order(kb):
    for batch_size in (1, 2, 4096):
        write_vectors(kb, encode, fingerprint="9f3a", dim=2, batch_size=batch_size)
        vectors = open_vectors(kb, fingerprint="9f3a")
        assert vectors.dtype == np.float16
        np.testing.assert_allclose(vectors, UNIT, atol=1e-3)


def test_blocks_and_batches(kb, monkeypatch):
    monkeypatch.setattr(vectors_module, "_BLOCK", 4)
    batches, done = [], []

    def recorded(names):
        batches.append(list(names))
        return encode(names)

    write_vectors(kb, recorded, fingerprint="9f3a", dim=2, batch_size=3, progress=done.append)
    assert batches == [
        ["cold", "disease", "illness"], ["common cold"], ["heart attack", "beta estradiol"],
    ]  # fmt: skip
    assert done == [3, 1, 2]
    np.testing.assert_allclose(open_vectors(kb, fingerprint=None), UNIT, atol=1e-3)


def test_folder_holds_vectors_and_what_made_them(kb, folder):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    about = json.loads((folder / "vectors.json").read_text("utf8"))
    checksum = about.pop("checksum")
    assert about == {"fingerprint": "9f3a", "kb": kb.fingerprint, "n": 6, "dim": 2}
    assert len(checksum) == 32
    assert not [path for path in folder.iterdir() if path.suffix == ".new"]
    assert open_vectors(str(folder), fingerprint="9f3a").shape == (6, 2)
    verify_vectors(kb)


def test_a_zero_vector_stays_zero(kb):
    write_vectors(kb, lambda names: np.zeros((len(names), 2)), fingerprint="9f3a", dim=2)
    assert not open_vectors(kb, fingerprint="9f3a").any()


def test_copies_carry_the_vectors(kb, tmp_path):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    in_memory = KnowledgeBase.from_bytes(kb.to_bytes())
    in_memory.save_to(tmp_path / "copy")
    for copy in (in_memory, KnowledgeBase.open(tmp_path / "copy")):
        verify_vectors(copy)
        np.testing.assert_allclose(open_vectors(copy, fingerprint="9f3a"), UNIT, atol=1e-3)


def test_encoding_in_memory(kb):
    in_memory = KnowledgeBase.from_bytes(kb.to_bytes())
    with pytest.raises(BioelError, match=r"\[B032\].* in memory"):
        open_vectors(in_memory, fingerprint=None)
    write_vectors(in_memory, encode, fingerprint="9f3a", dim=2)
    again = KnowledgeBase.from_bytes(in_memory.to_bytes())
    np.testing.assert_allclose(open_vectors(again, fingerprint="9f3a"), UNIT, atol=1e-3)


def test_another_encoder(kb):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    with pytest.raises(BioelError, match=r"\[B031\].*encoder 9f3a, .* is 4c1e; run bioel kb enc"):
        open_vectors(kb, fingerprint="4c1e")


def test_another_knowledge_base(kb, tmp_path):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    other = tmp_path / "other"
    build_kb([Concept("Y:1", ("a",))], other)
    for name in ("vectors.npy", "vectors.json"):
        (other / name).write_bytes((kb.path / name).read_bytes())
    with pytest.raises(BioelError, match=r"\[B034\]"):
        open_vectors(other, fingerprint="9f3a")


def test_no_vectors(kb, folder):
    with pytest.raises(BioelError, match=r"\[B032\]"):
        open_vectors(kb, fingerprint=None)
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    (folder / "vectors.json").unlink()
    with pytest.raises(BioelError, match=r"\[B032\]"):
        open_vectors(kb, fingerprint=None)


def test_damaged_vectors(kb, folder):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    whole = (folder / "vectors.npy").read_bytes()
    for cut in (whole[:-1], whole[:50], b""):
        (folder / "vectors.npy").write_bytes(cut)
        with pytest.raises(BioelError, match=rf"\[B033\].*\(6, 2\).* found {len(cut)} bytes"):
            open_vectors(kb, fingerprint="9f3a")
    for array in (np.zeros((5, 2), np.float16), np.zeros((6, 2), np.float32)):
        np.save(folder / "vectors.npy", array)
        with pytest.raises(BioelError, match=r"\[B033\]"):
            open_vectors(kb, fingerprint="9f3a")
    np.save(folder / "vectors.npy", np.full((6, 2), np.nan, np.float16))
    with pytest.raises(BioelError, match=r"\[B033\].*NaN"):
        open_vectors(kb, fingerprint="9f3a")
    (folder / "vectors.npy").write_bytes(whole[:-1] + b"\1")
    with pytest.raises(BioelError, match=r"\[B024\] vectors.npy"):
        verify_vectors(kb)
    (folder / "vectors.json").write_text("{}")
    with pytest.raises(BioelError, match=r"\[B030\] vectors.json"):
        open_vectors(kb, fingerprint="9f3a")


@pytest.mark.parametrize(
    "encode_badly",
    [
        lambda names: np.full((len(names), 2), np.nan),
        lambda names: np.full((len(names), 2), np.inf),
        lambda names: np.ones((len(names), 3)),
        lambda names: np.ones((1, 2)),
    ],
)
def test_a_bad_encoder_leaves_the_old_vectors(kb, folder, encode_badly):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(BioelError, match=r"\[B035\].*'cold' ... 'beta estradiol'"):
        write_vectors(kb, encode_badly, fingerprint="4c1e", dim=2)
    assert sorted(path.name for path in folder.iterdir()) == before
    np.testing.assert_allclose(open_vectors(kb, fingerprint="9f3a"), UNIT, atol=1e-3)

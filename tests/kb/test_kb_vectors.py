from functools import partial

import numpy as np
import pytest
from kb_files import (
    all_files,
    edit_about,
    flip,
    forge_array,
    place_of,
    replace,
    vectors_of,
    with_header,
)
from safetensors.numpy import load_file

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import vector_files as vectors_module
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import add_concepts
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import (
    are_outdated,
    describe_vectors,
    has_vectors,
    is_encoded,
    open_vectors,
    write_vectors,
)
from spacy_bioel.types import Concept

# "disease", "illness", "cold", "common cold", "heart attack", "beta estradiol": length and
# number of "c"; "common cold" is [11, 2], divided by its length 11.18: [0.9839, 0.1789].
UNIT = [[1, 0], [1, 0], [0.9701, 0.2425], [0.9839, 0.1789], [0.9965, 0.083], [1, 0]]
ALL = slice(None)


def encode(names):
    return np.array([[len(name), name.count("c")] for name in names], dtype=np.float32)


def assert_unit(kb, fingerprint="9f3a"):
    vectors = open_vectors(kb, fingerprint=fingerprint).take(ALL)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, UNIT, atol=3e-4)


def reopened(kb):
    """Mapped files stay mapped after they are renamed or removed."""
    return KnowledgeBase.open(kb.path)


def test_blocks_and_batches(kb, monkeypatch):
    monkeypatch.setattr(vectors_module, "_NAMES_PER_BLOCK", 4)
    monkeypatch.setattr(vectors_module, "_NAMES_PER_CALL", 3)
    batches, done = [], []

    def recorded(names):
        batches.append(list(names))
        return encode(names)

    write_vectors(kb, recorded, fingerprint="9f3a", dim=2, progress=done.append)
    assert batches == [
        ["cold", "disease", "illness"], ["common cold"], ["heart attack", "beta estradiol"],
    ]  # fmt: skip
    assert done == [3, 1, 2]
    assert_unit(kb, None)


def test_folder_holds_vectors_and_what_made_them(kb, folder):
    before = set(folder.rglob("*"))
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    path = vectors_of(folder, "9f3a")
    about = {"fingerprint": "9f3a", "kb": kb.fingerprint, "n": 6, "dim": 2}
    about |= {"ann": None, "coarse": False}
    assert describe_vectors(kb) == [about | {"current": True}]
    assert set(folder.rglob("*")) - before == {path, path.parent}
    vectors = open_vectors(kb, fingerprint="9f3a")
    read = load_file(path)
    for name in ("codes", "fine", "scales"):
        assert np.array_equal(read.pop(name), getattr(vectors, name))
    assert list(read) == ["digests"]
    assert open_vectors(str(folder), fingerprint="9f3a").shape == (6, 2)
    kb.verify(homes=True)


def test_a_zero_vector_stays_zero(kb):
    write_vectors(kb, lambda names: np.zeros((len(names), 2)), fingerprint="9f3a", dim=2)
    assert not open_vectors(kb, fingerprint="9f3a").take(ALL).any()


def test_encoding_in_memory(kb):
    in_memory = KnowledgeBase.from_bytes(kb.to_bytes())
    with pytest.raises(BioelError, match=r"\[B032\].* in memory"):
        open_vectors(in_memory, fingerprint=None)
    write_vectors(in_memory, encode, fingerprint="9f3a", dim=2)
    again = KnowledgeBase.from_bytes(in_memory.to_bytes())
    again.verify(homes=True)
    assert_unit(again)


def test_another_encoder(kb):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    assert is_encoded(kb, fingerprint="9f3a") and not is_encoded(kb, fingerprint="4c1e")
    assert has_vectors(kb, "9f3a") and has_vectors(kb) and not has_vectors(kb, "4c1e")
    with pytest.raises(BioelError, match=r"\[B031\].*encoder 9f3a, .*4c1e. Run bioel kb encode /"):
        open_vectors(kb, fingerprint="4c1e")


def test_encoders_side_by_side(kb, folder):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    write_vectors(kb, lambda names: np.ones((len(names), 3)), fingerprint="4c1e", dim=3)
    for opened in (kb, reopened(kb), KnowledgeBase.from_bytes(kb.to_bytes())):
        assert_unit(opened)
        assert open_vectors(opened, fingerprint="4c1e").shape == (6, 3)
        assert {about["fingerprint"] for about in describe_vectors(opened)} == {"9f3a", "4c1e"}
        opened.verify(homes=True)
    build_kb([Concept("X:1", ("Disease", "grippe"))], folder)
    assert not has_vectors(reopened(kb))


def test_an_open_knowledge_base_keeps_its_vectors(folder, kb):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    reader = KnowledgeBase.open(folder)
    add_concepts(folder, [Concept("X:9", ("grippe",))])
    done = write_vectors(reader, encode, fingerprint="9f3a", dim=2)
    assert (done.encoded, done.copied) == (1, 6)  # of the names that are there now
    assert_unit(reader)
    assert is_encoded(reader, fingerprint="9f3a") and not are_outdated(reader, "9f3a")
    assert open_vectors(folder, fingerprint="9f3a").shape == (7, 2)


def test_vectors_that_are_current_are_not_written_again(folder, kb):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    home, done = vectors_of(folder), []
    assert write_vectors(kb, None, fingerprint="9f3a", dim=2, progress=done.append).copied == 6
    assert (vectors_of(folder), done) == (home, [6])


def test_no_vectors(kb, folder):
    assert describe_vectors(kb) == [] and not is_encoded(kb, fingerprint="9f3a")
    with pytest.raises(BioelError, match=r"\[B032\]"):
        open_vectors(kb, fingerprint=None)
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    vectors_of(folder).unlink()
    with pytest.raises(BioelError, match=r"\[B032\]"):
        open_vectors(kb, fingerprint=None)


PARTS = ["codes", "fine", "scales", "digests"]


@pytest.mark.parametrize("part", PARTS)
def test_a_column_that_is_missing_or_foreign(kb, folder, part):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    path = vectors_of(folder)
    array = load_file(path)[part]
    for other in (array[:5], array.astype(np.uint16), array[:, None]):
        forge_array(path, part, other)
        with pytest.raises(
            BioelError, match=rf"\[B033\] {part} in vectors/9f3a\.\w+\.safe.*shape \(6,"
        ):
            open_vectors(kb, fingerprint="9f3a")
    forge_array(path, part, None)
    with pytest.raises(BioelError, match=rf"\[B033\] {part} in .* found nothing"):
        open_vectors(kb, fingerprint="9f3a")


@pytest.mark.parametrize("kept", [-1, -90, 50, 7, 0])
def test_a_file_that_is_cut(kb, folder, kept):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    path = vectors_of(folder)
    replace(path, path.read_bytes()[:kept])
    for call in (partial(open_vectors, kb, fingerprint="9f3a"), partial(kb.verify, homes=True)):
        with pytest.raises(BioelError, match=r"\[B030\] vectors/9f3a\.\w+\.safe"):
            call()
    assert write_vectors(kb, encode, fingerprint="9f3a", dim=2).copied == 0
    assert_unit(kb)


@pytest.mark.parametrize("part", PARTS)
def test_one_wrong_byte(kb, folder, part):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    path = vectors_of(folder)
    flip(path, place_of(path, part).stop - 1)
    for call in (partial(open_vectors, kb, fingerprint="9f3a"), partial(kb.verify, homes=True)):
        with pytest.raises(BioelError, match=rf"\[B024\] {part} in vectors/9f3a\.\w+\.safe"):
            call()
    # Damaged vectors are not taken over.
    assert write_vectors(kb, encode, fingerprint="9f3a", dim=2).copied == 0
    kb.verify(homes=True)


def test_damaged_numbers_and_description(kb, folder):
    write_vectors(kb, encode, fingerprint="9f3a", dim=2)
    path = vectors_of(folder)
    forge_array(path, "scales", np.full(6, np.nan, np.float32))
    with pytest.raises(BioelError, match=r"\[B033\].*numbers from 0"):
        open_vectors(kb, fingerprint="9f3a")
    edit_about(path, lambda about: about.update(kb="x"))
    with pytest.raises(BioelError, match=r"\[B210\] vectors/9f3a\.\w+\.safe"):
        open_vectors(kb, fingerprint="9f3a")
    for text in (b"{}", b"[1]", b'{"kb": "x"', b'{"__metadata__": {}}'):
        with_header(path, text)
        with pytest.raises(BioelError, match=r"\[B030\] vectors/9f3a\.\w+\.safe"):
            open_vectors(kb, fingerprint="9f3a")
    assert write_vectors(kb, encode, fingerprint="9f3a", dim=2).encoded == 6


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
    before = all_files(folder)
    with pytest.raises(BioelError, match=r"\[B035\].*'cold' ... 'beta estradiol'"):
        write_vectors(kb, encode_badly, fingerprint="4c1e", dim=2)
    assert all_files(folder) == before
    assert_unit(kb)

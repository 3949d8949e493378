"""Training of the linker: alias table, gold ids, pool of names, hard negatives; token vectors."""

import shutil
import warnings

import pytest
import spacy
from cases import table
from kb_files import made_kb
from spacy.language import Language
from spacy.util import fix_random_seed
from tiny import LINKER, VOCABULARY, blank, examples

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking import searches
from spacy_bioel.linking.given import link_gold_mentions
from spacy_bioel.linking.validation import KnownIds, check_gold_ids
from spacy_bioel.models.name_encoder import write_encoder
from spacy_bioel.pipe import with_token_vectors
from spacy_bioel.types import AnnotatedText, Concept, Mention


def make_linker(kb_folder, texts: list[AnnotatedText], **training) -> Language:
    nlp = blank()
    training = LINKER["training"] | training
    nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(kb_folder), "training": training})
    nlp.config["initialize"]["components"]["bioel_linker"] = VOCABULARY
    data = examples(nlp, texts)
    nlp.initialize(lambda: data)
    return nlp


def test_the_alias_table_of_the_training_mentions(kb_folder, texts):
    linker = make_linker(kb_folder, texts).get_pipe("bioel_linker")
    counts = {name: dict(ids) for name, ids in linker.alias_table.counts.items()}
    assert counts["parkinson s disease"] == {"MESH:D010300": 1}
    assert counts["aki"] == {"MESH:D058186": 2}  # as written ...
    assert counts["acute kidney injury"] == {"MESH:D058186": 3}  # ... and expanded
    assert counts["hepatotoxicity"] == {"MESH:D056486": 1}  # under its current id
    assert "breast and ovarian cancer" not in counts  # a composite has several concepts
    assert "odd syndrome" not in counts


def test_initializing_again_starts_again(kb_folder, texts):
    nlp = make_linker(kb_folder, texts)
    data = examples(nlp, texts[:1])
    nlp.initialize(lambda: data)
    counts = nlp.get_pipe("bioel_linker").alias_table.counts
    assert {name: dict(ids) for name, ids in counts.items()} == {
        "naloxone": {"MESH:D009270": 2},
        "hypertension": {"MESH:D006973": 2},
        "morphine": {"MESH:D009020": 1},
        "seizures": {"MESH:D012640": 1},
    }


def test_an_update_without_gold_trains_on_synonyms(kb_folder, texts):
    nlp = make_linker(kb_folder, texts)
    before = nlp.get_pipe("bioel_linker").fingerprint
    data = examples(nlp, [AnnotatedText("1", "")])
    losses = nlp.update(data, sgd=nlp.create_optimizer())
    assert losses["bioel_linker"] > 0
    assert nlp.get_pipe("bioel_linker").fingerprint != before


def drug(id: str) -> AnnotatedText:
    return AnnotatedText("1", "aspirin", (Mention(0, 7, "Drug", (id,)),))


def test_ids_that_the_knowledge_base_lacks_are_counted(kb_folder, kb):
    lost = drug("GONE:1")
    nlp = make_linker(
        kb_folder, [lost, AnnotatedText("2", "x", (Mention(0, 1, "Drug", (kb.ids[0],)),))]
    )
    nlp.update(examples(nlp, [lost]), sgd=nlp.create_optimizer())
    assert dict(nlp.get_pipe("bioel_linker").alias_table.counts["aspirin"]) == {"GONE:1": 1}


def test_forgotten_prefixes_are_refused_before_training(kb_folder, kb):
    bare = kb.ids[0].removeprefix("MESH:")
    with pytest.raises(BioelError, match=r"\[B077\] 0 of 1 .* training documents .*--prefix MESH"):
        make_linker(kb_folder, [drug(bare)])


@pytest.mark.parametrize("loss", ["multi_similarity", "info_nce"])
def test_the_loss_falls(kb_folder, texts, loss):
    fix_random_seed(0)
    nlp = make_linker(kb_folder, texts, loss=loss)
    optimizer = nlp.create_optimizer()
    optimizer.learn_rate = 0.01
    losses = [nlp.update(examples(nlp, texts), sgd=optimizer)["bioel_linker"] for _ in range(12)]
    assert sum(losses[-3:]) < 0.5 * sum(losses[:3])


def test_training_starts_from_an_encoder(kb_folder, tmp_path, texts):
    first = make_linker(kb_folder, texts).get_pipe("bioel_linker")
    write_encoder(first.model, tmp_path / "encoder")
    nlp = blank()
    linker = nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(kb_folder)})
    settings = {"encoder": str(tmp_path / "encoder")}
    nlp.config["initialize"]["components"]["bioel_linker"] = settings
    data = examples(nlp, texts)
    nlp.initialize(lambda: data)
    assert linker.fingerprint == first.fingerprint
    assert nlp.update(data, sgd=nlp.create_optimizer())["bioel_linker"] > 0
    assert linker.fingerprint != first.fingerprint


def test_a_knowledge_base_that_is_small_or_fits_into_the_pool_is_searched_as_a_whole(
    kb_folder, texts, monkeypatch
):
    for pool_names, encode_on_load in ((4, searches.ENCODE_ON_LOAD), (80, 10)):
        monkeypatch.setattr(searches, "ENCODE_ON_LOAD", encode_on_load)
        nlp = make_linker(kb_folder, texts, pool_names=pool_names)
        linker = nlp.get_pipe("bioel_linker")
        for _ in range(2):
            with warnings.catch_warnings(action="error"):
                assert len(linker.generator.names.vectors) == linker.kb.n_names == 75
            nlp.update(examples(nlp, texts), sgd=nlp.create_optimizer())


def test_training_with_a_large_knowledge_base_ends_when_it_is_encoded(
    kb_folder, tmp_path, texts, monkeypatch
):
    monkeypatch.setattr(searches, "ENCODE_ON_LOAD", 10)
    shutil.copytree(kb_folder, tmp_path / "kb")
    nlp = make_linker(tmp_path / "kb", texts, pool_names=4)
    linker = nlp.get_pipe("bioel_linker")
    nlp.update(examples(nlp, texts), sgd=nlp.create_optimizer())
    with pytest.warns(UserWarning, match=r"\[W273\] .* 4 of the 75 names .*encode_kb"):
        assert len(linker.generator.names.vectors) == 4
    linker.encode_kb(linker.kb)
    assert len(linker.generator.names.vectors) == 75


def test_predictions_between_updates_use_the_current_weights(kb_folder, texts):
    nlp = make_linker(kb_folder, texts)
    linker = nlp.get_pipe("bioel_linker")

    def first_vector() -> float:
        return float(linker.generator.encoder.encode(["aspirin"])[0, 0])

    fingerprints, vectors = {linker.fingerprint}, {first_vector()}
    nlp.update(examples(nlp, texts), sgd=nlp.create_optimizer())
    fingerprints.add(linker.fingerprint)
    vectors.add(first_vector())
    zeros = {
        (shim.id, name): value * 0
        for layer in linker.model.walk()
        for shim in layer.shims
        for name, value in shim._model.state_dict().items()
    }
    before = first_vector()
    with pytest.raises(RuntimeError, match="halfway"), nlp.use_params(zeros):
        assert first_vector() == 0.0
        raise RuntimeError("halfway")
    assert first_vector() == before
    assert (len(fingerprints), len(vectors)) == (2, 2)


@pytest.fixture(scope="module")
def ids_kb(tmp_path_factory) -> KnowledgeBase:
    concepts = [Concept(f"MESH:D{i}", (f"name {i}",)) for i in range(9)]
    concepts += [Concept("OMIM:1", ("other",)), Concept("MESH:D99", (), replaced_by="MESH:D1")]
    return made_kb(tmp_path_factory.mktemp("kb") / "mine", concepts)


def test_counts_with_and_without_repetitions_of_which_half_is_enough(ids_kb):
    counts = {"MESH:D1": 5, "MESH:D99": 1, "MESH:D77": 2, "D8": 3, "dbSNP:rs1": 4}
    assert KnownIds.of(ids_kb, counts) == KnownIds(15, 10, ("D8", "MESH:D77"))
    assert KnownIds.of(ids_kb, {}) == KnownIds(0, 0, ())
    for counts in ({"MESH:D1": 1, "MESH:D77": 1}, {}, {"dbSNP:rs1": 3}):
        check_gold_ids(ids_kb, counts, "dev")


@table("less than half of the gold ids")
def test_less_than_half_is_a_warning_with_the_likely_prefix(ids_kb, caplog, counts, hint):
    check_gold_ids(ids_kb, counts, "dev")
    (message,) = caplog.messages
    assert message.startswith("[W340] Only 1 of ") and "gold ids in dev" in message
    assert hint in message and "look like MESH:D0" in message and next(iter(counts)) in message


def test_at_most_forty_characters_of_an_id_are_shown(ids_kb):
    with pytest.raises(BioelError) as error:
        check_gold_ids(ids_kb, {"D" * 300: 1}, "dev")
    assert "D" * 40 in str(error.value) and "D" * 41 not in str(error.value)


def test_token_vectors_are_made_for_listeners_only(kb_folder):
    nlp = blank()
    nlp.add_pipe("tok2vec")  # not initialized: it would fail
    linker = nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(kb_folder)})
    text = AnnotatedText("1", "aspirin", (Mention(0, 7, "Drug", ()),))
    ((link,),) = link_gold_mentions(nlp, linker, [text])
    assert link.ids == ("MESH:D001241",)


def test_vectors_by_the_pipes_that_give_them_alone():
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec").model.initialize()
    nlp.add_pipe("bioel_mentions")  # untrained: it would refuse
    docs = [nlp.make_doc("heart attack"), nlp.make_doc("")]
    assert [doc.tensor.shape for doc in with_token_vectors(nlp, docs)] == [(2, 96), (0, 96)]

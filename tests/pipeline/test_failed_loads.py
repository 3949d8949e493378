"""Pipes are saved and loaded; others are not saved, and no pipe is used that was loaded halfway."""

import gc
import json
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spacy
from cases import table
from spacy.language import Language
from tiny import (
    LINKER,
    TOK2VEC,
    VOCABULARY,
    ents,
    light_nlp,
    linking_nlp,
    links,
    step,
    with_entity,
)
from tiny import examples as examples_of

from spacy_bioel.doc import get_links, with_gold_mentions
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking import searches
from spacy_bioel.linking.evidence import FEATURES, AliasTable, default_fusion
from spacy_bioel.types import AnnotatedText

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.*W300")
PIPES = ("bioel_mentions", "bioel_linker")
N_UPDATES = {"multitask": 40}  # of others: 3


def bio_nlp(kb: Path, checkpoint: Path) -> Language:
    nlp = light_nlp(kb)
    nlp.remove_pipe("bioel_mentions")
    model = {"@architectures": "spacy-bioel.BioTagger.v1", "tok2vec": TOK2VEC}
    nlp.add_pipe("bioel_mentions", config={"model": model}, first=True)
    return nlp


MAKERS: dict[str, Callable[[Path, Path], Language]] = {
    "light": lambda kb, _: light_nlp(kb),
    "bio": bio_nlp,
}
with suppress(ImportError):  # if the plugin has been removed
    from contextual_pipelines import MAKERS as CONTEXTUAL

    MAKERS |= CONTEXTUAL


def answers(nlp: Language, texts: list[AnnotatedText]) -> list[object]:
    """Spans with their scores, and links with all candidates, of found and of given mentions."""
    found: list[object] = []
    if "bioel_mentions" in nlp.pipe_names:
        detector: Any = nlp.get_pipe("bioel_mentions")
        docs = [nlp.make_doc(text.text) for text in texts]
        if "tok2vec" in nlp.pipe_names:
            docs = [nlp.get_pipe("tok2vec")(doc) for doc in docs]  # type: ignore[operator]
        found += detector.score_spans(docs, min_probability=0.001)
    with nlp.select_pipes(enable=[name for name in nlp.pipe_names if name != "bioel_mentions"]):
        given = [with_gold_mentions(nlp.make_doc(text.text), text) for text in texts]
        found += [get_links(doc) for doc in nlp.pipe(given)]
    return found


def retrain(nlp: Language, texts: list[AnnotatedText], *, updates: int) -> None:
    """Initialise and train a pipeline, also one that is trained already."""
    nlp.config["initialize"]["components"] = {"bioel_linker": VOCABULARY}
    optimizer = nlp.initialize(lambda: examples_of(nlp, texts))
    optimizer.learn_rate = 0.02
    for _ in range(updates):
        step(nlp, texts, optimizer)


SLOW = {"multitask", "reranker", "generative"}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MAKERS],
)
def saved(request, kb_folder, checkpoint, texts, tmp_path_factory) -> tuple[Path, list[object]]:
    """A saved pipeline of each architecture, and its answers before it was saved."""
    spacy.util.fix_random_seed(0)
    nlp = MAKERS[request.param](kb_folder, checkpoint)
    retrain(nlp, texts, updates=N_UPDATES.get(request.param, 3))
    folder = tmp_path_factory.mktemp(request.param) / "model"
    nlp.to_disk(folder)
    return folder, answers(nlp, texts)


def state_of(pipe: Any) -> bytes | None:
    """What the pipe would be saved as; None if it refuses to be used."""
    try:
        return pipe.to_bytes(exclude=["kb"])
    except BioelError as error:
        assert str(error).startswith("[B059]")
        return None


def test_a_pipe_is_unchanged_or_unusable_after_a_load_that_fails(saved, texts, tmp_path):
    folder, trained = saved
    nlp, fresh = spacy.load(folder), spacy.util.load_model_from_config(spacy.load(folder).config)
    assert sum(map(len, trained)) > 25  # type: ignore[arg-type]
    # Pickled, as for worker processes under spawn.
    worker = spacy.load(folder)
    worker._components = [(name, pickle.loads(pickle.dumps(pipe))) for name, pipe in nlp.pipeline]
    assert answers(worker, texts) == trained
    for name in set(PIPES) & set(nlp.pipe_names):
        pipe: Any = nlp.get_pipe(name)
        saved_pipe, broken, whole_pipe = folder / name, tmp_path / name, state_of(pipe)
        assert whole_pipe
        for file in sorted(path.name for path in saved_pipe.iterdir() if path.is_file()):
            shutil.copytree(saved_pipe, broken)
            (broken / "manifest.json").unlink(missing_ok=True)
            whole = (saved_pipe / file).read_bytes()
            (broken / file).write_bytes(whole[: len(whole) // 2])
            for victim in (pipe, fresh.get_pipe(name)):
                with pytest.raises(BioelError):
                    victim.from_disk(broken)
            assert state_of(pipe) in (whole_pipe, None)
            shutil.rmtree(broken)
        with pytest.raises(BioelError, match=r"\[B059\] .*'" + name):
            answers(nlp, texts)
        pipe.from_disk(saved_pipe)
        with pytest.raises(BioelError, match=r"\[B058\]"):
            pipe.from_bytes(whole_pipe[: len(whole_pipe) // 2])
        assert state_of(pipe) == whole_pipe
    assert answers(nlp, texts) == trained
    fresh.from_disk(folder)
    assert answers(fresh, texts) == trained


@table("settings that cannot be loaded")
def test_what_cannot_be_loaded_is_not_saved(trained, tmp_path, name, wrong, code):
    pipe: Any = trained.get_pipe(name)
    pipe.cfg.update(wrong)
    for act in (lambda: pipe.to_disk(tmp_path / "bad"), pipe.to_bytes, lambda: trained("Fever.")):
        with pytest.raises(BioelError, match=rf"\[{code}\]"):
            act()
    assert not (tmp_path / "bad").exists()


def test_weights_and_alias_tables_that_cannot_be_loaded(trained, tmp_path):
    linker: Any = trained.get_pipe("bioel_linker")
    wrong = [
        ("fusion", replace(default_fusion(), bias=float("nan"))),
        ("rescoring", default_fusion()),  # of other features
        ("alias_table", AliasTable({"aspirin": {"MESH:D001241": 0}})),
    ]
    for name, value in wrong:
        before = getattr(linker, name)
        setattr(linker, name, value)
        with pytest.raises(BioelError, match=r"\[B272\]"):
            linker.to_disk(tmp_path / "m")
        setattr(linker, name, before)
    assert not (tmp_path / "m").exists()


def test_a_knowledge_base_in_memory_is_not_lost(kb_folder, tmp_path):
    nlp = linking_nlp(kb_folder, ["aspirin"])
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.set_kb(KnowledgeBase.from_bytes(KnowledgeBase.open(kb_folder).to_bytes()))
    linker.cfg["include_kb"] = False
    for save in (lambda: linker.to_disk(tmp_path / "m"), linker.to_bytes):
        with pytest.raises(BioelError, match=r"\[B467\].*'bioel_linker'"):
            save()
    assert not (tmp_path / "m").exists()
    assert ents(next(nlp.pipe(["aspirin"], n_process=2))) == [("aspirin", "MESH:D001241")]
    linker.kb.save_to(tmp_path / "kb")
    linker.set_kb(tmp_path / "kb")
    again: Any = spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert again.get_pipe("bioel_linker").kb.path == tmp_path / "kb"


def test_initialising_forgets_what_was_tuned(trained, texts):
    linker: Any = trained.get_pipe("bioel_linker")
    linker.fusion = linker.rescoring = default_fusion()
    trained.meta["bioel"] = {"tuning": {"documents": 6}, "other": 1}
    trained.config["initialize"]["components"] = {"bioel_linker": VOCABULARY}
    with trained.select_pipes(enable="bioel_linker"):
        trained.initialize(lambda: examples_of(trained, texts))
    assert (linker.fusion, linker.rescoring) == (None, None)
    assert trained.meta["bioel"] == {"other": 1}


def test_a_saved_config_has_no_paths_of_its_machine(kb_folder, tmp_path):
    several = {
        "Disease": str(kb_folder),
        "Chemical": str(shutil.copytree(kb_folder, tmp_path / "b")),
    }
    nlp = linking_nlp(kb_folder)
    nlp.add_pipe("bioel_linker", name="other", config={"kb": several, "spans_key": "other"})
    nlp.to_disk(tmp_path / "m")
    text = (tmp_path / "m" / "config.cfg").read_text("utf8")
    assert str(kb_folder) not in text and str(tmp_path) not in text
    config = spacy.util.load_config(tmp_path / "m" / "config.cfg")
    assert config["components"]["bioel_linker"]["kb"] == "kb"
    assert config["components"]["other"]["kb"] == {"Disease": "kb.0", "Chemical": "kb.1"}
    assert nlp.config["components"]["bioel_linker"]["kb"] == str(kb_folder)
    loaded: Any = spacy.load(tmp_path / "m").get_pipe("other")
    assert [part.path.name for part in loaded.kb.parts] == ["kb.0", "kb.1"]
    linking_nlp(kb_folder, ["aspirin"], include_kb=False).to_disk(tmp_path / "without")
    assert str(kb_folder) in (tmp_path / "without" / "config.cfg").read_text("utf8")
    assert not (tmp_path / "without" / "bioel_linker" / "kb").exists()
    assert ents(spacy.load(tmp_path / "without")("aspirin")) == [("aspirin", "MESH:D001241")]


def test_after_initialising_again(saved, texts, tmp_path):
    folder, trained = saved
    nlp = spacy.load(folder)
    # With fewer concepts, which are the classes of a multi-task model.
    retrain(nlp, texts[:3], updates=N_UPDATES.get(folder.parent.name.rstrip("0123456789"), 3))
    expected = answers(nlp, texts)
    assert sum(map(len, expected)) > 10 and expected != trained  # type: ignore[arg-type]
    nlp.to_disk(tmp_path / "again")
    assert answers(spacy.load(tmp_path / "again"), texts) == expected
    # The loaded weights replace those of other documents.
    assert answers(spacy.load(folder).from_disk(tmp_path / "again"), texts) == expected


def test_garbage_collection_goes_on_after_a_failed_load(kb_folder):
    pipe: Any = linking_nlp(kb_folder).get_pipe("bioel_linker")
    with pytest.raises(BioelError, match="B058"):
        pipe.from_bytes(b"\x93\x01")
    assert gc.isenabled()


def test_saved_with_its_knowledge_base(kb_folder, tmp_path):
    shutil.copytree(kb_folder, tmp_path / "kb")
    nlp = linking_nlp(tmp_path / "kb", label_types={"Thing": ["Disease"]})
    nlp.to_disk(tmp_path / "saved")
    shutil.rmtree(tmp_path / "kb")
    (tmp_path / "saved").rename(tmp_path / "moved")

    def cui(nlp: Language) -> str:
        return nlp(with_entity(nlp, "a cold", "cold")).ents[0]._.cui

    moved = spacy.load(tmp_path / "moved")
    assert cui(moved) == "MESH:D003139"
    in_memory = spacy.util.load_model_from_config(moved.config).from_bytes(moved.to_bytes())
    shutil.rmtree(tmp_path / "moved")
    assert cui(in_memory) == "MESH:D003139"
    in_memory.to_disk(tmp_path / "again")
    assert cui(spacy.load(tmp_path / "again")) == "MESH:D003139"


def test_the_same_is_saved_before_and_after_the_first_use(kb_folder, tmp_path):
    nlp = linking_nlp(kb_folder, ["aspirin"])
    nlp.to_disk(tmp_path / "before")
    before = nlp.get_pipe("bioel_linker").to_bytes()
    assert ents(nlp("aspirin")) == [("aspirin", "MESH:D001241")]
    nlp.to_disk(tmp_path / "after")
    assert nlp.get_pipe("bioel_linker").to_bytes() == before
    for when in ("before", "after"):
        assert {path.name for path in (tmp_path / when / "bioel_linker").iterdir()} == {
            *["alias_table.json", "cfg.json", "embeddings.safetensors", "fusion.json", "kb"],
            *["manifest.json", "model.safetensors", "tokenizer.json"],
        }


@pytest.fixture
def encoded_folder(kb_folder, tmp_path, trained) -> Path:
    """The knowledge base with vectors of the trained pipeline's encoder."""
    shutil.copytree(kb_folder, tmp_path / "encoded")
    kb = KnowledgeBase.open(tmp_path / "encoded")
    seen: list[int] = []
    trained.get_pipe("bioel_linker").encode_kb(kb, progress=seen.append)
    assert sum(seen) == kb.n_names == 75
    return tmp_path / "encoded"


def test_vectors_of_the_same_encoder(trained, encoded_folder):
    text = "Dyskinesia under levodopa/carbidopa."
    before = links(trained(text))
    trained.get_pipe("bioel_linker").set_kb(encoded_folder)
    assert links(trained(text)) == before
    assert [cui for _, cui in before] == ["MESH:D004409", "MESH:D007980", "MESH:D002230"]


def test_vectors_of_another_encoder(kb_folder, encoded_folder, texts, trained, monkeypatch):
    nlp = light_nlp(kb_folder)
    nlp.remove_pipe("bioel_mentions")
    linker = nlp.get_pipe("bioel_linker")
    data = examples_of(nlp, texts[:2])
    nlp.initialize(lambda: data)
    linker.set_kb(encoded_folder)
    doc = with_entity(nlp, "aspirin", "aspirin")
    with monkeypatch.context() as large:
        large.setattr(searches, "ENCODE_ON_LOAD", 1)
        with pytest.raises(BioelError, match=r"\[B031\].*bioel kb encode /.*/encoded MODEL"):
            nlp(doc)
        linker.encode_kb(KnowledgeBase.open(encoded_folder))
        for pipeline in (nlp, trained):  # the folder has vectors of both encoders
            pipe = pipeline.get_pipe("bioel_linker")
            pipe.set_kb(encoded_folder)
            vectors = pipe.generator.encoder.encode(["aspirin"])
            assert len(pipe.generator.names.search(vectors, 1)[0]) == 1


@table("edited weights and alias tables")
def test_edited_weights_and_alias_tables(kb_folder, tmp_path, file, text, code):
    nlp = linking_nlp(kb_folder)
    linker = nlp.get_pipe("bioel_linker")
    linker.fusion = default_fusion()
    nlp.to_disk(tmp_path / "m")
    edited = linker.fusion.to_json(FEATURES)
    if text == "bias NaN":
        text = json.dumps(edited | {"bias": float("nan")})
    elif text == "no bias":
        text = json.dumps({key: value for key, value in edited.items() if key != "bias"})
    elif text == "short output":
        text = json.dumps(edited | {"output": edited["output"][1:]})
    (tmp_path / "m" / "bioel_linker" / file).write_text(text)
    (tmp_path / "m" / "bioel_linker" / "manifest.json").unlink()
    with pytest.raises(BioelError, match=rf"\[{code}\]"):
        spacy.load(tmp_path / "m")


def test_weights_of_another_version_are_replaced(kb_folder, tmp_path, caplog):
    """The pipeline can be tuned, as the warning says, and saved."""
    nlp = linking_nlp(kb_folder)
    linker = nlp.get_pipe("bioel_linker")
    linker.fusion = default_fusion()
    nlp.to_disk(tmp_path / "m")
    edited = linker.fusion.to_json(FEATURES) | {"features": [*FEATURES[1:], "more"]}
    (tmp_path / "m" / "bioel_linker" / "fusion.json").write_text(json.dumps(edited))
    (tmp_path / "m" / "bioel_linker" / "manifest.json").unlink()
    nlp = spacy.load(tmp_path / "m")
    assert nlp.get_pipe("bioel_linker").fusion is None
    assert "[W062]" in caplog.text and "bioel tune MODEL DEV OUT" in caplog.text
    nlp.to_disk(tmp_path / "again")
    caplog.clear()
    spacy.load(tmp_path / "again")
    assert not caplog.text


def test_only_a_trained_linker_encodes_and_learns(kb, kb_folder, texts):
    nlp = linking_nlp(kb_folder, **LINKER)
    linker = nlp.get_pipe("bioel_linker")
    for act in (lambda: linker.encode_kb(kb), lambda: linker.update(examples_of(nlp, texts[:1]))):
        with pytest.raises(BioelError, match=r"\[B053\].*'bioel_linker'"):
            act()

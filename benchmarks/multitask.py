"""Finding, typing and linking by one network: variants, and closed against open vocabulary.

python -m benchmarks.run multitask CORPUS --model FOLDER --system NAME records the development
figures of a pipeline that was trained by training/configs/multitask.cfg or one that extends it.
Without --model it trains every variant of the paper on the first layers of a transformer
(--transformer, a folder or a hub id), once for each seed and all alike, and records these.
Protocols:

mention       places and types of mentions, entity typing in the paper; mention_unlabelled: places
closed        ids too, by the closed vocabulary alone; nothing of what strings say
closed_nil    the same with a NIL threshold, chosen on the documents of the other folds
open_alone    the same by the open vocabulary alone
open          the whole pipeline as it was tuned, strings too
gold_any_closed, gold_any_open_alone, gold_any_open    the same for given mentions, any id right

A subset has the recall of gold mentions by whether training mentions have their concepts.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import spacy
import srsly
import typer
from confection import Config
from spacy.language import Language
from spacy.util import minibatch

from benchmarks.record import Row, question
from benchmarks.texts import KEY, dev, only, python, scored
from spacy_bioel.models.bio_tagger import decode_bilou
from spacy_bioel.models.multitask import of_states
from spacy_bioel.pipeline.annotate import get_links
from spacy_bioel.pipeline.contextual import multitask as network
from spacy_bioel.pipeline.measuring import link_given, link_open
from spacy_bioel.pipeline.stored_pipe import with_token_vectors
from spacy_bioel.pipeline.training_log import STEPS
from spacy_bioel.storage.atomic import replacing_folder
from spacy_bioel.tuning.choosing import document_folds
from spacy_bioel.tuning.run import tune_nil
from spacy_bioel.types import AnnotatedText, Link, Mention

ALONE = dict.fromkeys(("exact", "memory", "sparse", "dense", "prior"), False) | {"context": True}
_ALL = ["mentions", "types", "links"]
_FLAT, _LEVELS = {"hidden": 0, "one_task": False}, {"hidden": 128, "one_task": True}
# Systems of the paper: settings of the models to train. Of two, the first finds, the second links.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "pt_single": [{"per_token": True, "tasks": ["links"]} | _FLAT],
    "pt_multi": [{"per_token": True, "tasks": _ALL} | _FLAT],
    "pt_hierarchical": [{"per_token": True, "tasks": _ALL} | _LEVELS],
    "pe_single": [{"tasks": ["mentions"]} | _FLAT, {"tasks": ["links"]} | _FLAT],
    "pe_multi": [{"tasks": _ALL} | _FLAT],
    "pe_hierarchical": [{"tasks": _ALL} | _LEVELS],
    # Levels too, but each update learns the sum of all tasks.
    "pt_levels": [{"per_token": True, "tasks": _ALL} | _LEVELS | {"one_task": False}],
    "pe_levels": [{"tasks": _ALL} | _LEVELS | {"one_task": False}],
}
_TRANSFORMER = "sentence-transformers/all-MiniLM-L6-v2"


@question("multitask", key=KEY)
def multitask(
    corpus: str,
    model: Annotated[Path | None, typer.Option(help="A trained pipeline.")] = None,
    system: Annotated[str, typer.Option(help="What to call it.")] = "multitask",
    seed: Annotated[list[int] | None, typer.Option(help="Default: 0, 1 and 2.")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="Of VARIANTS; all by default.")] = None,
    updates: Annotated[int, typer.Option()] = 300,
    transformer: Annotated[str, typer.Option(help="Of the variants.")] = _TRANSFORMER,
    layers: Annotated[int, typer.Option(help="Of these, its first are kept.")] = 3,
    documents: Annotated[int, typer.Option(help="Of an update.")] = 4,
) -> Iterator[Row]:
    texts = dev(corpus)
    about: Row = {"corpus": corpus, "split": "dev"}
    if model is not None:
        about |= {"system": system, "seed": (seed or [0])[0]}
        yield from (about | row for row in _measure(spacy.load(model), texts))
        return
    trunk = _first_layers(transformer, layers)
    about |= {"trunk": transformer, "layers": layers, "updates": updates, "documents": documents}
    for number in seed or (0, 1, 2):
        for name in variant or VARIANTS:
            pipelines = [
                spacy.load(
                    _train(corpus, f"{name}_{i}", settings, trunk, number, updates, documents)
                )
                for i, settings in enumerate(VARIANTS[name])
            ]
            for row in _measure_closed(pipelines, texts, brief=True):
                yield about | row | {"system": name, "seed": number}


def _first_layers(transformer: str, layers: int) -> Path:
    """A checkpoint of the first layers of a transformer, written if it is not there.

    Comparing all variants over seeds takes dozens of trainings; the lower half of a transformer
    already knows words in context, which a network that begins at random would have to learn.
    """
    folder = Path("models") / f"{Path(transformer).name}_{layers}"
    if not folder.is_dir():
        from transformers import AutoModel, AutoTokenizer

        sys.path.append("training/scripts")  # no package
        from train import find_transformer

        source = find_transformer(transformer)
        with replacing_folder(folder) as new:
            AutoModel.from_pretrained(source, num_hidden_layers=layers).save_pretrained(new)
            AutoTokenizer.from_pretrained(source).save_pretrained(new)
    return folder


def _train(
    corpus: str, name: str, settings: Row, trunk: Path, seed: int, updates: int, documents: int
) -> Path:
    """Train a variant, unless that was done before."""
    folder = Path("models") / f"{corpus}_{name}_{seed}"
    last, asked = folder / "model-last", folder / "asked.cfg"
    finds = settings.get("per_token") or "mentions" in settings["tasks"]
    rate = {"warmup_steps": updates // 10, "total_steps": updates}
    config = Config(
        {
            "extends": {"path": str(Path("training/configs/multitask.cfg").resolve())},
            "paths": {"transformer": str(trunk)},
            "components": {
                "bioel_linker": {
                    "mentions": "read" if finds else "spans",
                    "model": {"vocabulary": "closed"} | settings,
                }
            },
            "training": {
                "max_steps": updates,
                "eval_frequency": updates,
                "batcher": {"size": documents},
                "optimizer": {"learn_rate": rate},
            },
            # Nothing is chosen by it: the last update is measured.
            "corpora": {"dev": {"limit": 10}},
        }
    )
    # A training of other settings, or one that was stopped, is not taken for this one.
    if asked.is_file() and asked.read_text("utf8") == config.to_str():
        if last.is_dir() and srsly.read_json(last / "meta.json").get(STEPS) == updates:
            return last
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config.to_disk(asked)
    python("training/scripts/train.py", corpus, asked, folder, "--seed", seed)
    return last


def _measure(nlp: Language, texts: Sequence[AnnotatedText]) -> Iterator[Row]:
    """Yield figures of one pipeline that finds and links, by each vocabulary that it has."""
    linker: Any = nlp.get_pipe("bioel_linker")
    if linker.model.attrs["vocabulary"] == "open":
        for name in ("open", "open_alone"):
            yield from _score(linker, texts, list(link_open(nlp, linker, texts)), name)
            yield from _score_given(nlp, linker, texts, name)
            alone(linker)
    yield from _measure_closed([nlp], texts)


def _measure_closed(
    pipelines: Sequence[Language], texts: Sequence[AnnotatedText], *, brief: bool = False
) -> Iterator[Row]:
    """Yield figures of a closed vocabulary: the likeliest class is linked, at any probability.

    brief (bool): Only those for which documents are read once.
    """
    linker: Any = pipelines[-1].get_pipe("bioel_linker")
    for nlp in pipelines:
        alone(nlp.get_pipe("bioel_linker"))
    linker.model.attrs["vocabulary"] = "closed"
    linker.reading = None
    links = list(_run(pipelines, texts))
    settings = [nlp.get_pipe("bioel_linker").model.attrs["settings"] for nlp in pipelines]
    has_types = any(of["per_token"] or "types" in of["tasks"] for of in settings)
    protocols = [*(["mention"] if has_types else []), "mention_unlabelled"]
    yield from scored(texts, links, None, dict.fromkeys(protocols, ("precision", "recall", "f1")))
    yield from _score(linker, texts, links, "closed")
    if brief:
        return
    if "mentions" in settings[0]["tasks"]:
        n = _repaired_tokens(pipelines[0], pipelines[0].get_pipe("bioel_linker"), texts)
        yield {"protocol": "mention", "subset": "", "metric": "repaired_tokens", "value": n}
    yield from _score_given(pipelines[-1], linker, texts, "closed")
    # With a NIL threshold: most concepts are no class of the vocabulary.
    tuned = tune_nil(pipelines[0], texts, folds=document_folds(len(texts)))
    linker.cfg["nil_threshold"] = 0.0
    if tuned is not None and tuned.cross_fitted is not None:
        about = {"protocol": "closed_nil", "subset": "", "kb": linker.kb.fingerprint}
        n = sum(len(m.ids) > 0 for text in texts for m in text.mentions)
        yield about | {"metric": "f1", "value": round(tuned.cross_fitted, 2), "n": n}


def _repaired_tokens(nlp: Language, linker: Any, texts: Sequence[AnnotatedText]) -> int:
    """Tokens whose likeliest tag would have made a sequence illegal, and has been replaced."""
    n = 0
    for docs in minibatch(with_token_vectors(nlp, map(nlp.make_doc, (t.text for t in texts))), 32):
        lengths = np.array([len(doc) for doc in docs])
        states = network.read_documents(linker.model, docs)
        n += int(decode_bilou(of_states(linker.model, "tag_logits", states), lengths)[2].sum())
    return n


def alone(linker: Any) -> None:
    """Let a linker link by what was read alone, and always."""
    linker.cfg["evidence"] = dict(ALONE)
    linker.cfg["nil_threshold"] = 0.0


def _run(pipelines: Sequence[Language], texts: Sequence[AnnotatedText]) -> Iterator[list[Link]]:
    """Links of one pipeline, or of two, of which the first finds the mentions of the second."""
    docs: Any = pipelines[0].pipe((text.text for text in texts), batch_size=32)
    for nlp in pipelines[1:]:
        for _, pipe in nlp.pipeline:
            docs = pipe.pipe(docs, batch_size=32)
    yield from map(get_links, docs)


def _score(
    linker: Any, texts: Sequence[AnnotatedText], links: Sequence[Sequence[Link]], name: str
) -> Iterator[Row]:
    """Yield strict figures end to end, and recall by whether the concept is one of training."""
    about = {"protocol": name, "kb": linker.kb.fingerprint}
    classes = set(linker.model.attrs["inventory"].classes)
    wanted = {"end_to_end": ("precision", "recall", "f1")}
    yield from (row | about for row in scored(texts, links, linker.kb, wanted))
    for subset, is_unseen in (("seen concept", False), ("unseen concept", True)):

        def belongs(_: AnnotatedText, mention: Mention, is_unseen: bool = is_unseen) -> bool:
            ids = map(linker.kb.canonical, mention.ids)
            return bool(mention.ids) and classes.isdisjoint(ids) == is_unseen

        for row in scored(only(texts, belongs), links, linker.kb, {"end_to_end": ("recall",)}):
            yield row | about | {"subset": subset}


def _score_given(
    nlp: Language, linker: Any, texts: Sequence[AnnotatedText], name: str
) -> Iterator[Row]:
    """Yield the accuracy for gold mentions, any id of a mention being right."""
    about = {"protocol": f"gold_any_{name}", "kb": linker.kb.fingerprint}
    wanted = {"gold_any": ("accuracy@1_nil_ignored", "recall@5")}
    links = list(link_given(nlp, linker, texts))
    yield from (row | about for row in scored(texts, links, linker.kb, wanted))

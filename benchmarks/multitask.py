"""Finding, typing and linking by one network: variants, and closed against open vocabulary.

python -m benchmarks.multitask CORPUS --model FOLDER --system NAME records the development figures
of a pipeline that was trained by training/configs/multitask.cfg or one that extends it. Without
--model it trains every variant of the paper on the first layers of a transformer (--transformer, a
folder or a hub id), once for each seed and all alike, and records these. Protocols:

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
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import spacy
import srsly
import typer
from confection import Config
from spacy.language import Language
from spacy.util import minibatch

from benchmarks.record import add, figures, measurement
from spacy_bioel.corpus import read_texts
from spacy_bioel.models.bio_tagger import decode_bilou
from spacy_bioel.models.multitask import tag_logits
from spacy_bioel.pipeline.annotate import get_links
from spacy_bioel.pipeline.contextual import multitask
from spacy_bioel.pipeline.measuring import link_given, link_open
from spacy_bioel.pipeline.stored_pipe import with_token_vectors
from spacy_bioel.pipeline.training_log import STEPS
from spacy_bioel.scoring.evaluation import evaluate
from spacy_bioel.storage.atomic import replacing_folder
from spacy_bioel.tuning.choosing import document_folds
from spacy_bioel.tuning.tuners import tune_nil
from spacy_bioel.types import AnnotatedText, Link, Mention

KEY = ("corpus", "system", "protocol", "subset", "metric", "seed")
ALONE = dict.fromkeys(("exact", "memory", "sparse", "dense", "prior"), False) | {"context": True}
SUBSETS = ("seen concept", "unseen concept")


@dataclass(frozen=True)
class Variant:
    """A system of the paper.

    models (tuple): Settings of the models to train. Two of them: the first finds, the second links.
    """

    models: tuple[dict[str, Any], ...]


_ALL = ["mentions", "types", "links"]
_FLAT, _LEVELS = {"hidden": 0, "one_task": False}, {"hidden": 128, "one_task": True}
VARIANTS = {
    "pt_single": Variant(({"per_token": True, "tasks": ["links"]} | _FLAT,)),
    "pt_multi": Variant(({"per_token": True, "tasks": _ALL} | _FLAT,)),
    "pt_hierarchical": Variant(({"per_token": True, "tasks": _ALL} | _LEVELS,)),
    "pe_single": Variant(({"tasks": ["mentions"]} | _FLAT, {"tasks": ["links"]} | _FLAT)),
    "pe_multi": Variant(({"tasks": _ALL} | _FLAT,)),
    "pe_hierarchical": Variant(({"tasks": _ALL} | _LEVELS,)),
    # Levels too, but each update learns the sum of all tasks.
    "pt_levels": Variant(({"per_token": True, "tasks": _ALL} | _LEVELS | {"one_task": False},)),
    "pe_levels": Variant(({"tasks": _ALL} | _LEVELS | {"one_task": False},)),
}
_TRANSFORMER = "sentence-transformers/all-MiniLM-L6-v2"


def main(
    corpus: str,
    model: Annotated[Path | None, typer.Option(help="A trained pipeline.")] = None,
    system: Annotated[str, typer.Option(help="What to call it.")] = "multitask",
    seed: Annotated[list[int] | None, typer.Option(help="Default: 0, 1 and 2.")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="Of VARIANTS; all by default.")] = None,
    updates: Annotated[int, typer.Option()] = 300,
    transformer: Annotated[str, typer.Option(help="Of the variants.")] = _TRANSFORMER,
    layers: Annotated[int, typer.Option(help="Of these, its first are kept.")] = 3,
    documents: Annotated[int, typer.Option(help="Of an update.")] = 4,
) -> None:
    texts = list(read_texts(Path("corpus") / corpus / "dev.jsonl"))
    if model is not None:
        nlp = spacy.load(model)
        record(corpus, system, measure(nlp, texts), seed=(seed or [0])[0])
        return
    trunk = first_layers(transformer, layers)
    about = {"trunk": transformer, "layers": layers, "updates": updates, "documents": documents}
    for number in seed or (0, 1, 2):
        for name in variant or VARIANTS:
            pipelines = [
                spacy.load(
                    train(corpus, f"{name}_{i}", settings, trunk, number, updates, documents)
                )
                for i, settings in enumerate(VARIANTS[name].models)
            ]
            rows = measure_closed(pipelines, texts, brief=True)
            record(corpus, name, [row | about for row in rows], seed=number)


def first_layers(transformer: str, layers: int) -> Path:
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


def record(corpus: str, system: str, rows: Iterable[Any], *, seed: int) -> None:
    about = {"corpus": corpus, "split": "dev", "seed": seed}
    found = [measurement("multitask", system, **about, **row) for row in rows]
    for row in found:
        if row["metric"] == "f1" or row["subset"]:
            typer.echo(
                f"{system} {seed} {row['protocol']} {row['subset']} {row['metric']} {row['value']}"
            )
    add("multitask", found, key=KEY)


def train(
    corpus: str,
    name: str,
    settings: dict[str, Any],
    trunk: Path,
    seed: int,
    updates: int,
    documents: int,
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
    script = ["training/scripts/train.py", corpus, asked, folder, "--seed", seed]
    subprocess.run([sys.executable, *map(str, script)], check=True)
    return last


def measure(nlp: Language, texts: Sequence[AnnotatedText]) -> list[dict[str, Any]]:
    """Figures of one pipeline that finds and links, by each vocabulary that it has."""
    linker: Any = nlp.get_pipe("bioel_linker")
    if linker.model.attrs["vocabulary"] == "closed":
        return measure_closed([nlp], texts)
    rows = score(linker, texts, list(link_open(nlp, linker, texts)), "open")
    rows += score_given(nlp, linker, texts, "open")
    alone(linker)
    rows += score(linker, texts, list(link_open(nlp, linker, texts)), "open_alone")
    rows += score_given(nlp, linker, texts, "open_alone")
    return rows + measure_closed([nlp], texts)


def measure_closed(
    pipelines: Sequence[Language], texts: Sequence[AnnotatedText], *, brief: bool = False
) -> list[dict[str, Any]]:
    """Figures of a closed vocabulary: the likeliest class is linked, at any probability.

    brief (bool): Only those for which documents are read once.
    """
    linker: Any = pipelines[-1].get_pipe("bioel_linker")
    for nlp in pipelines:
        alone(nlp.get_pipe("bioel_linker"))
    linker.model.attrs["vocabulary"] = "closed"
    linker.reading = None
    links = list(run(pipelines, texts))
    settings = [nlp.get_pipe("bioel_linker").model.attrs["settings"] for nlp in pipelines]
    has_types = any(of["per_token"] or "types" in of["tasks"] for of in settings)
    protocols = [*(["mention"] if has_types else []), "mention_unlabelled"]
    rows = [
        {"protocol": row.protocol, "subset": "", **figures(row)}
        for row in evaluate(texts, links, protocols=protocols, per_label=False)
    ]
    rows += score(linker, texts, links, "closed")
    if brief:
        return rows
    if "mentions" in settings[0]["tasks"]:
        n = repaired_tokens(pipelines[0], pipelines[0].get_pipe("bioel_linker"), texts)
        rows.append({"protocol": "mention", "subset": "", "metric": "repaired_tokens", "value": n})
    rows += score_given(pipelines[-1], linker, texts, "closed")
    return rows + score_with_nil(pipelines[0], linker, texts)


def score_with_nil(
    nlp: Language, linker: Any, texts: Sequence[AnnotatedText]
) -> list[dict[str, Any]]:
    """Strict F1 of a closed vocabulary that may abstain: most concepts are no class of it."""
    tuned = tune_nil(nlp, texts, folds=document_folds(len(texts)))
    linker.cfg["nil_threshold"] = 0.0
    if tuned is None or tuned.cross_fitted is None:
        return []
    about = {"protocol": "closed_nil", "subset": "", "kb": linker.kb.fingerprint}
    n = sum(len(m.ids) > 0 for text in texts for m in text.mentions)
    return [about | {"metric": "f1", "value": round(tuned.cross_fitted, 2), "n": n}]


def repaired_tokens(nlp: Language, linker: Any, texts: Sequence[AnnotatedText]) -> int:
    """Tokens whose likeliest tag would have made a sequence illegal, and has been replaced."""
    n = 0
    for docs in minibatch(with_token_vectors(nlp, map(nlp.make_doc, (t.text for t in texts))), 32):
        lengths = np.array([len(doc) for doc in docs])
        states = multitask.read_documents(linker.model, docs)
        n += int(decode_bilou(tag_logits(linker.model, states), lengths)[2].sum())
    return n


def alone(linker: Any) -> None:
    """Let a linker link by what was read alone, and always."""
    linker.cfg["evidence"] = dict(ALONE)
    linker.cfg["nil_threshold"] = 0.0


def run(pipelines: Sequence[Language], texts: Sequence[AnnotatedText]) -> Iterator[list[Link]]:
    """Links of one pipeline, or of two, of which the first finds the mentions of the second."""
    docs: Any = pipelines[0].pipe((text.text for text in texts), batch_size=32)
    for nlp in pipelines[1:]:
        for _, pipe in nlp.pipeline:
            docs = pipe.pipe(docs, batch_size=32)
    yield from map(get_links, docs)


def score(
    linker: Any,
    texts: Sequence[AnnotatedText],
    links: Sequence[Sequence[Link]],
    protocol: str,
) -> list[dict[str, Any]]:
    """Strict figures end to end, and recall by whether the concept is one of training."""

    def found(chosen: Sequence[AnnotatedText]) -> list[dict[str, Any]]:
        rows = evaluate(
            chosen,
            links,
            protocols=["end_to_end"],
            canonical=linker.kb.canonical,
            per_label=False,
        )
        return [figures(row) for row in rows]

    about = {"protocol": protocol, "kb": linker.kb.fingerprint}
    classes = set(linker.model.attrs["inventory"].classes)

    def subset_of(mention: Mention) -> str:
        return SUBSETS[classes.isdisjoint(map(linker.kb.canonical, mention.ids))]

    rows = [about | {"subset": ""} | row for row in found(texts)]
    for subset in SUBSETS:
        part = [
            replace(t, mentions=tuple(m for m in t.mentions if m.ids and subset_of(m) == subset))
            for t in texts
        ]
        rows += [about | {"subset": subset} | r for r in found(part) if r["metric"] == "recall"]
    return rows


def score_given(
    nlp: Language, linker: Any, texts: Sequence[AnnotatedText], name: str
) -> list[dict[str, Any]]:
    """Accuracy for gold mentions, any id of a mention being right."""
    found = evaluate(
        texts,
        list(link_given(nlp, linker, texts)),
        protocols=["gold_any"],
        canonical=linker.kb.canonical,
        max_candidates=linker.cfg["max_candidates"],
        per_label=False,
    )
    about = {"protocol": f"gold_any_{name}", "subset": "", "kb": linker.kb.fingerprint}
    wanted = ("accuracy@1_nil_ignored", "recall@5")
    return [about | figures(row) for row in found if row.metric in wanted]


if __name__ == "__main__":
    typer.run(main)

"""Measure `bioel suggest`: training documents it chooses, and documents chosen at random.

python -m benchmarks.run suggest FOLDER --work FOLDER, with the NCBI Disease corpus, does this for
each seed: train a detector on 20 documents chosen at random, choose 20 more, train again on all of
them, and so on up to 100. Both strategies begin with the same 20. Figures are micro-averaged F1 of
mentions in the development documents after the last update, so that no choice is made on these. The
words and mentions of the training documents show what annotating them takes.

Each training is recorded in the folder --work when it ends; the same command continues after it.
--start trains a pipeline further (a folder, such as the starter's), instead of a new detector.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import StringIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import srsly
import torch
import typer
from confection import Config
from spacy.language import Language
from spacy.training.initialize import init_nlp
from spacy.training.loop import train

from benchmarks.record import Row, question
from spacy_bioel.doc import get_links
from spacy_bioel.evaluation.evaluate import evaluate_links
from spacy_bioel.export.rows import link_texts
from spacy_bioel.export.suggest import choose_texts, link_with_doubts
from spacy_bioel.files import replacing_text
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.loading import load_model
from spacy_bioel.types import AnnotatedText

FILES = {"train": "NCBItrainset_corpus.txt", "dev": "NCBIdevelopset_corpus.txt"}
LABEL = "Disease"  # instead of the corpus's four kinds of disease mentions
CONFIG = Path("training/configs/small.cfg")
STRATEGIES = ("random", "suggest")


@question("suggest", key=("system", "start", "updates", "kb", "documents", "seed"))
def suggest(
    folder: Annotated[Path, typer.Argument(help="Folder with the files of the corpus.")],
    work: Annotated[Path, typer.Option(help="Folder in which finished trainings are recorded.")],
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 3,
    step: Annotated[int, typer.Option(help="Documents chosen at a time.")] = 20,
    most: Annotated[int, typer.Option(help="Documents after the last choice.")] = 100,
    updates: Annotated[int, typer.Option(help="Updates of each training.")] = 200,
    start: Annotated[str, typer.Option(help="Pipeline to train further; default: none.")] = "",
    kb: Annotated[str, typer.Option(help="Knowledge base of the new detector, if any.")] = "",
) -> Iterator[Row]:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    pool, dev = (list(_read(folder / name)) for name in FILES.values())
    about = {"start": Path(start).name or "none", "updates": updates, "kb": kb}
    for seed in range(seeds):
        for strategy in STRATEGIES:
            order = list(range(len(pool)))
            random.Random(seed).shuffle(order)
            chosen = order[:step]
            while True:
                n = len(chosen)
                # The first documents are the same, and so is the pipeline trained on them.
                who = strategy if n > step else "both"
                name = "-".join(map(str, [*about.values(), who, n, seed])).replace("/", "_")
                path = work / f"{name}.json"
                if not path.is_file():
                    nlp = _trained([pool[i] for i in chosen], start, kb, updates, seed)
                    links = [get_links(doc) for doc in nlp.pipe(text.text for text in dev)]
                    record = {"f1": _f1(dev, links), "next": _choose(nlp, pool, chosen, step)}
                    work.mkdir(parents=True, exist_ok=True)
                    with replacing_text(path) as file:
                        file.write(srsly.json_dumps(record))
                record: Any = srsly.read_json(path)
                effort = {
                    "words": sum(len(pool[i].text.split()) for i in chosen),
                    "mentions": sum(len(pool[i].mentions) for i in chosen),
                }
                value = {"metric": "f1", "value": record["f1"], "n": len(dev)}
                yield {"system": strategy, **about, "documents": n, "seed": seed, **effort, **value}
                if n + step > most:
                    break
                chosen += record["next"] if strategy == "suggest" else order[n : n + step]


def _read(path: Path) -> Iterator[AnnotatedText]:
    for text in read_pubtator(path, prefix="MESH"):
        mentions = tuple(replace(mention, label=LABEL) for mention in text.mentions)
        yield replace(text, mentions=mentions, annotates=(LABEL,))


def _trained(
    texts: Sequence[AnnotatedText], start: str, kb: str, updates: int, seed: int
) -> Language:
    """Train a detector with the config `small`, without a linker and without a choice on dev."""
    config = Config().from_disk(CONFIG, interpolate=False)
    config["nlp"]["pipeline"] = ["bioel_mentions"]
    for section in (config["components"], config["initialize"]["components"]):
        del section["bioel_linker"]
    if start:
        config["components"]["bioel_mentions"] = {"source": start}
        config["initialize"]["components"] = {}
    config["training"] |= {"max_steps": updates, "eval_frequency": updates}
    config["training"]["optimizer"]["learn_rate"]["total_steps"] = updates
    with TemporaryDirectory() as folder:
        path = Path(folder) / "train.jsonl"
        write_texts_jsonl(path, texts)
        write_texts_jsonl(few := Path(folder) / "few.jsonl", texts[:1])  # spaCy evaluates on some
        config["paths"] |= {"train": str(path), "dev": str(few), "kb": kb or None}
        config["system"]["seed"] = seed
        nlp = init_nlp(config.interpolate())
        train(nlp, Path(folder), stdout=StringIO(), stderr=StringIO())
        return load_model(str(Path(folder) / "model-last"))


def _choose(nlp: Language, pool: list[AnnotatedText], chosen: list[int], step: int) -> list[int]:
    """Choose documents of the pool as `bioel suggest --annotated` does."""
    left = sorted(set(range(len(pool))).difference(chosen))
    documents = ((pool[i].text, str(i)) for i in left)
    linked = list(link_texts(nlp, documents, link_all=link_with_doubts))
    best_first = choose_texts(linked, [pool[i] for i in chosen])
    return [int(text.id or "") for text in islice(best_first, step)]


def _f1(gold: list[AnnotatedText], links: Any) -> float:
    figures = evaluate_links(gold, links, protocols=["mention"], per_label=False, n_resamples=1)
    return next((round(row.value, 2) for row in figures if row.metric == "f1"), 0.0)

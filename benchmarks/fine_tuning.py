"""Measure training from the starter against training from scratch, by the size of the corpus.

python -m benchmarks.run fine_tuning bionlp_cg_cells --sentences --work FOLDER, with a corpus that
the project has converted, does this for each seed: draw 20, 50, 100, 200 and all training
documents, or ten times as many sentences, and train on them with each system:

starter     the pipeline as it is; not trained
scratch     training/configs/small.cfg, from 200 documents on rescnn.cfg, and with the settings of
            the corpus (training/corpora.yml) for all documents
fine_tuned  training/configs/fine_tune.cfg, from --start, from 200 documents on with 400 updates
kept        the same; labels that the corpus does not annotate are kept, and what the pipeline finds
            of them in the training documents is learned again
kept_alone  the same, without learning it again

A fifth of the drawn documents is not trained on: the checkpoint and the thresholds are chosen on it
(`bioel tune`), so that the development documents are left to measure on. Sentences are joined to
documents of up to 1,000 characters. With --kb, the knowledge base of a corpus with ids, linkers are
trained and measured too (`kb/ncbi_disease`), otherwise only detectors. Pipelines that start from
another are also measured on the first development documents of the corpora --forgotten, with the
labels that they still have: what they have forgotten.

Each training is recorded in the folder --work when it ends; the same command continues after it.
--start is a folder; for the starter, `spacy_bioel.load().to_disk("starter")` writes it.

python -m benchmarks.run tuning CORPUS compares the cross-fitted figures of `bioel tune` with those
on 100 fresh documents, which nothing was trained or chosen on. All are drawn from the training and
development documents.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import StringIO
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
from spacy.util import load_config
from thinc.api import NumpyOps, Ops

from benchmarks.record import NoteOption, Row, figures, question
from benchmarks.starter import script
from benchmarks.texts import dev, python
from spacy_bioel.corpus import read_texts
from spacy_bioel.evaluation.evaluate import evaluate_links
from spacy_bioel.evaluation.protocols import get_protocol
from spacy_bioel.evaluation.run import link_bare_texts, predict_links, score_links
from spacy_bioel.evaluation.tune import tune_pipeline
from spacy_bioel.files import replacing_text
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.loading import find_linker, load_model
from spacy_bioel.settings import DETECTOR, LINKER
from spacy_bioel.types import AnnotatedText

CONFIGS = Path("training") / "configs"
SIZES = ("20", "50", "100", "200", "all")
HUNDREDS = ("200", "all")  # sizes with more updates, as the comments of the configs advise
KEPT = ("kept", "kept_alone")
SENTENCES = 10  # that count as one document
NOTE = (
    "checkpoint and thresholds chosen on a fifth of the documents; settings chosen on dev results"
)
_N_FORGOTTEN = 50


@question(
    "fine_tuning",
    key=("corpus", "system", "start", "size", "seed", "measured", "protocol", "subset", "metric"),
)
def fine_tuning(
    corpus: str,
    work: Annotated[Path, typer.Option(help="Folder in which finished trainings are recorded.")],
    system: Annotated[list[str], typer.Option()] = ["starter", "scratch", "fine_tuned"],  # noqa: B006
    size: Annotated[list[str], typer.Option(help="Training documents.")] = [*SIZES],  # noqa: B006
    seed: Annotated[list[int], typer.Option(help="Of the draw and the training.")] = [0, 1, 2],  # noqa: B006
    start: Annotated[str, typer.Option(help="Pipeline to start from: a folder.")] = "starter",
    kb: Annotated[str, typer.Option(help="Knowledge base to link to: a folder.")] = "",
    sentences: Annotated[
        bool, typer.Option("--sentences", help="The documents of the corpus are sentences.")
    ] = False,
    forgotten: Annotated[
        list[str], typer.Option(help="Corpora of labels that may be forgotten.")
    ] = ["bc5cdr", "nlm_gene"],  # noqa: B006
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Report the recorded trainings only.")
    ] = False,
    note: NoteOption = "",
) -> Iterator[Row]:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.set_flush_denormal(True)  # as training/scripts/train.py does
    NumpyOps.gemm = Ops.gemm  # type: ignore[method-assign]
    remark = "; ".join(filter(None, [NOTE, note]))
    for number in seed:
        for n in size:
            for name in system:
                if name == "starter" and (number, n) != (seed[0], size[0]):
                    continue  # there is only one result
                about = {"corpus": corpus, "start": "" if name == "scratch" else Path(start).name}
                about |= {"size": "" if name == "starter" else n, "system": name}
                path = work / ("-".join([*about.values(), str(number)]) + ".json")
                if not path.is_file():
                    if recorded:
                        continue
                    setting = (about["start"] and start, kb, number, sentences)
                    rows = list(_rows(name, corpus, n, setting, forgotten))
                    work.mkdir(parents=True, exist_ok=True)
                    with replacing_text(path) as file:
                        file.write(srsly.json_dumps(rows))
                rows: Any = srsly.read_json(path)
                yield from (
                    about | {"split": "dev", "seed": number, "note": remark} | r for r in rows
                )


def _rows(
    system: str,
    corpus: str,
    size: str,
    setting: tuple[str, str, int, bool],
    forgotten: Sequence[str],
) -> Iterator[Row]:
    """Train, and yield the figures and the processor seconds of the training."""
    start, kb, seed, sentences = setting
    texts = dev(corpus)
    has_ids = kb != "" and any(mention.ids for text in texts for mention in text.mentions)
    labels = tuple(sorted({m.label for text in texts for m in text.mentions}))
    with TemporaryDirectory() as name:
        folder, trained = Path(name), {}
        if system == "starter":
            nlp = load_model(start)
        else:
            drawn = _draw(corpus, size, seed, sentences=sentences, folder=folder)
            config = _config(system, corpus, size, start=start, kb=kb, links=has_ids)
            config["paths"] |= {s: str(folder / f"{s}.jsonl") for s in ("train", "dev")}
            config["system"]["seed"] = seed
            before = time.process_time()
            nlp = init_nlp(config.interpolate())
            if system == "kept_alone":
                nlp.get_pipe(DETECTOR).taught = {}  # type: ignore[attr-defined]
            train(nlp, folder, stdout=StringIO(), stderr=StringIO())
            seconds = time.process_time() - before
            options = ["--kb", kb] if has_ids else []
            if has_ids:
                python("-m", "spacy_bioel", "kb", "encode", kb, folder / "model-best")
            if system in KEPT:
                options += [option for label in labels for option in ("--annotates", label)]
            python(
                *("-m", "spacy_bioel", "tune", folder / "model-best", folder / "dev.jsonl"),
                *(folder / "tuned", *options),
            )
            nlp = load_model(str(folder / "tuned"))
            trained = {"documents": drawn}
            yield trained | {"metric": "processor seconds", "value": round(seconds, 1)}
        texts = [replace(text, annotates=labels) for text in texts]
        yield from (trained | {"measured": corpus} | row for row in _measure(nlp, texts, has_ids))
        for other in forgotten if system != "scratch" else ():
            few = dev(other)[:_N_FORGOTTEN]
            annotated = {mention.label for text in few for mention in text.mentions}
            kept = annotated.intersection(nlp.get_pipe(DETECTOR).labels)  # type: ignore[attr-defined]
            few = [replace(text, annotates=tuple(sorted(kept))) for text in few]
            for row in _measure(nlp, few, False):
                if row["subset"] in kept:
                    yield trained | {"measured": other} | row


def _draw(corpus: str, size: str, seed: int, *, sentences: bool, folder: Path) -> int:
    """Write FOLDER/{train,dev}.jsonl. RETURNS (int): The number of documents, or sentences."""
    texts = _train_texts(corpus)
    random.Random(seed).shuffle(texts)
    if size != "all":
        texts = texts[: int(size) * (SENTENCES if sentences else 1)]
    n_dev = len(texts) // 5
    for split, part in {"dev": texts[:n_dev], "train": texts[n_dev:]}.items():
        write_texts_jsonl(
            folder / f"{split}.jsonl", script("plain").grouped(part) if sentences else part
        )
    return len(texts)


def _train_texts(corpus: str) -> list[AnnotatedText]:
    return list(read_texts(Path("corpus") / corpus / "train.spacy"))


def _config(system: str, corpus: str, size: str, *, start: str, kb: str, links: bool) -> Config:
    """Return the config of a training, without a linker if there are no ids to link to."""
    if system != "scratch":
        config: Any = load_config(CONFIGS / "fine_tune.cfg")
        config["paths"]["start"] = start
        config["initialize"]["before_init"]["keep"] = system in KEPT
        if size in HUNDREDS:
            config["training"]["max_steps"] = 400
    elif size == "all":
        spec = script("specs").load_spec(corpus)
        config = script("train").merge_config(CONFIGS / "rescnn.cfg", spec)
    else:
        config = load_config(CONFIGS / ("rescnn.cfg" if size in HUNDREDS else "small.cfg"))
    if links:
        config["paths"]["kb"] = kb or None
        return config
    config["nlp"]["pipeline"] = [DETECTOR]
    config["training"]["frozen_components"] = []
    config["training"]["score_weights"] |= {"bioel_link_f": None, "bioel_mention_f": 1.0}
    for section in (config["components"], config["initialize"].get("components", {})):
        section.pop(LINKER, None)
    return config


def _measure(nlp: Language, texts: Sequence[AnnotatedText], has_ids: bool) -> Iterator[Row]:
    """Yield F1, over all labels and by label."""
    linker = find_linker(nlp) if has_ids else None
    canonical = linker.kb.canonical if linker is not None else str
    protocols = ["mention", "end_to_end"] if linker is not None else ["mention"]
    links = list(link_bare_texts(nlp, find_linker(nlp), texts))
    for row in evaluate_links(texts, links, protocols=protocols, canonical=canonical):
        if row.metric == "f1" and row.n:
            yield {"protocol": row.protocol, "subset": row.label, **figures(row)}


@question("tuning", key=("corpus", "system", "documents", "seed", "measured", "protocol"))
def tuning(
    corpus: str,
    updates: Annotated[
        int, typer.Option(help="Of config small; 0: no training, only the names of the KB.")
    ] = 0,
    train_on: Annotated[int, typer.Option(help="Documents to train on.")] = 200,
    documents: Annotated[int, typer.Option(help="Documents to tune on.")] = 100,
    seed: Annotated[list[int], typer.Option(help="Of the draw and the training.")] = [0],  # noqa: B006
) -> Iterator[Row]:
    kb = str(Path("kb") / corpus)
    for number in seed:
        texts = {text.text: text for text in [*_train_texts(corpus), *dev(corpus)]}
        pool = list(texts.values())
        random.Random(number).shuffle(pool)
        fresh, tuned_on, rest = pool[:100], pool[100:][:documents], pool[100 + documents :]
        if updates:
            nlp = _small(corpus, rest[:train_on], kb, updates, number)
        else:
            nlp = load_model(kb)
        report = tune_pipeline(nlp, tuned_on)
        about = {"corpus": corpus, "system": "small" if updates else "names", "updates": updates}
        about |= {"train": train_on * (updates > 0), "documents": documents, "seed": number}
        # A later step has the same figures under the same protocol.
        steps = {step.protocol: step for step in report.tuned if step.metric == "f1"}
        protocols = dict(map(get_protocol, steps))
        on_fresh = score_links(nlp, fresh, predict_links(nlp, fresh, protocols), protocols)
        for protocol, step in steps.items():
            row = about | {"protocol": protocol, "metric": "f1"}
            yield row | {"measured": "fitted", "value": round(step.fitted, 2)}
            if step.cross_fitted is not None:
                yield row | {"measured": "cross-fitted"} | figures(step.cross_fitted)
        for one in on_fresh:
            if one.metric == "f1" and not one.label:
                yield about | {"protocol": one.protocol, "measured": "fresh"} | figures(one)


def _small(
    corpus: str, texts: Sequence[AnnotatedText], kb: str, updates: int, seed: int
) -> Language:
    """Train both pipes with the config `small`, without a choice of the checkpoint."""
    config = _config("scratch", corpus, SIZES[0], start="", kb=kb, links=True)
    with TemporaryDirectory() as name:
        folder = Path(name)
        # spaCy evaluates on `dev`.
        for split, part in {"train": texts, "dev": texts[:1]}.items():
            write_texts_jsonl(folder / f"{split}.jsonl", part)
            config["paths"][split] = str(folder / f"{split}.jsonl")
        config["system"]["seed"] = seed
        config["training"] |= {"max_steps": updates, "eval_frequency": updates}
        config["training"]["optimizer"]["learn_rate"]["total_steps"] = updates
        train(init_nlp(config.interpolate()), folder, stdout=StringIO(), stderr=StringIO())
        nlp = load_model(str(folder / "model-last"))
        linker = find_linker(nlp)
        assert linker is not None
        linker.encode_kb(kb)
        linker.set_kb(kb)
    return nlp

"""Compare closed and open vocabulary of multi-task linkers.

python -m benchmarks.run multitask CORPUS --model FOLDER --system NAME records the development
figures of a pipeline that was trained with training/configs/multitask.cfg or an extension of it:

mention       borders and types, entity typing in the paper; mention_unlabelled: borders
closed        ids too, with the closed vocabulary only, without evidence from strings
closed_nil    the same with a NIL threshold, tuned on the documents of the other folds
open_alone    the same with the open vocabulary only
open          the complete tuned pipeline, with evidence from strings
gold_any_closed, gold_any_open_alone, gold_any_open    the same for given mentions, any id right

Subsets show the recall of gold mentions whose concepts are, or are not, in training mentions.

python -m benchmarks.run variants CORPUS trains the systems of the paper with equal settings on the
first layers of a transformer, and records mention, mention_unlabelled and closed.
"""

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import spacy
import typer
from confection import Config
from spacy.language import Language
from spacy.util import minibatch
from transformers import AutoModel, AutoTokenizer

from benchmarks.record import Row, SeedOption, question
from benchmarks.texts import KEY, dev, only, python, scored
from spacy_bioel.doc import get_links
from spacy_bioel.evaluation.run import link_bare_texts, link_gold_mentions
from spacy_bioel.evaluation.tune import Prepared, cross_fit, nil_step
from spacy_bioel.mentions.model import decode_bilou
from spacy_bioel.pipe import with_token_vectors
from spacy_bioel.plugins.contextual import multitask as network
from spacy_bioel.plugins.contextual.multitask import compute_from_states
from spacy_bioel.settings import EvidenceSettings
from spacy_bioel.types import AnnotatedText, Link, Mention

ALONE = dict.fromkeys(EvidenceSettings.model_fields, False) | {"contextual": True}

_F1_METRICS = ("precision", "recall", "f1")
_ALL = {"tasks": ["mentions", "types", "links"]}
_FLAT, _LEVELS = {"hidden": 0, "one_task": False}, {"hidden": 128, "one_task": True}
_TRANSFORMER, _LAYERS = "sentence-transformers/all-MiniLM-L6-v2", 3  # its first layers
# System -> settings of its networks; of two, the first finds mentions and the second links them.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "pt_single": [{"per_token": True, "tasks": ["links"]} | _FLAT],
    "pt_multi": [{"per_token": True} | _ALL | _FLAT],
    "pt_hierarchical": [{"per_token": True} | _ALL | _LEVELS],
    "pe_single": [{"tasks": ["mentions"]} | _FLAT, {"tasks": ["links"]} | _FLAT],
    "pe_multi": [_ALL | _FLAT],
    "pe_hierarchical": [_ALL | _LEVELS],
    # With levels, but each update learns the sum of all tasks.
    "pt_levels": [{"per_token": True} | _ALL | _LEVELS | {"one_task": False}],
    "pe_levels": [_ALL | _LEVELS | {"one_task": False}],
}


@question("multitask", key=KEY)
def multitask(
    corpus: str,
    model: Annotated[Path, typer.Option(help="A trained pipeline.")],
    system: Annotated[str, typer.Option(help="Name in the results.")] = "multitask",
    seed: SeedOption = 0,
) -> Iterator[Row]:
    texts, nlp = dev(corpus), spacy.load(model)
    linker: Any = nlp.get_pipe("bioel_linker")
    about = {"system": system, "corpus": corpus, "split": "dev", "seed": seed}
    if linker.model.attrs["vocabulary"] == "open":
        for name in ("open", "open_alone"):
            links = list(link_bare_texts(nlp, linker, texts))
            yield from (about | row for row in _score(linker, texts, links, name))
            yield from (about | row for row in _score_given(nlp, linker, texts, name))
            alone(linker)
    yield from (about | row for row in _measure_closed(nlp, linker, texts))


@question("multitask", key=KEY)
def variants(
    corpus: str,
    variant: Annotated[
        list[str] | None, typer.Option(help="One of VARIANTS; default: all.")
    ] = None,
    seed: SeedOption = 0,
    updates: Annotated[int, typer.Option()] = 300,
    documents: Annotated[int, typer.Option(help="Documents of an update.")] = 4,
) -> Iterator[Row]:
    texts = dev(corpus)
    about = {"trunk": _TRANSFORMER, "layers": _LAYERS, "updates": updates, "documents": documents}
    about |= {"corpus": corpus, "split": "dev", "seed": seed}
    with TemporaryDirectory() as folder:
        sys.path.append("training/scripts")  # not a package
        source = import_module("train").find_transformer(_TRANSFORMER)
        trunk = Path(folder) / "trunk"
        AutoModel.from_pretrained(source, num_hidden_layers=_LAYERS).save_pretrained(trunk)
        AutoTokenizer.from_pretrained(source).save_pretrained(trunk)
        for name in variant or VARIANTS:
            pipelines = []
            for i, settings in enumerate(VARIANTS[name]):
                config = _config(trunk, settings, updates=updates, documents=documents)
                path, out = Path(folder) / f"{name}_{i}.cfg", Path(folder) / f"{name}_{i}"
                config.to_disk(path)
                python("training/scripts/train.py", corpus, path, out, "--seed", seed)
                pipelines.append(spacy.load(out / "model-last"))
            for row in _measure_variant(pipelines, texts):
                yield {"system": name} | about | row


def _config(trunk: Path, settings: dict[str, Any], *, updates: int, documents: int) -> Config:
    finds = settings.get("per_token") or "mentions" in settings["tasks"]
    linker = {
        "mentions": "model" if finds else "spans",
        "model": {"vocabulary": "closed"} | settings,
    }
    training = {
        "max_steps": updates,
        "eval_frequency": updates,
        "batcher": {"size": documents},
        "optimizer": {"learn_rate": {"warmup_steps": updates // 10, "total_steps": updates}},
    }
    return Config(
        {
            "extends": {"path": str(Path("training/configs/multitask.cfg").resolve())},
            "paths": {"transformer": str(trunk)},
            "components": {"bioel_linker": linker},
            "training": training,
            "corpora": {"dev": {"limit": 10}},  # not used to choose a model
        }
    )


def _measure_variant(pipelines: list[Language], texts: Sequence[AnnotatedText]) -> Iterator[Row]:
    docs: Any = (text.text for text in texts)
    for nlp in pipelines:
        linker: Any = nlp.get_pipe("bioel_linker")
        alone(linker)
        docs = nlp.pipe(docs, batch_size=32)
    links = list(map(get_links, docs))
    settings = pipelines[-1].get_pipe("bioel_linker").model.attrs["settings"]
    has_types = settings["per_token"] or "types" in settings["tasks"]
    protocols = ("mention", "mention_unlabelled") if has_types else ("mention_unlabelled",)
    yield from scored(texts, links, None, dict.fromkeys(protocols, _F1_METRICS))
    yield from _score(linker, texts, links, "closed")


def _measure_closed(nlp: Language, linker: Any, texts: Sequence[AnnotatedText]) -> Iterator[Row]:
    """Yield the figures of the closed vocabulary, which links to the most probable class."""
    alone(linker)
    linker.model.attrs["vocabulary"] = "closed"
    linker.rescoring = None
    links = list(link_bare_texts(nlp, linker, texts))
    protocols = ("mention", "mention_unlabelled")
    yield from scored(texts, links, None, dict.fromkeys(protocols, _F1_METRICS))
    yield from _score(linker, texts, links, "closed")
    if "mentions" in linker.model.attrs["settings"]["tasks"]:
        n = _repaired_tokens(nlp, linker, texts)
        yield {"protocol": "mention", "subset": "", "metric": "repaired_tokens", "value": n}
    yield from _score_given(nlp, linker, texts, "closed")
    # A NIL threshold helps: most concepts are not in the closed vocabulary.
    prepared = Prepared(nlp, texts)
    figure = cross_fit(prepared, [nil_step(prepared)])["end_to_end", "f1"]
    about = {"protocol": "closed_nil", "subset": "", "kb": linker.kb.fingerprint}
    n = sum(len(m.ids) > 0 for text in texts for m in text.mentions)
    yield about | {"metric": "f1", "value": round(figure.value, 2), "n": n}


def _repaired_tokens(nlp: Language, linker: Any, texts: Sequence[AnnotatedText]) -> int:
    """Count tokens whose most probable tag was replaced, because it is illegal in the sequence."""
    n = 0
    for docs in minibatch(with_token_vectors(nlp, map(nlp.make_doc, (t.text for t in texts))), 32):
        lengths = np.array([len(doc) for doc in docs])
        states = network.read_documents(linker.model, docs)
        n += int(
            decode_bilou(compute_from_states(linker.model, "tag_logits", states), lengths)[2].sum()
        )
    return n


def alone(linker: Any) -> None:
    """Let a linker use contextual scores only, and link every mention."""
    linker.cfg["evidence"] = dict(ALONE)
    linker.cfg["nil_threshold"] = 0.0


def _score(
    linker: Any, texts: Sequence[AnnotatedText], links: Sequence[Sequence[Link]], name: str
) -> Iterator[Row]:
    """Yield strict end-to-end figures, and recall for concepts seen and unseen in training."""
    about = {"protocol": name, "kb": linker.kb.fingerprint}
    classes = set(linker.model.attrs["inventory"].classes)
    wanted = {"end_to_end": _F1_METRICS}
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
    """Yield the accuracy on gold mentions, with any gold id right."""
    about = {"protocol": f"gold_any_{name}", "kb": linker.kb.fingerprint}
    wanted = {"gold_any": ("accuracy@1_nil_ignored", "recall@5")}
    links = list(link_gold_mentions(nlp, linker, texts))
    yield from (row | about for row in scored(texts, links, linker.kb, wanted))

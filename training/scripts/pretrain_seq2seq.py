"""Pre-train an encoder-decoder on the synonyms and definitions of knowledge bases.

Writes a Hugging Face folder for `path` of spacy-bioel.Seq2Seq.v1. To resume a run that was stopped,
repeat the command: the state is in OUT-checkpoint.
"""

from __future__ import annotations

import logging
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from pretraining import Run
from spacy.util import load_config
from synonyms import Synonyms, by_concept, join_names, names_of_kb

from spacy_bioel.cli.console import GpuId
from spacy_bioel.files import replacing_folder
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.contextual.generative import (
    MarkedMention,
    MarkedPieces,
    marked_pieces,
    new_backbone,
    new_vocabulary,
)
from spacy_bioel.plugins.contextual.networks import Seq2Seq
from spacy_bioel.text.normalize import normalize_name

_LOGGER = logging.getLogger("pretrain")
_BATCHES_PER_DRAW = 8  # drawn together and sorted by length, which saves padding
_MAX_NAMES = 3
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Examples:
    """Sampler of pairs of input and target, deterministic for a seed.

    names (Synonyms): Names of all sources.
    definitions (dict): Normalised definition by concept number.
    settings (dict): The section [pretraining] of the config.
    """

    def __init__(self, names: Synonyms, definitions: dict[int, str], settings: dict) -> None:
        self.names, self.definitions, self.settings = names.names, definitions, settings
        self.order, self.starts = by_concept(np.array(names.concepts, dtype=np.int64))
        self.counts = np.diff(self.starts)
        weights = np.array(settings["weights"])
        weights = weights[np.minimum(np.array(names.sources), len(weights) - 1)]
        weights = np.sqrt(self.counts) * weights
        self.cumulated = np.cumsum(weights / weights.sum())
        self.random = np.random.default_rng(settings["seed"])

    def draw(self, n: int) -> list[tuple[MarkedMention, str]]:
        """Draw mentions in made-up contexts, each with the name to generate."""
        concepts = np.searchsorted(self.cumulated[:-1], self.random.random(n))
        return [self._example(int(concept)) for concept in concepts]

    def _example(self, concept: int) -> tuple[MarkedMention, str]:
        rows = self.order[self.starts[concept] : self.starts[concept + 1]]
        names = [self.names[row] for row in self.random.permutation(rows)[: _MAX_NAMES + 2]]
        target, choice = names[0], self.random.random()
        mention = names[1] if len(names) > 1 else misspell(target, self.random)
        if choice < self.settings["same"]:
            mention = target
        elif choice < self.settings["same"] + self.settings["misspelt"]:
            mention = misspell(target, self.random)
        if self.random.random() >= self.settings["context"]:
            return MarkedMention("", mention, ""), target
        return self._in_context(mention, names[2:], self.definitions.get(concept, "")), target

    def _in_context(self, mention: str, others: list[str], definition: str) -> MarkedMention:
        is_first = self.random.random() < 0.5
        if definition and (not others or self.random.random() < 0.5):
            prefix, suffix = (" is defined as ", "") if is_first else ("", " defines ")
            text = definition
        else:
            prefix, suffix = (" also known as ", "") if is_first else ("", " also called ")
            text = " or ".join(others)
        if not text:
            return MarkedMention("", mention, "is one" if is_first else "")
        if is_first:
            return MarkedMention("", mention, f"{prefix}{text}".strip())
        return MarkedMention(f"{text}{suffix}".strip(), mention, "")


def misspell(name: str, random: np.random.Generator) -> str:
    """Return a variant of a name: plural, a word dropped or moved, or a letter changed."""
    edit = int(random.integers(6))
    words = name.split()
    index = int(random.integers(len(words))) if words else 0
    if edit == 0 and words:
        words[-1] = words[-1].removesuffix("s") if words[-1].endswith("s") else words[-1] + "s"
    elif edit == 1 and len(words) > 1:
        del words[index]
    elif edit == 2 and len(words) > 1:
        other = int(random.integers(len(words)))
        words[index], words[other] = words[other], words[index]
    elif words:
        word = words[index]
        place = int(random.integers(len(word) + 1))
        letter = _LETTERS[random.integers(len(_LETTERS))]
        n_dropped = int(edit < 5)  # 3: replace a letter, 4: drop one, 5: add one
        words[index] = word[:place] + (letter if edit != 4 else "") + word[place + n_dropped :]
    return " ".join(filter(None, words)) or name


class Pretraining(Run):
    """Pre-training that generates names for mentions in made-up contexts."""

    def __init__(
        self, network: Seq2Seq, pieces: MarkedPieces, examples: Examples, settings: dict
    ) -> None:
        super().__init__(network, settings, random=examples.random, betas=(0.9, 0.98))
        self.pieces, self.examples = pieces, examples

    def run(self, checkpoint: Path) -> None:
        self.resume(checkpoint)
        losses: list[float] = []
        self.network.train()
        n = self.settings["batch"]
        while self.step < self.settings["steps"]:
            drawn = self.examples.draw(n * _BATCHES_PER_DRAW)
            drawn.sort(key=lambda example: len(" ".join([*example[0], example[1]])))
            for part in self.random.permutation(_BATCHES_PER_DRAW):
                examples = drawn[part * n : (part + 1) * n]
                losses.append(self.take_step(partial(self._loss, examples)))
            if self.step % (4 * _BATCHES_PER_DRAW) == 0:
                _LOGGER.info("%6d  loss %.3f", self.step, np.mean(losses))
                losses = []
            if self.step % self.settings["save_every"] < _BATCHES_PER_DRAW:
                self.save(checkpoint)

    def _loss(self, examples: list[tuple[MarkedMention, str]]) -> torch.Tensor:
        mentions, names = zip(*examples, strict=True)
        sources = self.pieces.sources(mentions)
        targets, prompts = self.pieces.targets(mentions, names)
        arrays = (*sources, *targets, prompts)
        return self.network(*(torch.from_numpy(a).to(self.device) for a in arrays)).mean()


def read_definitions(kbs: list[KnowledgeBase], names: Synonyms) -> dict[int, str]:
    """Return normalised definitions by the number of the joined concept."""
    numbers = dict(zip(names.names, names.concepts, strict=True))
    definitions: dict[int, str] = {}
    for kb in kbs:
        for row in range(len(kb)):
            concept = numbers.get(normalize_name(kb.preferred_name(row)))
            text = normalize_name(kb.definition(row)) if concept is not None else ""
            if text and concept is not None:
                definitions.setdefault(concept, text)
    return definitions


def main(
    out: Path,
    kb: Annotated[list[Path], typer.Option(help="Knowledge bases, one option each.")],
    config: Annotated[Path, typer.Option()] = Path("training/configs/pretrain_seq2seq.cfg"),
    gpu_id: GpuId = -1,
) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    settings = load_config(config)
    chosen = settings["pretraining"]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    torch.manual_seed(chosen["seed"])
    opened = [KnowledgeBase.open(path) for path in kb]
    names = join_names([names_of_kb(knowledge_base) for knowledge_base in opened])
    definitions = read_definitions(opened, names)
    n_concepts, n_defined = len(names.sources), len(definitions)
    _LOGGER.info("%d names of %d concepts, %d defined", len(names.names), n_concepts, n_defined)
    tokenizer = new_vocabulary(
        names.names, list(definitions.values()), size=settings["vocabulary"]["size"]
    )
    backbone = new_backbone(tokenizer, **settings["network"])
    # Examples never repeat, so dropout, which is slow on a CPU, would not prevent overfitting.
    dropout, backbone.config.dropout = backbone.config.dropout, 0.0
    for module in backbone.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    pieces = marked_pieces(tokenizer, backbone.config, max_pieces=chosen["max_pieces"], prompt=True)
    network = Seq2Seq(
        backbone, smoothing=chosen["smoothing"], mixed_precision=chosen["mixed_precision"]
    )
    run = Pretraining(network, pieces, Examples(names, definitions, chosen), chosen)
    checkpoint = out.with_name(f"{out.name}-checkpoint")
    run.run(checkpoint)
    backbone.config.dropout = dropout
    with replacing_folder(out) as folder:
        backbone.to("cpu").save_pretrained(folder)
        tokenizer.save(str(folder / "tokenizer.json"))
    shutil.rmtree(checkpoint, ignore_errors=True)
    _LOGGER.info("Wrote %s", out)


if __name__ == "__main__":
    typer.run(main)

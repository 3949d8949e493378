"""Tune and evaluate the pipeline that a training started from, with the labels and knowledge base
of the trained one, for its model card. Training from scratch starts from none, and is left alone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.util import load_config

from spacy_bioel.cli.console import show_error
from spacy_bioel.errors import BioelError
from spacy_bioel.files import scratch_folder
from spacy_bioel.loading import load_model
from spacy_bioel.plugins.evaluation.fine_tuning import STARTS
from spacy_bioel.settings import DETECTOR, LINKER

_PROTOCOLS = ("mention", "end_to_end", "gold")


def main(
    corpus: str,
    seed: Annotated[int, typer.Option()] = 0,
    gpu_id: Annotated[int, typer.Option()] = -1,
) -> None:
    """Read models/CORPUS; write models/CORPUS/as_it_is and metrics/CORPUS/as_it_is.json."""
    models, scores = Path("models") / corpus, Path("metrics") / corpus / "as_it_is.json"
    trained = load_model(str(models / "model-best"))
    labels = trained.meta.get("bioel", {}).get(STARTS)
    scores.unlink(missing_ok=True)
    if not labels:
        return
    nlp = load_model(load_config(models / "config.cfg")["paths"]["start"])
    detector: Any = nlp.get_pipe(DETECTOR)
    linker: Any = nlp.get_pipe(LINKER)
    of_trained: Any = trained.get_pipe(LINKER)
    detector.change_labels(labels)
    linker.cfg |= {key: of_trained.cfg[key] for key in ("kb", "label_types")}
    if isinstance(linker.cfg["kb"], str):
        linker.cfg["kb"] = f"kb/{corpus}"  # which has vectors
    linker.cfg["include_kb"] = False
    dev, tuned = f"corpus/{corpus}/dev.jsonl", models / "as_it_is"
    options = ["--seed", seed, "--json", scores]
    for protocol in _PROTOCOLS:
        options += ["--protocol", protocol]
    with scratch_folder(models / "renamed") as folder:
        nlp.to_disk(folder)
        for arguments in (["tune", folder, dev, tuned], ["evaluate", tuned, dev, *options]):
            arguments += ["--gpu-id", gpu_id]
            command = [sys.executable, "-m", "spacy_bioel", *map(str, arguments)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    try:
        typer.run(main)
    except BioelError as error:
        show_error(str(error))
        sys.exit(2)

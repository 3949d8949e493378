"""`bioel train`: train a pipeline further, with labels of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from typer import Argument

from spacy_bioel.cli import console
from spacy_bioel.cli.evaluate import check_out
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import replacing_folder, scratch_folder


@console.expand_options
def train_command(
    model: Annotated[str, Argument(help="Trained pipeline; starter: that of the package.")],
    train: Annotated[Path, Argument(help="Training documents, as for `bioel convert`.")],
    dev: Annotated[Path, Argument(help="Development documents, to choose the best pipeline.")],
    out: Annotated[Path, Argument(help="Folder for the pipeline; a pipeline there is replaced.")],
    options: console.GoldPlace,
    kb: console.OtherKb = None,
    format: console.Format = None,
    prefix: console.Prefix = "",
    code: console.Code = None,
) -> None:
    """Train a pipeline further on your documents, and keep the labels that these lack.

    Labels that MODEL has, or finds under another name, are trained further; others are learned from
    your documents. Names in them are added to the alias table; the name encoder stays as it is.

    Example: `bioel train starter train.jsonl dev.jsonl models/mine --kb Anatomy=kb/uberon`
    """
    from spacy.training.initialize import init_nlp
    from spacy.training.loop import train as train_pipeline
    from spacy.util import load_config

    from spacy_bioel.kb.bundled import ASSETS_FOLDER
    from spacy_bioel.loading import config_errors, load_model
    from spacy_bioel.models.torch_io import require_torch

    require_torch()
    check_out(out, {"MODEL": model, "TRAIN": train, "DEV": dev, "the knowledge base": kb})
    nlp = load_model(model)
    if not {"bioel_mentions", "bioel_linker"}.issubset(nlp.pipe_names):
        pipes = ", ".join(nlp.pipe_names)
        raise BioelError(Errors.B574.format(model=model, pipes=pipes or "none"))
    config: Any = load_config(ASSETS_FOLDER / "fine_tune.cfg")
    config["paths"] |= {"train": str(train), "dev": str(dev), "start": model, "kb": kb}
    for reader in config["corpora"].values():
        reader |= {"format": format, "prefix": prefix, "spans_key": options.key()}
    config["initialize"]["before_init"]["keep"] = True
    with scratch_folder(out.with_name(f"{out.name}.training")) as folder:
        if nlp.path is None:  # the starter
            nlp.to_disk(folder / "start")
            config["paths"]["start"] = str(folder / "start")
        with config_errors(model):
            nlp = init_nlp(config)
        nlp.config["paths"]["start"] = model
        # Without the lines about the temporary folder.
        write = lambda text: str(folder) in text or sys.stdout.write(text)  # noqa: E731
        table: Any = SimpleNamespace(write=write, flush=sys.stdout.flush)
        train_pipeline(nlp, folder, stdout=table)
        with replacing_folder(out) as fresh:
            fresh.rmdir()
            (folder / "model-best").rename(fresh)
    console.show_note(f"The best pipeline -> {out}")

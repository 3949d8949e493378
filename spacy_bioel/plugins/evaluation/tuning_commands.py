"""`bioel train`, `bioel tune` and `bioel quantize`.

`train` trains a pipeline further, with your own labels. `tune` chooses a pipeline's weights and
thresholds on development documents, and `quantize` rounds its weights.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from spacy_bioel import __version__
from spacy_bioel.cli import console
from spacy_bioel.errors import BioelError
from spacy_bioel.files import replacing_folder, scratch_folder
from spacy_bioel.kb.folder import label_and_folder
from spacy_bioel.plugins.evaluation.corpora import GoldOptions
from spacy_bioel.plugins.evaluation.errors import EvaluationErrors

if TYPE_CHECKING:
    from spacy.language import Language


_Model = Annotated[str, Argument(help="Trained pipeline (folder or package name).")]
_Dev = Annotated[Path, Argument(help="Development documents, as for `bioel evaluate`.")]
_Out = Annotated[Path, Argument(help="Output folder; any pipeline in it is replaced.")]


@console.expand_options
def train_command(
    model: Annotated[str, Argument(help="Trained pipeline; starter: the bundled one.")],
    train: Annotated[Path, Argument(help="Training documents, as for `bioel convert`.")],
    dev: Annotated[Path, Argument(help="Development documents for choosing the best pipeline.")],
    out: _Out,
    options: console.GoldPlace,
    kb: console.OtherKb = None,
    format: console.Format = None,
    prefix: console.Prefix = "",
    code: console.Code = None,
) -> None:
    """Train a pipeline further on your documents, keeping labels that do not occur in them.

    Labels that MODEL has, perhaps under another name, are trained further; new labels are learned
    from your documents. Mentions are added to the alias table; the name encoder is not trained.

    Example: `bioel train starter train.jsonl dev.jsonl models/mine --kb Anatomy=kb/uberon`
    """
    from spacy.training.initialize import init_nlp
    from spacy.training.loop import train as train_pipeline
    from spacy.util import load_config

    from spacy_bioel.loading import config_errors, load_model
    from spacy_bioel.models.torch_io import require_torch

    require_torch()
    check_out(out, {"MODEL": model, "TRAIN": train, "DEV": dev, "the knowledge base": kb})
    nlp = load_model(model)
    if not {"bioel_mentions", "bioel_linker"}.issubset(nlp.pipe_names):
        pipes = ", ".join(nlp.pipe_names)
        raise BioelError(EvaluationErrors.B574.format(model=model, pipes=pipes or "none"))
    config: Any = load_config(Path(__file__).with_name("assets") / "fine_tune.cfg")
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
        # Hide lines about the temporary folder.
        write = lambda text: str(folder) in text or sys.stdout.write(text)  # noqa: E731
        table: Any = SimpleNamespace(write=write, flush=sys.stdout.flush)
        train_pipeline(nlp, folder, stdout=table)
        with replacing_folder(out) as fresh:
            fresh.rmdir()
            (folder / "model-best").rename(fresh)
    console.show_note(f"The best pipeline -> {out}")


@console.expand_options
def tune_command(
    model: _Model,
    dev: _Dev,
    out: _Out,
    options: GoldOptions,
    kb: console.OtherKb = None,
    code: console.Code = None,
    gpu_id: console.GpuId = -1,
    json_file: console.Json = None,
) -> None:
    """Tune a pipeline on development documents and save it with its knowledge base.

    The command fits the weights of the linker's evidence. It then chooses the detector's threshold,
    document smoothing and overlap by mention F1, and the NIL threshold by end-to-end F1, as `bioel
    evaluate` reports them. Each figure is reported twice: fitted, on the documents used for the
    choice; and cross-fitted, on each fifth of the documents after choosing everything again on the
    other four fifths. Both are also written to OUT/meta.json. OUT must not be the folder of MODEL.

    Example: `bioel tune training/model-best dev.spacy tuned`
    """
    from spacy_bioel.loading import find_detector
    from spacy_bioel.plugins.evaluation.gold import load_with_mapped_gold
    from spacy_bioel.plugins.evaluation.tune import tune_pipeline

    console.check_distinct([dev, code], [json_file])
    check_out(out, {"MODEL": model, "DEV": dev, "the knowledge base": kb})
    nlp, texts = load_with_mapped_gold(model, dev, options, kb=kb)
    if find_detector(nlp) is None and not any(m.ids for text in texts for m in text.mentions):
        raise BioelError(EvaluationErrors.B333.format(path=dev))
    report = tune_pipeline(nlp, texts, track=console.track)
    require_extra(nlp)
    with replacing_folder(out) as folder:
        nlp.to_disk(folder)
    if console.write_json(json_file, report.to_json()):
        rows = [
            (
                step.what,
                ", ".join(f"{name} {value}" for name, value in step.chosen.items()),
                f"{step.protocol} {step.metric}",
                f"{step.fitted:.2f}",
                f"{x.value:.2f} ({x.low:.1f}-{x.high:.1f})" if (x := step.cross_fitted) else "–",
            )
            for step in report.tuned
        ]
        columns = ("pipe", "chosen", "measured", "fitted", "cross-fitted (95 % interval)")
        console.show_table(columns, rows)
        for remark in report.remarks:
            console.show_note(remark)
        _show_source(report.documents, report.mentions, out)


@console.expand_options
def quantize_command(
    model: _Model,
    dev: _Dev,
    out: _Out,
    options: GoldOptions,
    kb: console.OtherKb = None,
    code: console.Code = None,
    json_file: console.Json = None,
) -> None:
    """Quantise a pipeline's detector, so that it finds the same mentions on every processor.

    The weights become integers from -127 to 127, with a scale for each row. They take up a quarter
    of the disk space and are multiplied faster. F1 on development documents is measured before and
    after. If it falls by more than 0.2 points, nothing is written. Further training converts the
    weights back to floats.

    Example: `bioel quantize tuned dev.spacy quantised`
    """
    from spacy_bioel.plugins.evaluation.gold import load_with_mapped_gold
    from spacy_bioel.plugins.evaluation.run import quantize_pipeline

    console.check_distinct([dev, code], [json_file])
    check_out(out, {"MODEL": model, "DEV": dev, "the knowledge base": kb})
    nlp, texts = load_with_mapped_gold(model, dev, options, kb=kb)
    before, after = quantize_pipeline(nlp, texts, track=console.track)
    with replacing_folder(out) as folder:
        nlp.to_disk(folder)
    n = {"documents": len(texts), "mentions": sum(len(text.mentions) for text in texts)}
    if console.write_json(json_file, {**n, "before": before, "after": after}):
        rows = [(name, f"{f1:.2f}", f"{after[name]:.2f}") for name, f1 in before.items()]
        console.show_table(("protocol", "F1 before", "after"), rows)
        _show_source(n["documents"], n["mentions"], out)


def _show_source(documents: int, mentions: int, out: Path) -> None:
    console.show_note(f"{mentions:,} mentions in {documents:,} documents -> {out}")


def check_out(out: Path, inputs: dict[str, str | Path | None]) -> None:
    """Check that the output folder is new, empty or a pipeline, and contains none of the inputs.

    inputs (dict): Input paths, or "LABEL=PATH", by the names that messages use for them.
    RAISES BioelError: [B230] if an input would be replaced, [B231] if the folder is not a pipeline.
    """
    target = out.resolve()
    for input_name, value in inputs.items():
        path = Path(label_and_folder(str(value))[1])
        if value is None or not path.exists():
            continue
        source = path.resolve()
        if target == source or target in source.parents or source in target.parents:
            raise BioelError(EvaluationErrors.B230.format(out=out, what=input_name, path=path))
    is_pipeline = all((out / name).is_file() for name in ("config.cfg", "meta.json"))
    is_empty = out.is_dir() and not any(out.iterdir())
    if out.exists() and not is_pipeline and not is_empty:
        raise BioelError(EvaluationErrors.B231.format(out=out))


def require_extra(nlp: Language) -> None:
    """Add to a pipeline's requirements the extra that its networks need."""
    from spacy.util import get_minor_version_range

    from spacy_bioel.models.torch_io import needs_torch

    models: list[Any] = [getattr(pipe, "model", None) for _, pipe in nlp.pipeline]
    # Some pipes have no thinc model.
    nodes = [node for model in models if hasattr(model, "walk") for node in model.walk()]
    extra = next((node.attrs["extra"] for node in nodes if "extra" in node.attrs), "train")
    if extra != "train" or any(needs_torch(node) for node in nodes):
        # `spacy package` copies the requirements into the wheel.
        nlp.meta["requirements"] = [f"spacy-bioel[{extra}]{get_minor_version_range(__version__)}"]

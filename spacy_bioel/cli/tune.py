"""`bioel tune`: choose weights and thresholds of a pipeline on development documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from spacy_bioel import __version__
from spacy_bioel.cli import console, options
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import replacing_folder

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.evaluation.tune import Report


def tune(
    model: Annotated[str, Argument(help="Trained pipeline, by folder or package name.")],
    dev: Annotated[
        Path, Argument(help="Gold documents for the choice, in any format of `bioel evaluate`.")
    ],
    out: Annotated[
        Path, Argument(help="Folder of the tuned pipeline; a pipeline there is replaced.")
    ],
    kb: Annotated[
        Path | None, Option(help="Link against this knowledge base, and save it with the pipeline.")
    ] = None,
    format: options.Format = None,
    prefix: options.Prefixes = None,
    label: options.Label = None,
    annotates: options.Annotates = None,
    code: options.Code = None,
    json_file: options.Json = None,
) -> None:
    """Tune a pipeline on development documents and save it with its knowledge base.

    Fits the weights of the linker's evidence, then chooses the detector's threshold, consistency
    and overlap by mention F1, then the NIL threshold by end-to-end F1, as `bioel evaluate` reports
    them. Each figure is given twice: fitted, on the documents used for the choice, and
    cross-fitted, with each document measured under the choice of the other folds. Both are also
    written to `meta.json` of OUT. OUT must not be the folder of MODEL.
    """
    from spacy_bioel.cli.models import find_detector, load_with_mapped_gold
    from spacy_bioel.evaluation.tune import tune as run

    check_out(out, {"MODEL": Path(model), "DEV": dev, "the knowledge base": kb})
    nlp, texts = load_with_mapped_gold(
        model, dev, kb=kb, format=format, prefix=prefix, label=label, annotates=annotates
    )
    if find_detector(nlp) is None and not any(m.ids for text in texts for m in text.mentions):
        raise BioelError(Errors.B333.format(path=dev))
    report = run(nlp, texts, progress=console.progress_bar)
    require_extra(nlp)
    with replacing_folder(out) as folder:
        nlp.to_disk(folder)
    if console.write_json(json_file, report.to_json()):
        _show(report, out)


def check_out(out: Path, inputs: dict[str, Path | None]) -> None:
    """Check that the output folder replaces neither an input nor anything but a pipeline.

    inputs (dict[str, Path | None]): Paths of the inputs by their names in messages.
    RAISES BioelError: [B230] an input would be replaced, [B231] the folder is not a pipeline.
    """
    target = out.resolve()
    for what, path in inputs.items():
        if path is None or not path.exists():
            continue
        source = path.resolve()
        if target == source or target in source.parents or source in target.parents:
            raise BioelError(Errors.B230.format(out=out, what=what, path=path))
    is_pipeline = all((out / name).is_file() for name in ("config.cfg", "meta.json"))
    is_empty = out.is_dir() and not any(out.iterdir())
    if out.exists() and not is_pipeline and not is_empty:
        raise BioelError(Errors.B231.format(out=out))


def require_extra(nlp: Language) -> None:
    """Add the extra that the networks of a pipeline need to its requirements, if they need one."""
    from spacy.util import get_minor_version_range

    from spacy_bioel.models.torch_io import needs_torch

    models: list[Any] = [getattr(pipe, "model", None) for _, pipe in nlp.pipeline]
    # A model of thinc; some pipes have none.
    nodes = [node for model in models if hasattr(model, "walk") for node in model.walk()]
    extra = next((node.attrs["extra"] for node in nodes if "extra" in node.attrs), "train")
    if extra != "train" or any(needs_torch(node) for node in nodes):
        # `spacy package` copies the requirements into the wheel.
        versions = get_minor_version_range(__version__)
        nlp.meta["requirements"] = [f"spacy-bioel[{extra}]{versions}"]


def _show(report: Report, out: Path) -> None:
    rows = [
        (
            one.what,
            ", ".join(f"{name} {value}" for name, value in one.chosen.items()),
            f"{one.protocol} {one.metric}",
            f"{one.fitted:.2f}",
            "–" if one.cross_fitted is None else f"{one.cross_fitted:.2f}",
        )
        for one in report.tuned
    ]
    console.show_table(("pipe", "chosen", "measured", "fitted", "cross-fitted"), rows)
    for remark in report.remarks:
        console.show_note(remark)
    console.show_note(f"{report.mentions:,} mentions of {report.documents:,} documents -> {out}")

"""`bioel evaluate`: evaluate a pipeline on a gold corpus by named protocols; `bioel tune`: choose
its weights and thresholds on development documents.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from spacy_bioel import __version__
from spacy_bioel.cli import console
from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.evaluation.protocols import (
    ALIASES,
    KINDS,
    MARKS,
    PAIRING,
    PROTOCOLS,
    get_protocol,
    protocol_summary,
)
from spacy_bioel.files import replacing_folder

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.evaluation.evaluate import Figure
    from spacy_bioel.evaluation.tune import TuningReport
    from spacy_bioel.types import AnnotatedText


_DEFAULT = ("mention", "end_to_end", "gold")
_DEFAULT_OF_NAMES = ("mention_unlabelled", *_DEFAULT[1:])  # those of a knowledge base
_SUMMARY = ("f1", "accuracy@1")  # shown for each label; other metrics only for all labels
# Not shown in the table, because they follow from other metrics.
_JSON_ONLY = ("accuracy@1_normalised", "accuracy@1_nil_ignored_normalised", "mrr_normalised")
_NOTES = (
    "nil_gold", "nil_predicted", "missing_from_kb", "partly_missing_from_kb", "not_predicted",
    "nil_not_predicted", "widened", "tied",
)  # fmt: skip
_COLUMNS = ("protocol", "metric", "value", "95 % interval", "n", "candidates", "label")


def _errors_file(path: Path | None) -> Path | None:
    """Refuse a file of errors that is a folder, or of an unknown format."""
    if path is not None and path.suffix.lower() not in (".tsv", ".csv", ".jsonl"):
        raise BioelError(Errors.B360.format(path=path))
    return console.refuse_folder(path)


def evaluate(
    model: Annotated[
        str, Argument(help="Pipeline, by folder or package name; or a knowledge base.")
    ],
    gold: Annotated[
        Path, Argument(help="Corpus with gold mentions, in any format of `bioel convert`.")
    ],
    kb: Annotated[
        Path | None, Option(help="Link against this knowledge base instead of the model's.")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help=f"Protocol, can be repeated: {', '.join(PROTOCOLS)}; "
            f"{', '.join(f'{alias} is {name}' for alias, name in ALIASES.items())}. "
            f"Default: {', '.join(_DEFAULT)}; of a knowledge base, mention_unlabelled for mention.",
        ),
    ] = None,
    format: console.Format = None,
    prefix: console.Prefixes = None,
    label: console.Label = None,
    annotates: console.Annotates = None,
    preset: console.Preset = None,
    code: console.Code = None,
    seed: Annotated[int, Option(help="Seed of the bootstrap.")] = 0,
    names_alone: Annotated[
        bool,
        Option("--names-alone", help="Also show what names find alone, without training."),
    ] = False,
    json_file: console.Json = None,
    errors: Annotated[
        Path | None,
        Option(
            metavar="OUT.tsv",
            callback=_errors_file,
            help="Also write every error, a row each; OUT.csv and OUT.jsonl will do too.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        Option(
            metavar="OUT.html",
            callback=console.refuse_folder,
            help="Also write a page of errors: counts, confusions, reliability, examples.",
        ),
    ] = None,
) -> None:
    from spacy_bioel.cli import error_files, inputs
    from spacy_bioel.evaluation import run as measuring

    chosen = dict(get_protocol(name) for name in protocol or _DEFAULT)
    nlp, texts = inputs.load_with_mapped_gold(
        *(model, gold),
        kb=kb,
        format=format,
        prefix=prefix,
        label=label,
        annotates=annotates,
        preset=preset,
    )
    linker, by_names = inputs.find_linker(nlp), inputs.finds_names(nlp)
    if by_names and not protocol:
        chosen = dict(map(get_protocol, _DEFAULT_OF_NAMES))
    if names_alone or any(one.given_mentions for one in chosen.values()):
        inputs.require_linker(nlp, model)
    links = measuring.predict_links(nlp, texts, chosen, progress=console.progress_bar)
    found = measuring.score_links(nlp, texts, links, chosen, seed=seed)
    alone: dict[tuple[str, str], float] = {}
    if names_alone:
        # Names have no labels of gold, so that they are right and wrong without them.
        compared = {name: one for name, one in chosen.items() if name != "mention"}
        alone = measuring.measure_kb_only(nlp, texts, compared, progress=console.progress_bar)
    about = {
        "model": model,
        "model_fingerprint": fingerprint_folder(nlp.path) if nlp.path is not None else "",
        "encoder_fingerprint": linker.fingerprint if linker and linker.has_encoder else "",
        "kb_fingerprint": linker.kb.fingerprint if linker is not None else "",
        "gold": str(gold),
        "seed": seed,
        "command": shlex.join(["bioel", *sys.argv[1:]]),
    }
    if console.write_json(json_file, [_json_row(row, alone) | about for row in found]):
        unlabelled = {name for name, one in chosen.items() if by_names and not one.given_mentions}
        more = {"cross-fitted": _cross_fitted(nlp, texts), "names alone": alone}
        _show(found, unlabelled=unlabelled, more=more)
        for key, value in about.items():
            console.show_note(f"{key}: {value}")
    for row in found:
        names = 0 if row.label or row.metric != "f1" else alone.get((row.protocol, "f1"), 0)
        if names > row.value:
            of = {"protocol": row.protocol, "metric": row.metric, "value": row.value}
            console.show_note(Warnings.W455.format(alone=names, **of))
    if errors is not None or html is not None:
        n = error_files.report_errors(
            linker, texts, links, scores=found, about=about, rows=errors, page=html,
            labels=not by_names,
        )  # fmt: skip
        files = ", ".join(str(path) for path in (errors, html) if path)
        console.show_note(f"{console.count_of(n, 'error')} -> {files}")


def _listed(meanings: Mapping[str, str]) -> str:
    return "\n".join(f"* {name}: {meaning}." for name, meaning in meanings.items())


# Assigned, not a docstring, because the list of protocols comes from their table.
evaluate.__doc__ = f"""Evaluate a pipeline by one or several protocols, with 95 % intervals.

"gold" and "gold_any" give the linker the gold mentions. All others run the whole pipeline on
the bare text. The denominator is always the whole corpus: mentions that the tokens or the
knowledge base cannot represent count as wrong. JSON has every metric for every label, and
the rules of its protocol. Ranks are counted within the linker's `max_candidates`.

Rules of the protocols:

{_listed({name: protocol_summary(name) for name in PROTOCOLS})}

Kinds of errors, of --errors and --html. They are those of the whole pipeline on the bare text; with
no protocol but "gold" and "gold_any", those of the given mentions. {PAIRING} Labels are not
compared where mentions are names of a knowledge base, or where gold has none.

{_listed(KINDS)}

Further marks of an error:

{_listed(MARKS)}
"""


def _json_row(row: Figure, alone: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    about = asdict(row) | {"rules": asdict(PROTOCOLS[row.protocol].rules)}
    place = (row.protocol, row.metric)
    return about | ({"names_alone": alone[place]} if place in alone and not row.label else {})


def _cross_fitted(nlp: Language, texts: Sequence[AnnotatedText]) -> dict[tuple[str, str], float]:
    """Cross-fitted figures of `bioel tune`, if these are the documents that it chose on."""
    report = nlp.meta.get("bioel", {}).get("tuning")
    sizes = {"documents": len(texts), "mentions": sum(len(text.mentions) for text in texts)}
    if not report or any(report[name] != size for name, size in sizes.items()):
        return {}
    figures = [(one["protocol"], one["metric"], one["cross_fitted"]) for one in report["tuned"]]
    return {(name, metric): value for name, metric, value in figures if value is not None}


def fingerprint_folder(folder: Path) -> str:
    """Compute a fingerprint of a saved pipeline from the names and contents of its files, but for
    those of its model card, which change nothing in what it does.
    """
    digest = blake2b(digest_size=8)
    cards = {folder / "README.md", folder / "meta.json"}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in cards:
            with path.open("rb") as file:
                content = file_digest(file, "blake2b").digest()
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + content)
    return digest.hexdigest()


def _show(
    found: Sequence[Figure],
    *,
    unlabelled: Collection[str],
    more: Mapping[str, Mapping[tuple[str, str], float]],
) -> None:
    """Print the table of results, and notes.

    unlabelled (Collection[str]): Protocols whose links have no labels: their rows of single labels
        would be zero, and are left out.
    more (Mapping): Further columns, of the rows of all labels; those without a value are left out.
    """
    more = {name: values for name, values in more.items() if values}
    rows = []
    for row in found:
        is_shown = not row.label or (row.metric in _SUMMARY and row.protocol not in unlabelled)
        if is_shown and row.metric not in _JSON_ONLY:
            place = ("", "") if row.label else (row.protocol, row.metric)
            rows.append([
                *(row.protocol, row.metric, f"{row.value:.2f}", f"{row.low:.2f}-{row.high:.2f}"),
                *(f"{row.n:,}", f"{row.candidates or ''}", row.label or "(all)"),
                *(f"{values[place]:.2f}" if place in values else "" for values in more.values()),
            ])  # fmt: skip
    console.show_table((*_COLUMNS, *more), rows)
    totals = {row.protocol: row.details for row in reversed(found) if not row.label}
    for name, details in reversed(totals.items()):
        console.show_note(f"{name}: {protocol_summary(name)}")
        counted = [f"{key} {details[key]:.0f}" for key in _NOTES if details.get(key)]
        if counted:
            console.show_note(f"{name}: {', '.join(counted)}")
    if "mention" in unlabelled:
        console.show_note(
            "mention: names of a knowledge base have no label; see mention_unlabelled"
        )


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
    format: console.Format = None,
    prefix: console.Prefixes = None,
    label: console.Label = None,
    annotates: console.Annotates = None,
    code: console.Code = None,
    json_file: console.Json = None,
) -> None:
    """Tune a pipeline on development documents and save it with its knowledge base.

    Fits the weights of the linker's evidence, then chooses the detector's threshold, consistency
    and overlap by mention F1, then the NIL threshold by end-to-end F1, as `bioel evaluate` reports
    them. Each figure is given twice: fitted, on the documents used for the choice, and
    cross-fitted, with each document measured under the choice of the other folds. Both are also
    written to `meta.json` of OUT. OUT must not be the folder of MODEL.
    """
    from spacy_bioel.cli.inputs import find_detector, load_with_mapped_gold
    from spacy_bioel.evaluation.tune import tune_pipeline

    check_out(out, {"MODEL": Path(model), "DEV": dev, "the knowledge base": kb})
    nlp, texts = load_with_mapped_gold(
        model, dev, kb=kb, format=format, prefix=prefix, label=label, annotates=annotates
    )
    if find_detector(nlp) is None and not any(m.ids for text in texts for m in text.mentions):
        raise BioelError(Errors.B333.format(path=dev))
    report = tune_pipeline(nlp, texts, progress=console.progress_bar)
    require_extra(nlp)
    with replacing_folder(out) as folder:
        nlp.to_disk(folder)
    if console.write_json(json_file, report.to_json()):
        _show_tuned(report, out)


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


def _show_tuned(report: TuningReport, out: Path) -> None:
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

"""`bioel evaluate`: measure a pipeline on a gold corpus with named protocols."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from spacy_bioel.cli import console
from spacy_bioel.errors import BioelError
from spacy_bioel.files import fingerprint_folder
from spacy_bioel.plugins.evaluation.corpora import GoldOptions
from spacy_bioel.plugins.evaluation.errors import EvaluationErrors, EvaluationWarnings
from spacy_bioel.scoring.protocols import (
    ALIASES,
    KINDS,
    MARKS,
    PAIRING,
    PROTOCOLS,
    get_protocol,
    protocol_summary,
)

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.plugins.evaluation.evaluate import Figure
    from spacy_bioel.types import AnnotatedText


_DEFAULT_PROTOCOLS = ("mention", "end_to_end", "gold")
_UNLABELLED_PROTOCOLS = ("mention_unlabelled", "end_to_end", "gold")  # For a knowledge base.
# Metrics shown for each label; all other metrics are shown only for all labels together.
_LABEL_METRICS = ("f1", "accuracy@1")
# Metrics not shown in the table, because they can be derived from other metrics.
_JSON_ONLY = ("accuracy@1_normalised", "accuracy@1_nil_ignored_normalised", "mrr_normalised")
# Templates of the notes on a protocol's details, printed below the table.
_DETAILS = {
    "nil_gold": "gold mentions without an id (NIL): {n:,.0f}",
    "nil_predicted": "predictions without an id (NIL): {n:,.0f}",
    "missing_from_kb": "gold mentions whose ids the knowledge base lacks: {n:,.0f} of {gold:,.0f}",
    "partly_missing_from_kb": "gold mentions for which it lacks some ids: {n:,.0f} of {gold:,.0f}",
    "not_predicted": "gold mentions without a prediction: {n:,.0f}",
    "nil_not_predicted": "gold mentions without an id and without a prediction: {n:,.0f}",
    "widened": "gold mentions widened to whole tokens: {n:,.0f}",
    "tied": "predictions whose best candidates are tied: {n:,.0f}",
}
_SCORE_COLUMNS = ("protocol", "metric", "value", "95 % interval", "n", "candidates", "label")
EVALUATE_HELP = f"""Evaluate a pipeline using one or more protocols, with 95 % intervals.

With "gold" and "gold_any", the linker is given the gold mentions. With all other protocols, the
whole pipeline is run on plain text. The denominator is always the whole corpus: mentions that the
tokens or the knowledge base cannot represent count as incorrect. The JSON output contains every
metric for every label, with the protocol's rules. Ranks go up to the linker's `max_candidates`.

Rules of the protocols:

{console.bullet_list({name: protocol_summary(name) for name in PROTOCOLS})}

Kinds of errors listed by --errors and --html: errors made by the whole pipeline on plain text or,
with only "gold" and "gold_any", by the linker on the given mentions. {PAIRING} Labels are not
compared if the dictionary finds the mentions, or if the gold mentions have no labels.

{console.bullet_list(KINDS)}

Additional marks that an error may have:

{console.bullet_list(MARKS)}

Example: `bioel evaluate tuned test.pubtator --prefix MESH --json scores.json`
"""


def _errors_file(path: Path | None) -> Path | None:
    """Raise an error if the error report is a folder or has an unknown format."""
    if path is not None and path.suffix.lower() not in (".tsv", ".csv", ".jsonl"):
        raise BioelError(EvaluationErrors.B360.format(path=path))
    return console.refuse_folder(path)


@console.expand_options
def evaluate_command(
    model: Annotated[str, Argument(help="Pipeline (folder or package name) or knowledge base.")],
    gold: Annotated[
        Path, Argument(help="Corpus with gold mentions, in any format that `bioel convert` reads.")
    ],
    options: GoldOptions,
    kb: console.OtherKb = None,
    protocol: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help=f"Protocol; repeatable. One of {', '.join(PROTOCOLS)}; "
            f"{', '.join(f'{alias} means {name}' for alias, name in ALIASES.items())}. Default: "
            f"{', '.join(_DEFAULT_PROTOCOLS)}; for a knowledge base, mention_unlabelled replaces "
            "mention.",
        ),
    ] = None,
    preset: console.Preset = None,
    code: console.Code = None,
    gpu_id: console.GpuId = -1,
    seed: Annotated[int, Option(help="Random seed for the bootstrap.")] = 0,
    names_alone: Annotated[
        bool,
        Option("--names-alone", help="Also show baseline scores (knowledge base only)."),
    ] = False,
    xrefs: Annotated[
        bool,
        Option(
            "--xrefs",
            help="If a gold id is not in the knowledge base but is a cross-reference of exactly "
            "one concept, accept that concept.",
        ),
    ] = False,
    json_file: console.Json = None,
    errors: Annotated[
        Path | None,
        Option(
            metavar="OUT.tsv",
            callback=_errors_file,
            help="Also write one row per error; OUT.csv and OUT.jsonl are also possible.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        Option(
            metavar="OUT.html",
            callback=console.refuse_folder,
            help="Also write an HTML page with charts of the scores and errors, and examples.",
        ),
    ] = None,
) -> None:
    """Evaluate a pipeline; `EVALUATE_HELP` is the command's help."""
    from spacy_bioel.loading import find_linker, finds_names, require_linker
    from spacy_bioel.plugins.evaluation import error_files
    from spacy_bioel.plugins.evaluation import run as measuring
    from spacy_bioel.plugins.evaluation.gold import load_with_mapped_gold

    console.check_distinct([gold, code], [json_file, errors, html])
    protocols = dict(get_protocol(name) for name in protocol or _DEFAULT_PROTOCOLS)
    nlp, texts = load_with_mapped_gold(model, gold, options, kb=kb, preset=preset, xrefs=xrefs)
    linker, by_names = find_linker(nlp), finds_names(nlp)
    if by_names and not protocol:
        protocols = dict(map(get_protocol, _UNLABELLED_PROTOCOLS))
    if names_alone or any(rules.given_mentions for rules in protocols.values()):
        require_linker(nlp, model)
    links = measuring.predict_links(nlp, texts, protocols, track=console.track)
    measuring.warn_of_labels(texts, links)
    scores = measuring.score_links(nlp, texts, links, protocols, seed=seed)
    baseline: dict[tuple[str, str], float] = {}
    if names_alone:
        # Mentions found by looking up knowledge base names do not have gold labels.
        comparable = {name: rules for name, rules in protocols.items() if name != "mention"}
        baseline = measuring.measure_kb_only(nlp, texts, comparable, track=console.track)
    about = {
        "model": model,
        "model_fingerprint": fingerprint_folder(nlp.path) if nlp.path is not None else "",
        "encoder_fingerprint": linker.fingerprint if linker and linker.has_encoder else "",
        "kb_fingerprint": linker.kb.fingerprint if linker is not None else "",
        "gold": str(gold),
        "seed": seed,
        "xrefs": xrefs,
        "command": shlex.join(["bioel", *sys.argv[1:]]),
    }
    if console.write_json(json_file, [_json_row(row, baseline) | about for row in scores]):
        on_bare_text = {name for name, rules in protocols.items() if not rules.given_mentions}
        more = {"cross-fitted": _cross_fitted(nlp, texts), "knowledge base only": baseline}
        _show_scores(scores, unlabelled=on_bare_text if by_names else (), more=more)
        for key, value in about.items():
            console.show_note(f"{key}: {value}")
    for row in scores:
        alone = baseline.get((row.protocol, row.metric), 0)
        if row.metric == "f1" and not row.label and alone > row.value:
            console.show_note(EvaluationWarnings.W455.format(**asdict(row), alone=alone))
    if errors is not None or html is not None:
        n = error_files.report_errors(
            linker, texts, links, scores=scores, about=about, rows=errors, page=html,
            labels=not by_names,
        )  # fmt: skip
        files = ", ".join(str(path) for path in (errors, html) if path)
        console.show_note(f"{console.count_of(n, 'error')} -> {files}")


evaluate_command.__doc__ = EVALUATE_HELP


def _json_row(row: Figure, baseline: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    cells = asdict(row) | {"rules": PROTOCOLS[row.protocol].rules}
    if not row.label and (row.protocol, row.metric) in baseline:
        cells["names_alone"] = baseline[row.protocol, row.metric]
    return cells


def _cross_fitted(nlp: Language, texts: Sequence[AnnotatedText]) -> dict[tuple[str, str], float]:
    """Return the cross-fitted figures from `bioel tune`, if it was run on the same documents."""
    from spacy_bioel.plugins.evaluation.run import digest_of

    report = nlp.meta.get("bioel", {}).get("tuning")
    if not report or report.get("digest") != digest_of(texts):
        return {}
    return {
        (row["protocol"], row["metric"]): row["cross_fitted"]
        for row in report["tuned"]
        if "low" in row  # missing for a single document, and in reports from earlier versions
    }


def _show_scores(
    scores: Sequence[Figure],
    *,
    unlabelled: Collection[str],
    more: Mapping[str, Mapping[tuple[str, str], float]],
) -> None:
    """Print the score table and the notes below it.

    unlabelled (Collection[str]): Protocols whose links have no labels. Their per-label rows would
        be zero, so they are not shown.
    more (Mapping): Additional columns, for all labels together; empty columns are not shown.
    """
    more = {name: values for name, values in more.items() if values}
    rows = []
    for row in scores:
        without_labels = row.metric not in _LABEL_METRICS or row.protocol in unlabelled
        if row.metric in _JSON_ONLY or (row.label and without_labels):
            continue
        cells = [row.protocol, row.metric, f"{row.value:.2f}", f"{row.low:.2f}-{row.high:.2f}"]
        cells += [f"{row.n:,}", f"{row.candidates or ''}", row.label or "(all)"]
        for values in more.values():
            value = None if row.label else values.get((row.protocol, row.metric))
            cells.append("" if value is None else f"{value:.2f}")
        rows.append(cells)
    console.show_table((*_SCORE_COLUMNS, *more), rows)
    for name, totals in {row.protocol: row.details for row in scores if not row.label}.items():
        console.show_note(f"{name}: {protocol_summary(name)}")
        for key, meaning in _DETAILS.items():
            if n := totals.get(key):
                console.show_note(f"{name}: {meaning.format(n=n, gold=totals.get('gold', 0))}")
    if "mention" in unlabelled:
        console.show_note(
            "mention: names in a knowledge base have no labels; see mention_unlabelled"
        )

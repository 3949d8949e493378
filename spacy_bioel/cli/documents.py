"""Commands that link documents.

`bioel link` links texts and writes the formats in `export`. `bioel explain` explains the links in
a text.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.link_options import LinkOptions, LinkRun, option_classes
from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.folder import has_columns
from spacy_bioel.registered import ENGINES, all_names, load_registered

if TYPE_CHECKING:
    from spacy_bioel.export.rows import LinkedText, Totals


LOCAL = "local"  # the built-in engine, which is not a plugin
MentionSource = StrEnum("MentionSource", ["FOUND", "GIVEN"])


@partial(console.expand_options, plugins=option_classes())
def link_command(
    arguments: Annotated[
        list[str],
        Argument(
            metavar="[MODEL] INPUT",
            help=f"MODEL: {console.MODEL} With a knowledge base, exact and similar names are found "
            "and linked without training. INPUT: text with one document per line; a folder of .txt "
            "or .txt.gz files with one document each; JSONL, CSV, TSV, XLSX or Parquet with id and "
            "text; a corpus; or - for plain text on stdin.",
        ),
    ],
    options: console.GoldPlace,
    plugins: list[LinkOptions],
    output: Annotated[
        list[str] | None,
        Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Output file; its suffix selects the format: .jsonl, .json, .csv, .tsv, .parquet, "
            ".pubtator, .bioc.xml, .bioc.json, .ann (BRAT: a folder), .html or .note_nlp.csv "
            "(OMOP). Repeatable. "
            "Default: JSON lines to stdout.",
        ),
    ] = None,
    mentions: Annotated[
        MentionSource,
        Option(help="given: link the mentions annotated in INPUT instead of finding mentions."),
    ] = MentionSource.FOUND,
    kb: console.MoreKbs = None,
    xrefs: Annotated[
        bool, Option("--xrefs", help="Also write the candidates' cross-references (JSON only).")
    ] = False,
    preset: console.Preset = None,
    code: console.Code = None,
    raw_csv: Annotated[
        bool,
        Option("--raw-csv", help="Do not escape .csv and .tsv cells that look like formulas."),
    ] = False,
    skip_bad: console.SkipBad = None,
    format: Annotated[
        str | None,
        Option(help="Format of INPUT (whole: each file is one document); default: detected."),
    ] = None,
    n_process: console.NProcess = 1,
    batch_size: console.BatchSize = 64,
    gpu_id: console.GpuId = -1,
    resume: Annotated[
        bool,
        Option("--resume", help="Continue an interrupted run of the same command."),
    ] = False,
    engine: Annotated[
        str,
        Option(
            metavar=" or ".join([LOCAL, *all_names(ENGINES)]),
            help="spark: run on Spark, which reads and writes JSONL or Parquet. OUT is a folder.",
        ),
    ] = LOCAL,
) -> None:
    """Find and link the mentions in texts.

    The starter links diseases, chemicals, genes, organisms, cell lines and variants. The suffix of
    an output file selects its format:

    * .jsonl, .ndjson, stdout: one JSON object per document, with id, text, error, and links. A link
      has start, end, text, label, id (null for NIL), ids, and candidates with id, score, name,
      evidence and (with --xrefs) xrefs. Variants may have hgvs, component and gene; other mentions
      may have facts from your own rules. With --context, links have a context: negated, uncertain,
      historical, hypothetical, experiencer, relative, layout (the parts of the note around it),
      assertion (the status in one word) and cues (words that signal context).
    * .json: the same objects in one array.
    * .parquet: one row per document, without xrefs or context; facts from your own rules are stored
      as one JSON string per link.
    * .csv, .tsv: one row per link, with the linked candidate; empty cells for NIL. Cells that begin
      with =, +, - or @ are prefixed with an apostrophe so that spreadsheets do not treat them as
      formulas; --raw-csv turns this off.
    * .bioc.xml, .bioc.json: BioC, with the linked candidate; no identifier for NIL.
    * .pubtator: labels and ids, "-" for NIL.
    * .ann: BRAT, a folder with two files per document; ids are in N lines, omitted for NIL.
    * .html: a page with the texts and candidates.
    * .note_nlp.csv: rows for OMOP's NOTE_NLP table, with the context (see --context), and with
      concept ids if the knowledge base was built from OMOP vocabularies.

    With --preset clinical, a text file or stdin is read as one note, and links have a context.

    If a document fails, it has an error with a code and a message instead of links, and the exit
    status is 1. Formats from .csv to .note_nlp.csv omit the document, which is reported on stderr.
    Annotations in the input are ignored; with --mentions given, their offsets and labels are used,
    but never their ids. A mention's label determines which knowledge base is used.

    If the command is interrupted (by Ctrl+C or an error), the documents linked so far are kept in
    OUT.partial, and --resume continues from there.

    Examples: `bioel link notes.txt -o links.jsonl`, `bioel link my_kb notes.txt -o links.csv`
    """
    from spacy_bioel import loading
    from spacy_bioel.cli import inputs
    from spacy_bioel.cli.partial import check_run, counting, partial_links
    from spacy_bioel.export.rows import check_linker, link_mentions, link_texts
    from spacy_bioel.loading import fact_names

    model, source = _model_and_input(arguments)
    is_given = mentions is MentionSource.GIVEN
    if preset and not format and inputs.is_plain_text(source):
        format = "whole"
    outputs = inputs.outputs_of(output or ["-"], xrefs=xrefs)
    console.check_distinct([source, code], [*outputs, skip_bad])
    run = LinkRun(model, preset, is_given, outputs)
    for of_plugin in plugins:
        of_plugin.check(run)
    place = options.key()
    if place is not None and not is_given:
        raise BioelError(Errors.B522.format(problem="--mentions given is missing", option="them"))
    if is_given and skip_bad is not None:
        raise BioelError(Errors.B516.format(source=source))
    if engine != LOCAL:
        link_file = load_registered(ENGINES, engine)
        unsuited = {
            "--format": format, "--kb": kb, "--xrefs": xrefs, "--raw-csv": raw_csv,
            "--skip-bad": skip_bad, "--preset": preset, "--n-process": n_process > 1,
            "--gpu-id": gpu_id >= 0, "--resume": resume, "--mentions given": is_given,
            "several --output": len(outputs) > 1,
            "an option of a plugin": any(of_plugin.given() for of_plugin in plugins),
        }  # fmt: skip
        if found := next(filter(unsuited.get, unsuited), ""):
            about = {"engine": engine, "expected": "a command without it"}
            raise BioelError(Errors.B196.format(found=found, **about))
        target = next(iter(outputs))
        totals = link_file(source, target, model=model, code=code, batch_size=batch_size)
    else:
        # Open the input before loading the pipeline, so that errors are reported without delay.
        read: Any = inputs.read_mentions if is_given else inputs.stream_documents
        reading: Any = {"spans_key": place} if is_given else {"skip_bad": skip_bad}
        documents = read(source, format, **reading)
        kept = partial_links(outputs, resume=resume)
        nlp = loading.load_model(model, more=kb or (), preset=preset)
        if is_given:
            loading.require_linker(nlp, model)
        check_linker(nlp)
        for of_plugin in plugins:
            of_plugin.adapt(nlp, run)
        total = inputs.count_input(read, source, format)
        link: Any = link_mentions if is_given else link_texts
        link_all = partial(link, nlp, batch_size=batch_size, n_process=n_process)
        if kept is None:
            results = link_all(documents)
        else:
            more = {name: value for one in plugins for name, value in one.given().items()}
            check_run(kept, nlp, code, mentions=mentions, preset=preset, **more)
            results = kept.link(documents, link_all)
        # `closing` ends the worker processes, even if a result cannot be written.
        with counting(kept) as totals, closing(results):
            linked: Iterable[LinkedText] = results
            for of_plugin in plugins:
                linked = of_plugin.change(linked, nlp, run)
            columns = {"facts": fact_names(nlp), "xrefs": xrefs, "raw": raw_csv}
            inputs.write_links(linked, outputs, totals, total=total, **columns)
        if is_given and not totals.mentions and not totals.failed:
            console.show_note(Warnings.W302.format(source=source))
    show_totals(totals)


def show_totals(totals: Totals) -> None:
    """Print document and mention counts. RAISES typer.Exit: If any document failed."""
    n_documents = console.count_of(totals.documents, "document")
    n_mentions = console.count_of(totals.mentions, "mention")
    console.show_note(f"{n_documents}, {n_mentions}, {totals.nil:,} of them NIL.")
    if totals.failed:
        failed = console.count_of(totals.failed, "document")
        console.show_note(f"{failed} failed: see the errors in the output or above.")
        raise Exit(1)


def _model_and_input(arguments: list[str]) -> tuple[str, str]:
    """Split arguments into model and input. RAISES BioelError: [B335] if this is impossible."""
    *models, source = arguments
    is_model = (Path(source) / "config.cfg").is_file() or has_columns(Path(source))
    is_text = bool(models) and Path(models[0]).is_file()
    if len(models) > 1 or is_text or (not models and (is_model or source == "starter")):
        raise BioelError(Errors.B335.format(found=" ".join(arguments)))
    return (models[0] if models else "starter"), source


def explain_command(
    arguments: Annotated[
        list[str],
        Argument(
            metavar="[MODEL] TEXT",
            help=f"MODEL: {console.MODEL} TEXT: the text in quotes, or - for stdin.",
        ),
    ],
    mention: Annotated[
        str | None,
        Option(help="Explain only this phrase in the text, whether or not it is a mention."),
    ] = None,
    preset: console.Preset = None,
    code: console.Code = None,
    json_file: console.Json = None,
    html: Annotated[
        Path | None, Option(metavar="OUT.html", help="Also write the report as an HTML page.")
    ] = None,
) -> None:
    """Explain what a pipeline finds in a text, and why.

    The report lists the spans that were considered, and why each of them is or is not a mention;
    the candidates for each mention, with their evidence and scores; and the knowledge base
    releases.

    Example: `bioel explain "Naloxone reverses the effect of clonidine."`
    """
    from spacy_bioel import report as reports
    from spacy_bioel.loading import load_model

    console.check_distinct([code], [json_file, html])
    if len(arguments) > 2:
        raise BioelError(Errors.B440.format(found=json.dumps(arguments, ensure_ascii=False)))
    model, text = ["starter", *arguments][-2:]
    text = sys.stdin.read() if text == "-" else text
    if not text.strip() or os.path.exists(text):  # never raises, even if the text is too long
        raise BioelError(Errors.B441.format(found=text))
    report = reports.explain(load_model(model, preset=preset), text, mention)
    if html is not None:
        from spacy_bioel.export.html import render_report

        page = render_report(report, page=True)
        with console.writing(html) as file:
            file.write(page)
    if not console.write_json(json_file, asdict(report)):
        return
    parts = [
        f"[{words} -> {' | '.join(mention.ids) or 'NIL'}]" if mention else words
        for words, mention in reports.pieces(report)
    ]
    console.show_line("".join(parts))
    console.show_line(f"Pipeline: {report.model}. {report.finds}")
    for kb in report.kbs:
        console.show_line(f"Knowledge base: {kb}")
    if report.considered:
        rows = reports.span_rows(report)
        console.show_table(reports.SPAN_COLUMNS, rows, title="Spans")
    for m, before, candidates, after in reports.mention_parts(report):
        title = " ".join(filter(None, (m.text, m.label)))
        console.show_line(f"\n{title}: {' | '.join(m.ids) or 'NIL'}")
        for line in before:
            console.show_line(line)
        if candidates:
            console.show_table(reports.CANDIDATE_COLUMNS, candidates)
        for line in after:
            console.show_line(line)
    if not (report.mentions or report.considered):
        console.show_line("Nothing in the text was considered a mention.")

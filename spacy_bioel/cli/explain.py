"""`bioel explain`: why a text has the links that it has."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spacy_bioel.cli.console import JsonOption, show_line, show_table, write_json, writing
from spacy_bioel.cli.models import load_model
from spacy_bioel.errors import BioelError, Errors

if TYPE_CHECKING:
    from spacy_bioel.pipeline.explain import Report
    from spacy_bioel.pipeline.explanation import Explanation


def explain(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] TEXT",
            help="MODEL: a pipeline, by folder or package name, or a knowledge base; default: the "
            "pipeline of the package. TEXT: the text itself, in quotes.",
        ),
    ],
    mention: Annotated[
        str | None,
        typer.Option(help="Explain these words of the text only, whether they were found or not."),
    ] = None,
    json_file: JsonOption = None,
    html: Annotated[
        Path | None, typer.Option(metavar="OUT.html", help="Also write it as a page.")
    ] = None,
) -> None:
    """Explain what a pipeline finds in a text: the spans that it considered, why each is a mention
    or none, the candidates of each with their evidence and scores, and the release of the knowledge
    bases.
    """
    from spacy_bioel.pipeline import explain as explaining
    from spacy_bioel.pipeline.loading import STARTER

    if len(arguments) > 2:
        raise BioelError(Errors.B440.format(found=json.dumps(arguments, ensure_ascii=False)))
    model, text = [STARTER, *arguments][-2:]
    if Path(text).exists():
        raise BioelError(Errors.B441.format(found=text))
    report = explaining.explain(load_model(model), text, mention)
    if html is not None:
        from spacy_bioel.export.explanation import render_report

        with writing(html) as file:
            file.write(render_report(report))
    if write_json(json_file, asdict(report)):
        _show(report)


def _show(report: Report) -> None:
    from spacy_bioel.pipeline.explain import pieces

    parts = [
        f"[{words} -> {' | '.join(mention.ids) or 'NIL'}]" if mention else words
        for words, mention in pieces(report)
    ]
    show_line("".join(parts))
    show_line(f"Pipeline: {report.model}. {report.finds}")
    for kb in report.kbs:
        show_line(f"Knowledge base: {kb}")
    rows = []
    for span in report.considered:
        fate = ": ".join(filter(None, ("yes" if span.is_mention else "no", span.reason)))
        cells = (f"{span.start}", f"{span.end}", span.text, span.label or span.name)
        rows.append((*cells, f"{span.probability:.4f}", fate))
    if rows:
        columns = ("start", "end", "text", "label or name", "probability", "mention")
        show_table(columns, rows, title="Spans")
    for mention in report.mentions:
        _show_mention(mention)
    if not (report.mentions or report.considered):
        show_line("Nothing in the text was considered a mention.")


def _show_mention(mention: Explanation) -> None:
    from spacy_bioel.pipeline.explanation import candidate_cells

    title = " ".join(filter(None, (mention.text, mention.label)))
    show_line(f"\n{title}: {' | '.join(mention.ids) or 'NIL'}")
    if not mention.is_mention:
        show_line("The pipeline does not find it. If it were a mention:")
    show_line(mention.reason)
    show_line(f"Looked up: {', '.join(map(repr, mention.strings))}")
    if mention.said:
        show_line(f"In the text: {mention.said}")
    if mention.candidates:
        columns = ("id", "preferred name", "matched name", "score", "by its words", "evidence")
        show_table(columns, [(c.id, *candidate_cells(c)) for c in mention.candidates])
    if mention.near:
        show_line(f"Nearest names: {'; '.join(mention.near)}")
    for candidate in mention.excluded:
        show_line(
            f"Not allowed for {mention.label}: {candidate.id} {candidate.preferred}, which would "
            f"have {candidate.score:.2f}; its types: {candidate.evidence or 'none'}"
        )

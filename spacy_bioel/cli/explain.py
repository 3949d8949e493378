"""`bioel explain`: why a text has the links that it has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spacy_bioel.cli.console import JsonOption, show_line, show_table, write_json, writing
from spacy_bioel.cli.models import load_model
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.view import linked_id, render_page, table_of

if TYPE_CHECKING:
    from spacy_bioel.pipeline.explain import Report
    from spacy_bioel.pipeline.explanation import Explanation
    from spacy_bioel.pipeline.mentions.choosing import Considered


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

    if len(arguments) > 2:
        raise BioelError(Errors.B440.format(found=json.dumps(arguments, ensure_ascii=False)))
    model, text = ["starter", *arguments][-2:]
    if Path(text).exists():
        raise BioelError(Errors.B441.format(found=text))
    report = explaining.explain(load_model(model), text, mention)
    pieces = list(explaining.pieces(report))
    if html is not None:
        with writing(html) as file:
            file.write(_page(report, pieces))
    if write_json(json_file, asdict(report)):
        _show(report, pieces)


# The text, each part with the mention that it is.
Pieces = Sequence[tuple[str, "Explanation | None"]]
_SPANS = ("start", "end", "text", "label or name", "probability", "mention")
_CANDIDATES = ("id", "preferred name", "matched name", "score", "by its words", "evidence")


def _show(report: Report, pieces: Pieces) -> None:
    parts = [
        f"[{words} -> {' | '.join(mention.ids) or 'NIL'}]" if mention else words
        for words, mention in pieces
    ]
    show_line("".join(parts))
    show_line(f"Pipeline: {report.model}. {report.finds}")
    for kb in report.kbs:
        show_line(f"Knowledge base: {kb}")
    if report.considered:
        rows = [(str(span.start), str(span.end), *_cells(span)) for span in report.considered]
        show_table(_SPANS, rows, title="Spans")
    for mention in report.mentions:
        title = " ".join(filter(None, (mention.text, mention.label)))
        show_line(f"\n{title}: {' | '.join(mention.ids) or 'NIL'}")
        if not mention.is_mention:
            show_line("The pipeline does not find it. If it were a mention:")
        before, after = _lines(mention)
        for line in before:
            show_line(line)
        if mention.candidates:
            show_table(_CANDIDATES, _candidates(mention))
        for line in after:
            show_line(line)
    if not (report.mentions or report.considered):
        show_line("Nothing in the text was considered a mention.")


def _cells(span: Considered) -> tuple[str, ...]:
    """Text, label or name, probability and fate of a span."""
    fate = ": ".join(filter(None, ("yes" if span.is_mention else "no", span.reason)))
    return span.text, span.label or span.name, f"{span.probability:.4f}", fate


def _candidates(mention: Explanation) -> list[tuple[str, ...]]:
    from spacy_bioel.pipeline.explanation import candidate_cells

    return [(one.id, *candidate_cells(one)) for one in mention.candidates]


def _lines(mention: Explanation) -> tuple[list[str], list[str]]:
    """What is said of a mention before and after the table of its candidates."""
    before = [mention.reason, f"Looked up: {', '.join(map(repr, mention.strings))}"]
    before += [f"In the text: {mention.said}"] if mention.said else []
    after = [f"Nearest names: {'; '.join(mention.near)}"] if mention.near else []
    after += [
        f"Not allowed for {mention.label}: {c.id} {c.preferred}, which would have {c.score:.2f}; "
        f"its types: {c.evidence or 'none'}"
        for c in mention.excluded
    ]
    return before, after


def _page(report: Report, pieces: Pieces) -> str:
    text = "".join(
        f"<mark>{escape(words)}</mark>" if mention else escape(words) for words, mention in pieces
    )
    kbs = "".join(f"<li>{escape(str(kb))}</li>" for kb in report.kbs)
    found = f"Pipeline {report.model}. {report.finds}"
    sections = [f"<p>{text}</p><p>{escape(found)}</p><ul>{kbs}</ul>"]
    if report.considered:
        columns = ("characters", *_SPANS[2:])
        rows = [
            [f"{span.start} to {span.end}", *map(escape, _cells(span))]
            for span in report.considered
        ]
        sections.append(f"<h2>Spans</h2>{_table('Spans', columns, rows)}")
    for mention in report.mentions:
        ids = " | ".join(map(linked_id, mention.ids)) or "NIL"
        before, after = _lines(mention)
        if not mention.is_mention:
            before[0] = f"The pipeline does not find it. If it were a mention: {before[0]}"
        body = "".join(f"<p>{escape(line)}</p>" for line in [*before, *after])
        if mention.candidates:
            rows = [[linked_id(id), *map(escape, cells)] for id, *cells in _candidates(mention)]
            body += _table(f"Candidates of {mention.text}", _CANDIDATES, rows)
        sections.append(f"<h2>{escape(mention.text)} {escape(mention.label)}: {ids}</h2>{body}")
    sections = [f"<section>{section}</section>" for section in sections]
    return render_page(sections, title="Why is it linked, and why not?")


def _table(caption: str, columns: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    return table_of(caption, [name.capitalize() for name in columns], rows)

"""`bioel explain`: why a text has the links that it has."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from spacy_bioel.cli import console, options
from spacy_bioel.errors import BioelError, Errors

if TYPE_CHECKING:
    from spacy_bioel.explanation import Explanation
    from spacy_bioel.report import Report

_SPANS = ("start", "end", "text", "label or name", "probability", "mention")
_CANDIDATES = ("id", "preferred name", "matched name", "score", "by its words", "evidence")


def explain(
    arguments: Annotated[
        list[str],
        Argument(
            metavar="[MODEL] TEXT",
            help=f"MODEL: {options.MODEL} TEXT: the text itself, in quotes; - for stdin.",
        ),
    ],
    mention: Annotated[
        str | None,
        Option(help="Explain these words of the text only, whether they were found or not."),
    ] = None,
    preset: options.Preset = None,
    code: options.Code = None,
    json_file: options.Json = None,
    html: Annotated[
        Path | None, Option(metavar="OUT.html", help="Also write it as a page.")
    ] = None,
) -> None:
    """Explain what a pipeline finds in a text: the spans that it considered, why each is a mention
    or none, the candidates of each with their evidence and scores, and the release of the knowledge
    bases.
    """
    from spacy_bioel import explanation
    from spacy_bioel.loading import load_model
    from spacy_bioel.report import explain as explain_text
    from spacy_bioel.report import pieces as pieces_of

    if len(arguments) > 2:
        raise BioelError(Errors.B440.format(found=json.dumps(arguments, ensure_ascii=False)))
    model, text = ["starter", *arguments][-2:]
    text = sys.stdin.read() if text == "-" else text
    if not text.strip() or os.path.exists(text):  # False of what is too long for a path
        raise BioelError(Errors.B441.format(found=text))
    report = explain_text(load_model(model, preset=preset), text, mention)
    pieces = list(pieces_of(report))
    spans = [
        (
            *(str(span.start), str(span.end), span.text, span.label or span.name),
            f"{span.probability:.4f}",
            ": ".join(filter(None, ("yes" if span.is_mention else "no", span.reason))),
        )
        for span in report.considered
    ]
    mentions = [
        (
            one,
            _before(one),
            [(c.id, *explanation.candidate_cells(c)) for c in one.candidates],
            _after(one),
        )
        for one in report.mentions
    ]
    if html is not None:
        from spacy_bioel.export.html import PAGES

        page = PAGES.get_template("explain.html").render(
            report=report,
            pieces=pieces,
            span_columns=("characters", *_SPANS[2:]),
            spans=[(f"{start} to {end}", *cells) for start, end, *cells in spans],
            candidate_columns=_CANDIDATES,
            mentions=mentions,
        )
        with console.writing(html) as file:
            file.write(page)
    if console.write_json(json_file, asdict(report)):
        _show(report, pieces, spans, mentions)


def _before(mention: Explanation) -> list[str]:
    """What is said of a mention before its candidates."""
    lines = [mention.reason, f"Looked up: {', '.join(map(repr, mention.strings))}"]
    if mention.said:
        lines.append(f"In the text: {mention.said}")
    if not mention.is_mention:
        lines.insert(0, "The pipeline does not find it. If it were a mention:")
    return lines


def _after(mention: Explanation) -> list[str]:
    """What is said of a mention after its candidates."""
    near = [f"Nearest names: {'; '.join(mention.near)}"] if mention.near else []
    return near + [
        f"Not allowed for {mention.label}: {c.id} {c.preferred}, which would have {c.score:.2f}; "
        f"its types: {c.evidence or 'none'}"
        for c in mention.excluded
    ]


def _show(
    report: Report,
    pieces: Sequence[tuple[str, Explanation | None]],
    spans: Sequence[Sequence[str]],
    mentions: Sequence[tuple[Explanation, list[str], list[tuple[str, ...]], list[str]]],
) -> None:
    parts = [
        f"[{words} -> {' | '.join(mention.ids) or 'NIL'}]" if mention else words
        for words, mention in pieces
    ]
    console.show_line("".join(parts))
    console.show_line(f"Pipeline: {report.model}. {report.finds}")
    for kb in report.kbs:
        console.show_line(f"Knowledge base: {kb}")
    if spans:
        console.show_table(_SPANS, spans, title="Spans")
    for mention, before, candidates, after in mentions:
        title = " ".join(filter(None, (mention.text, mention.label)))
        console.show_line(f"\n{title}: {' | '.join(mention.ids) or 'NIL'}")
        for line in before:
            console.show_line(line)
        if candidates:
            console.show_table(_CANDIDATES, candidates)
        for line in after:
            console.show_line(line)
    if not (report.mentions or report.considered):
        console.show_line("Nothing in the text was considered a mention.")

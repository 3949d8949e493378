"""An explanation as an HTML page: the spans that were considered, and the candidates of each."""

from __future__ import annotations

from html import escape

from spacy_bioel.pipeline.explain import Report, pieces
from spacy_bioel.pipeline.explanation import ExplainedCandidate, Explanation, candidate_cells
from spacy_bioel.pipeline.mentions.choosing import Considered
from spacy_bioel.view import linked_id, render_page, table_of

_SPANS = ("Characters", "Text", "Label or name", "Probability", "Mention")
_CANDIDATES = ("Id", "Preferred name", "Matched name", "Score", "By its words", "Evidence")


def render_report(report: Report) -> str:
    """Render a page of a report."""
    sections = [_about(report)]
    if report.considered:
        sections.append(_section("Spans", table_of("Spans", _SPANS, map(_span, report.considered))))
    sections += [_mention(mention) for mention in report.mentions]
    return render_page(sections, title="Why is it linked, and why not?")


def _about(report: Report) -> str:
    text = "".join(
        f"<mark>{escape(words)}</mark>" if mention else escape(words)
        for words, mention in pieces(report)
    )
    kbs = "".join(f"<li>{escape(str(kb))}</li>" for kb in report.kbs)
    found = f"Pipeline {report.model}. {report.finds}"
    return f"<section><p>{text}</p><p>{escape(found)}</p><ul>{kbs}</ul></section>"


def _mention(mention: Explanation) -> str:
    ids = " | ".join(map(linked_id, mention.ids)) or "NIL"
    absent = "" if mention.is_mention else "The pipeline does not find it. If it were a mention: "
    strings = ", ".join(map(repr, mention.strings))
    lines = [f"{absent}{mention.reason}", f"Looked up: {strings}"]
    lines += [f"In the text: {mention.said}"] if mention.said else []
    lines += [f"Nearest names: {'; '.join(mention.near)}"] if mention.near else []
    lines += [
        f"Not allowed for {mention.label}: {c.id} {c.preferred}, which would have {c.score:.2f}; "
        f"its types: {c.evidence or 'none'}"
        for c in mention.excluded
    ]
    body = "".join(f"<p>{escape(line)}</p>" for line in lines)
    if mention.candidates:
        caption = f"Candidates of {mention.text}"
        body += table_of(caption, _CANDIDATES, map(_candidate, mention.candidates))
    title = f"{escape(mention.text)} {escape(mention.label)}: {ids}"
    return f"<section><h2>{title}</h2>{body}</section>"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _span(span: Considered) -> list[str]:
    fate = "yes" if span.is_mention else "no"
    cells = (span.text, span.label or span.name, f"{span.probability:.4f}")
    fate = f"{fate}: {span.reason}" if span.reason else fate
    return [f"{span.start} to {span.end}", *map(escape, (*cells, fate))]


def _candidate(candidate: ExplainedCandidate) -> list[str]:
    return [linked_id(candidate.id), *map(escape, candidate_cells(candidate))]

"""Self-contained HTML page of the errors of a pipeline: counts, confusions, reliability, examples.

All values of documents and knowledge bases are escaped. Colours follow the reader's preference for
dark or light.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from spacy_bioel.cli.error_rows import NameOf, context_of, describe_candidate, row_of
from spacy_bioel.scoring.counts import KINDS, MARKS, PAIRING
from spacy_bioel.scoring.evaluation import Reliability
from spacy_bioel.scoring.linking_errors import LinkingError, confusions, strings_of
from spacy_bioel.scoring.measure import Measurement

SHOWN = 50  # errors of a kind
_WORST = 20  # rows of a table of confusions or strings
_METRICS = ("precision", "recall", "f1", "accuracy@1")
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #8a929b; --soft: #57606a;
 --mark: #ffe08a; --mark-ink: #1b1f24; --link: #0b5cad; --first: #0072b2; --second: #b34700 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --paper: #14171a; --line: #6b737c;
 --soft: #a9b1ba; --mark: #665200; --mark-ink: #fff; --link: #7cc0ff; --first: #56b4e9;
 --second: #ff9f5a } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
 margin: 2rem auto; max-width: 68rem; padding: 0 1rem }
a { color: var(--link) }
a:focus-visible, summary:focus-visible, .wide:focus-visible { outline: 3px solid var(--link) }
section { border-top: 1px solid var(--line); margin-top: 2rem }
article { border-left: 3px solid var(--line); margin: 1rem 0; padding-left: 1rem }
article p { margin: 0.2rem 0; overflow-wrap: anywhere }
mark { background: var(--mark); color: var(--mark-ink); padding: 0.1rem 0 }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 0.9rem; margin: 1rem 0 }
caption { font-weight: 600; padding: 0.3rem 0; text-align: left; white-space: nowrap }
th, td { border-bottom: 1px solid var(--line); padding: 0.25rem 0.75rem 0.25rem 0;
 text-align: left; vertical-align: top }
td.number { font-variant-numeric: tabular-nums; text-align: right }
dt { font-weight: 600 }
figure { margin: 1rem 0 }
figure svg { height: auto; max-width: 100% }
.about, figcaption, .soft { color: var(--soft); font-size: 0.9rem }
"""


@dataclass(frozen=True)
class ErrorReport:
    """All that the page shows.

    about (Mapping[str, str]): Model, corpus, knowledge base and command, in words.
    scores (Sequence[Measurement]): Of the protocols that were measured.
    errors (Sequence[LinkingError]): All errors.
    name_of (NameOf): From an id to its preferred name.
    reliabilities (Mapping[str, Reliability]): By the predictions that are compared.
    figures (Mapping[str, str]): SVG by name, "counts" and "reliability"; empty without matplotlib.
    all_errors (str): File that has all errors; "": none was written.
    """

    about: Mapping[str, str]
    scores: Sequence[Measurement]
    errors: Sequence[LinkingError]
    name_of: NameOf
    reliabilities: Mapping[str, Reliability]
    figures: Mapping[str, str]
    all_errors: str = ""


def render_errors(report: ErrorReport) -> str:
    """The whole page."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        f"<title>Errors of {escape(report.about['model'])}</title>\n",
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n",
        f"<h1>Errors of {escape(report.about['model'])}</h1>\n",
        _definitions(report.about, name="about"),
        _navigation(report),
        _section("scores", "Scores", _scores(report.scores)),
        _section("counts", "Errors by kind and label", _counts(report)),
        _section("worst", "Worst confusions", _worst(report)),
        _reliability(report),
        *(_of_kind(kind, report) for kind in _kinds(report)),
        _section("definitions", "Definitions", _meanings()),
        "</main>\n</body>\n</html>\n",
    ]
    return "".join(parts)


def _kinds(report: ErrorReport) -> list[str]:
    """Kinds that occur."""
    found = {error.kind for error in report.errors}
    return [kind for kind in KINDS if kind in found]


def _navigation(report: ErrorReport) -> str:
    names = {"counts": "counts", "worst": "confusions"}
    names |= {"reliability": "reliability"} if report.reliabilities else {}
    names |= {kind: kind for kind in _kinds(report)} | {"definitions": "definitions"}
    links = " · ".join(f'<a href="#{name}">{escape(shown)}</a>' for name, shown in names.items())
    return f'<nav aria-label="Sections"><p>{links}</p></nav>\n'


def _scores(scores: Sequence[Measurement]) -> str:
    rows = [
        (m.protocol, m.metric, f"{m.value:.2f}", f"{m.low:.2f}-{m.high:.2f}", f"{m.n:,}")
        for m in scores
        if not m.label and m.metric in _METRICS
    ]
    head = ("protocol", "metric", "value, %", "95 % interval", "n")
    return _table("Of all labels, by protocol", head, rows)


def _counts(report: ErrorReport) -> str:
    labels = sorted({error.place.label for error in report.errors})
    n = Counter((error.kind, error.place.label) for error in report.errors)
    by_kind = [
        (kind, *(n[kind, label] for label in labels), sum(n[kind, label] for label in labels))
        for kind in _kinds(report)
    ]
    of_marks = Counter(mark for error in report.errors for mark in error.marks)
    head = ("kind", *(label or "(no label)" for label in labels), "all")
    return (
        _figure(report, "counts", "Errors of each kind.")
        + _table(f"{len(report.errors):,} errors by kind and label", head, by_kind)
        + _table(
            "Further marks of these errors",
            ("mark", "errors"),
            [(mark, of_marks[mark]) for mark in MARKS],
        )
    )


def _worst(report: ErrorReport) -> str:
    def described(ids: Iterable[str]) -> str:
        return ", ".join(f"{id} {report.name_of(id)}".strip() for id in ids)

    confused = [
        (described(gold), described(predicted), n)
        for (gold, predicted), n in confusions(report.errors).most_common(_WORST)
    ]
    missed = _strings(report.errors, "missed")
    spurious = _strings(report.errors, "spurious")
    return (
        _table("Gold concepts linked to others", ("gold", "predicted", "errors"), confused)
        + _table("Strings that are missed most", ("string", "label", "errors"), missed)
        + _table("Strings that are spurious most", ("string", "label", "errors"), spurious)
    )


def _strings(errors: Iterable[LinkingError], kind: str) -> list[tuple[str, str, int]]:
    found = strings_of(errors, kind).most_common(_WORST)
    return [(string, label, n) for (string, label), n in found]


def _reliability(report: ErrorReport) -> str:
    if not report.reliabilities:  # nothing was linked
        return ""
    text = (
        "<p>Of each prediction with candidates, the score of the first one, linked or not. It is "
        "right if a gold mention of the same offsets has its id and no other. Where scores are "
        "reliable, the two columns agree. Predictions of several ids are left out.</p>\n"
    )
    tables = []
    for name, one in report.reliabilities.items():
        rows = [
            (f"{b.low:.1f}-{b.high:.1f}", f"{b.n:,}", f"{b.score:.3f}", f"{b.right:.3f}")
            for b in one.bins
        ]
        error = f"expected calibration error {one.calibration_error:.3f}, n {one.n:,}"
        head = ("score", "n", "mean score", "share of right ones")
        tables.append(_table(f"{name}: {error}", head, rows))
    caption = "Mean score and observed accuracy of ten bins, with their numbers of predictions."
    content = text + _figure(report, "reliability", caption) + "".join(tables)
    return _section("reliability", "Reliability of scores", content)


def _of_kind(kind: str, report: ErrorReport) -> str:
    errors = [error for error in report.errors if error.kind == kind]
    n = len(errors)
    # Spread over the corpus, and not its first documents.
    shown = [errors[i * n // SHOWN] for i in range(SHOWN)] if n > SHOWN else errors
    note = f"<p>{escape(KINDS[kind][0].upper() + KINDS[kind][1:])}.</p>\n"
    if n > SHOWN:
        where = f"{report.all_errors} has" if report.all_errors else "--errors OUT.tsv writes"
        note += f"<p>{SHOWN} of {n:,} are shown, spread over the corpus; {escape(where)} all.</p>\n"
    articles = "".join(_article(error, report.name_of) for error in shown)
    return _section(kind, f"{kind} ({n:,})", note + articles)


def _article(error: LinkingError, name_of: NameOf) -> str:
    row = row_of(error, name_of)
    before, mention, after = (escape(part) for part in context_of(error))
    lines = [f"<p>{before}<mark>{mention}</mark>{after}</p>"]
    if error.gold is not None:
        lines.append(_side("gold", row, "label", "gold_ids", "gold_names"))
    if error.link is not None:
        lines.append(_side("predicted", row, "predicted_label", "predicted_ids", "predicted_names"))
        if error.kind == "wrong_borders":
            lines.append(f"<p>predicted string: {escape(row['predicted_string'])}</p>")
    about = [f"document {row['document']}", *row["marks"]]
    about += [f"rank of the gold id {row['rank']}"] if row["rank"] else []
    lines.append(f'<p class="soft">{escape(", ".join(about))}</p>')
    if row["candidates"]:
        items = "".join(f"<li>{escape(describe_candidate(c))}</li>" for c in row["candidates"])
        lines.append(f"<details><summary>candidates</summary><ol>{items}</ol></details>")
    return f"<article>{''.join(lines)}</article>\n"


def _side(what: str, row: Mapping, label: str, ids: str, names: str) -> str:
    pairs = zip(row[ids], row[names], strict=True)
    found = ", ".join(f"{id} {name}".strip() for id, name in pairs) or "NIL"
    return f"<p>{what}: {escape(f'{row[label]} {found}'.strip())}</p>"


def _meanings() -> str:
    return (
        f"<p>{escape(PAIRING)}</p>\n"
        + "<h3>Kinds</h3>\n"
        + _definitions(KINDS)
        + "<h3>Marks</h3>\n"
        + _definitions(MARKS)
    )


def _definitions(meanings: Mapping[str, str], *, name: str = "") -> str:
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in meanings.items())
    return f"<dl{f' class={name!r}' if name else ''}>{items}</dl>\n"


def _section(name: str, title: str, content: str) -> str:
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{content}</section>\n'


def _figure(report: ErrorReport, name: str, caption: str) -> str:
    if name not in report.figures:
        return ""
    return f"<figure>{report.figures[name]}<figcaption>{escape(caption)}</figcaption></figure>\n"


def _table(caption: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table whose first column names its rows; keyboards can scroll a wide one."""
    if not rows:
        return f"<p>{escape(caption)}: none.</p>\n"
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(_cells(row))}</tr>" for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{columns}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>\n"
    )


def _cells(row: Sequence[object]) -> Iterator[str]:
    first, *others = row
    yield f'<th scope="row">{escape(str(first))}</th>'
    for value in others:
        is_number = isinstance(value, int)
        shown = f"{value:,}" if is_number else escape(str(value))
        yield f"<td{' class=number' if is_number else ''}>{shown}</td>"

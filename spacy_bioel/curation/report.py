"""Write findings as JSON lines, CSV and HTML; accept those of a baseline; correct a file."""

from __future__ import annotations

import csv
import json
import re
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from spacy_bioel.curation.ids import prefix_key, split_id
from spacy_bioel.curation.pairs import CheckedId, IdVerdict, Meaning, Style
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.html import PAGES
from spacy_bioel.io.jsonl import parse_json
from spacy_bioel.io.open import numbered_lines
from spacy_bioel.text.normalize import escape_formula

FINDING_COLUMNS = ("name", "id", "verdict", "concept with the id", "proposals", "place")
_PLAIN_YAML = re.compile(r"[A-Za-z][\w/+.() -]{0,200}(?<! )")
_NEEDS_QUOTES = re.compile(r'[",;\n]')


def finding_record(finding: CheckedId) -> dict[str, Any]:
    """Return a finding as JSON values."""
    pair, found = finding.pair, finding.found
    return {
        "file": str(pair.place.path),
        "line": pair.place.line,
        "column": pair.at + 1 if pair.at >= 0 else None,
        "cell": pair.cell or None,
        "name": finding.name,
        "id": finding.id,
        "verdict": finding.verdict.value,
        "score": finding.score,
        "found": found and {"id": found.id, "name": found.name},
        "proposals": [{"id": p.id, "name": p.name, "score": p.score} for p in finding.proposals],
        "certain": finding.is_certain,
    }


def finding_cells(finding: CheckedId) -> tuple[str, ...]:
    """Return a finding as the cells of a table, in the order of `FINDING_COLUMNS`."""
    found, verdict = finding.found, finding.verdict.value
    if finding.verdict is IdVerdict.CLOSE and found:
        verdict += f" {found.score:.2f}"
    concept = f"{found.id} {found.name}" if found else ""
    if finding.verdict is IdVerdict.RETIRED:
        concept = f"replaced by {concept}" if found else "no replacement: ask a person"
    proposals = "\n".join(f"{p.id} {p.name} {p.score:.2f}" for p in finding.proposals)
    return finding.name, finding.id, verdict, concept, proposals, finding.pair.where


def write_findings(file: TextIO, suffix: str, findings: Iterable[CheckedId]) -> None:
    """Write findings to a file. RAISES BioelError: [B606] unknown suffix."""
    if suffix == ".jsonl":
        for finding in findings:
            file.write(json.dumps(finding_record(finding), ensure_ascii=False) + "\n")
    elif suffix in (".csv", ".tsv"):
        writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",")
        writer.writerow(FINDING_COLUMNS)
        writer.writerows(map(escape_formula, finding_cells(finding)) for finding in findings)
    elif suffix == ".html":
        page = PAGES.get_template("check.html")
        file.write(page.render(columns=FINDING_COLUMNS, findings=findings, cells_of=finding_cells))
    else:
        raise BioelError(Errors.B606.format(path=suffix))


Accepted = frozenset[tuple[str, str, str]]


def read_baseline(path: Path) -> Accepted:
    """Return ids, names and verdicts that were accepted. RAISES BioelError: [B605] not findings."""
    accepted = []
    for place, line in numbered_lines(path):
        try:
            record = parse_json(line)
            accepted.append((record["id"], record["name"], record["verdict"]))
        except (ValueError, KeyError, TypeError):
            raise BioelError(Errors.B605.format(path=path, line=place.line)) from None
    return frozenset(accepted)


class Edit(NamedTuple):
    """A replacement in a record, which begins at a line."""

    line: int
    at: int
    old: str
    new: str


def edits_of(finding: CheckedId, *, labels: bool) -> Iterator[Edit]:
    """Yield the changes that are certain: of an id that was replaced and, with `labels`, its name.

    labels (bool): Replace synonyms by preferred names.
    """
    pair, found = finding.pair, finding.found
    if found and finding.is_certain and pair.at >= 0 and (new := _respelled(pair.id, found)):
        yield Edit(pair.place.line, pair.at, pair.id, new)
    line, at = finding.name_place()
    is_synonym = finding.verdict is IdVerdict.SYNONYM or (finding.is_certain and finding.score == 1)
    if found and labels and is_synonym and at >= 0 and not re.search(r"[|\n]", found.name):
        yield Edit(line, at, finding.name, found.name)


def _respelled(raw: str, found: Meaning) -> str:
    """Return the id of a concept in the spelling of another id; "" if this is impossible."""
    old, new = split_id(raw), split_id(found.id)
    if old and new and prefix_key(old[0]) == prefix_key(new[0]):
        return raw.removesuffix(old[1]) + new[1]
    return "" if "/" in raw else found.id


def _escaped(edit: Edit, line: str, style: Style) -> str:
    """Return the new string as it has to be written in place of the old one."""
    before, new = line[: edit.at].rstrip(" ")[-1:], edit.new
    in_json = json.dumps(new, ensure_ascii=False)
    if style is Style.JSON or (style is Style.YAML and before == '"'):
        return in_json[1:-1]
    if style is Style.YAML:
        if before == "'":
            return new.replace("'", "''")
        return new if _PLAIN_YAML.fullmatch(new) or ":" in edit.old else in_json
    if style is Style.CSV and before == '"':
        return new.replace('"', '""')
    if style is Style.CSV and _NEEDS_QUOTES.search(new):
        return '"{}"'.format(new.replace('"', '""'))
    return new


def corrected_lines(
    path: Path, edits: Iterable[tuple[Edit, Style]]
) -> Iterator[tuple[int, str, str]]:
    """Yield each line of a file with its number, as it is and as corrected."""
    at_line: dict[int, dict[Edit, Style]] = defaultdict(dict)
    for edit, style in edits:
        at_line[edit.line][edit] = style
    left: dict[Edit, Style] = {}
    with path.open("rb") as file:
        if file.read(len(BOM_UTF8)) == BOM_UTF8:
            yield 0, "\ufeff", "\ufeff"
    for place, line in numbered_lines(path, ends=True):
        here, left = left | at_line.pop(place.line, {}), {}
        new = line
        for edit, style in sorted(here.items(), key=lambda item: -item[0].at):
            if edit.at >= len(line):  # in a row of a table with several lines
                left[edit._replace(at=edit.at - len(line))] = style
            elif line.startswith(edit.old, edit.at):
                end = edit.at + len(edit.old)
                new = new[: edit.at] + _escaped(edit, line, style) + new[end:]
        yield place.line, line, new

"""Convert findings to JSON and table cells, read a baseline of findings, and correct files."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError
from spacy_bioel.io.jsonl import parse_json
from spacy_bioel.io.open import numbered_lines
from spacy_bioel.plugins.curation.errors import CurationErrors
from spacy_bioel.plugins.curation.ids import prefix_key, split_id
from spacy_bioel.plugins.curation.pairs import Cell, CheckedId, IdVerdict

FINDING_COLUMNS = ("name", "id", "verdict", "concept with the id", "proposals", "place")
_NEEDS_QUOTES = re.compile(r'[",;\n]')
_PLAIN_YAML = re.compile(r"[A-Za-z][\w/+.() -]{0,200}(?<! )")


def finding_record(finding: CheckedId) -> dict[str, Any]:
    """Convert a finding to JSON values."""
    cell, found = finding.pair.id, finding.found
    return {
        "file": str(cell.place.path),
        "line": finding.line,
        "column": cell.at + 1 if cell.at >= 0 else None,
        "cell": cell.name or None,
        "name": finding.name,
        "id": finding.id,
        "verdict": finding.verdict.value,
        "score": found.score if found and finding.name else None,
        "found": found and {"id": found.id, "name": found.name},
        "proposals": [meaning._asdict() for meaning in finding.proposals],
        "certain": finding.is_certain,
        "reason": finding.reason or None,
    }


def finding_cells(finding: CheckedId) -> tuple[str, ...]:
    """Convert a finding to table cells, in the order of `FINDING_COLUMNS`."""
    found, verdict = finding.found, finding.verdict.value
    concept = f"{found.id} {found.name}" if found else finding.reason
    if finding.verdict is IdVerdict.CLOSE and found:
        verdict += f" {found.score:.2f}"
    elif finding.verdict is IdVerdict.RETIRED:
        several = "several replacements" if len(finding.proposals) > 1 else "no replacement"
        concept = f"replaced by {concept}" if found else f"{several}: ask a person"
    proposals = "\n".join(
        f"{p.id} {p.name}" + f" (score {p.score:.2f})" * bool(p.score) for p in finding.proposals
    )
    name = re.sub(r"\*\*|`", "", finding.name)
    return f"{name:.200}", finding.id, verdict, concept, proposals, str(finding.pair.id)


def read_baseline(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (id, name, verdict) of accepted findings. RAISES BioelError: [B605] if damaged."""
    for place, line in numbered_lines(path):
        try:
            record = parse_json(line)
            yield record["id"], record["name"], record["verdict"]
        except (ValueError, KeyError, TypeError):
            raise BioelError(CurationErrors.B605.format(path=path, line=place.line)) from None


def corrections_of(finding: CheckedId, *, labels: bool) -> Iterator[tuple[Cell, str]]:
    """Yield cells and their safe corrections: a new id and, with `labels`, the preferred name."""
    id, found = finding.pair.id, finding.found
    if found is None:
        return
    if finding.is_certain:
        old, new = (split_id(text) or ("", "") for text in (id.text, found.id))
        is_other = not new[0] or prefix_key(old[0]) != prefix_key(new[0])
        if id.at < 0 or (is_other and "/" in id.text):  # another vocabulary's address
            return
        yield id, found.id if is_other else id.text.removesuffix(old[1]) + new[1]
    # Keep a name that another concept prefers.
    is_own = finding.verdict in (IdVerdict.AGREES, IdVerdict.SYNONYM) and not finding.proposals
    is_label = is_own or (finding.is_certain and found.score == 1)
    if labels and is_label and not re.search(r"[|\n]", found.name):
        names = (name for name in finding.pair.names if name.text == finding.name)
        yield from ((name, found.name) for name in islice(names, 1) if name.text != found.name)


def _escaped(new: str, style: str, before: str, old: str) -> str:
    """Quote and escape a string as needed in a file of this style."""
    doubled = new.replace(before, 2 * before) if before in ("'", '"') else new
    match style, before:
        case ("json", _) | ("yaml", '"'):
            return json.dumps(new, ensure_ascii=False)[1:-1]
        case ("yaml", "'") | ("csv", '"'):
            return doubled
        case "yaml", _ if not (_PLAIN_YAML.fullmatch(new) or ":" in old):
            return json.dumps(new, ensure_ascii=False)
        case "csv", _ if _NEEDS_QUOTES.search(new):
            return '"{}"'.format(new.replace('"', '""'))
    return new


def corrected_lines(
    path: Path, corrections: Iterable[tuple[Cell, str]], style: str
) -> Iterator[tuple[int, str, str, int]]:
    """Yield each line of a file: its number, the line, the corrected line, and the number of
    corrections skipped because the line spells the text differently, for example with escapes.
    """
    at_line: dict[int, set[tuple[int, str, str]]] = defaultdict(set)
    for cell, changed in corrections:
        at_line[cell.place.line].add((cell.at, cell.text, changed))
    with path.open("rb") as file:
        if file.read(len(BOM_UTF8)) == BOM_UTF8:
            yield 0, "\ufeff", "\ufeff", 0
    for place, line in numbered_lines(path, ends=True):
        new, n_missed = line, 0
        for at, old, changed in sorted(at_line.pop(place.line, ()), reverse=True):
            if at >= len(line):  # on a later line of the table row
                at_line[place.line + 1].add((at - len(line), old, changed))
            elif at >= 0 and line.startswith(old, at):
                before, after = line[:at].rstrip(" ")[-1:], new[at + len(old) :]
                if (was := split_id(old)) and (now := split_id(changed)):  # in the text of a link
                    address = rf"\A(\]\([^()\s]*?){re.escape(was[1])}(?!\w)"
                    after = re.sub(address, rf"\g<1>{now[1]}", after)
                new = new[:at] + _escaped(changed, style, before, old) + after
            else:
                n_missed += 1
        yield place.line, line, new, n_missed

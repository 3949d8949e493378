"""Measurements outside their reference range in clinical notes: "Hb 7.2" means anemia."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

from spacy_bioel.entities.notes.layout import note_tables

# Text between an analyte and its value, or the last of several values. After the value, the pattern
# excludes other units, ranges and dates.
_EQUALS = r"(?:[ \t]{0,20}[:=>|—]){0,2}[ \t]{0,20}"
_ANALYTE_TO_VALUE = rf"(?: (?:level|count|concentration))?(?: (?:was|is|of|at|to))*{_EQUALS}"
_DECIMAL = r"(?:\d{1,3}(?:[, ]\d{3})+|\d+(?:\.\d+)?)"
_EARLIER_VALUES = (
    rf"(?:(?:{_DECIMAL} ?(?:[-=]+>|→) ?)+"
    rf"|(?:(?:fell|dropped|decreased|rose|increased|went) )?from {_DECIMAL} to )?"
)
_VALUE = rf"(?<!\w){_EARLIER_VALUES}(?P<value>{_DECIMAL})"
_NO_OTHER_UNIT = (
    r"(?![-\w/%°→]|[.,]\d| ?(?:[%°µμ→]|-+>|(?:mg|g|mcg|ng|IU|U|units|mL|ml|mEq|meq|mmol)\b))"
)
_OTHER_FLUIDS = re.compile(
    r"\b(?:CSF|urin\w*|pleural|fluid|ascit\w*|sweat|stool)\W+(?:\w+ )?\Z", re.I
)
_MAX_FLUID_DISTANCE = 20  # characters to search before an analyte
# The reference ranges, which are for adults, do not apply at these ages.
_YOUNG = re.compile(
    r"\b(?:infant|newborn|neonat\w*|baby|toddler|child|(?:days?|weeks?|months?)[- ]old"
    r"|(?<!\d)\d[ -]?(?:y/?o|years?[- ]old))\b",
    re.I,
)
_TABLE_ROW = re.compile(r"[\s|*-]*([A-Za-z][A-Za-z0-9]*)[^\n\d]*\d")
MIN_CASELESS_LENGTH = 4  # characters; shorter names are case-sensitive
_ANALYTE_WORD = re.compile(r"(?<![\w/-])[A-Za-z][A-Za-z0-9]*")


def measured(text: str) -> dict[str, str]:
    """Return the findings shown by measurements outside their reference range, by measurement:
    "anemia" for "Hb 7.2 g/dL". If a finding has several names, they are separated by "|".
    """
    findings = {}
    for word in _ANALYTE_WORD.finditer(text):
        for index in _analytes_by_first_word().get(word[0].lower(), ()):
            match = _measurement_pattern(index).match(text, word.start())
            if match is None:
                continue
            fluid_start = max(0, match.start() - _MAX_FLUID_DISTANCE)
            if _OTHER_FLUIDS.search(text, fluid_start, match.start()):
                continue
            analyte = note_tables()["measurements"][index]
            unit = match["unit"] or ""
            value = float(re.sub("[, ]", "", match["value"])) * analyte["units"].get(unit, 1.0)
            low, high = analyte["plausible"]
            if not low <= value <= high or (analyte.get("needs_unit") and not unit):
                continue
            if analyte.get("needs_unit_or_table") and not (unit or _is_in_table(text, match)):
                continue
            for limit in analyte["limits"]:
                is_below = limit["side"] == "below"
                is_out_of_range = value < limit["at"] if is_below else value > limit["at"]
                if is_out_of_range and not (limit.get("adults") and _YOUNG.search(text)):
                    findings[match[0]] = limit["name"]
    return findings


def _is_in_table(text: str, match: re.Match[str]) -> bool:
    """Whether a measurement starts its line and an adjacent line also starts with one."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    line_before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)]
    line_after = text[end + 1 :][:100] if end >= 0 else ""
    has_neighbour = _is_table_row(line_before) or _is_table_row(line_after)
    return has_neighbour and _is_table_row(text[start : match.end()])


def _is_table_row(line: str) -> bool:
    row = _TABLE_ROW.match(line)
    return row is not None and row[1].lower() in _analytes_by_first_word()


@cache
def _analytes_by_first_word() -> dict[str, list[int]]:
    """Return the indices of analytes by the first word of each of their names."""
    indices: dict[str, list[int]] = defaultdict(list)
    for index, analyte in enumerate(note_tables()["measurements"]):
        for first in {_ANALYTE_WORD.match(n)[0] for n in analyte["names"]}:  # type: ignore[index]
            indices[first.lower()].append(index)
    return dict(indices)


@cache
def _measurement_pattern(index: int) -> re.Pattern[str]:
    analyte = note_tables()["measurements"][index]
    names = []
    for name in map(re.escape, sorted(analyte["names"], key=len, reverse=True)):
        names.append(f"(?i:{name})" if len(name) >= MIN_CASELESS_LENGTH else name)
    units = map(re.escape, sorted(analyte["units"], key=len, reverse=True))
    analyte_name = rf"(?:{'|'.join(names)})(?![A-Za-z])"
    second_value = r"/\d{2,3}" if analyte.get("two_values") else ""
    unit = rf"(?:(?:[ \t]?[ |\t]?)(?P<unit>{'|'.join(units)})(?![\w/])|{_NO_OTHER_UNIT})"
    return re.compile(f"{analyte_name}{_ANALYTE_TO_VALUE}{_VALUE}{second_value}{unit}")

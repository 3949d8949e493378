"""?"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

from spacy_bioel.entities.notes.layout import tables

# From the analyte to its value, or to the last one of several, which is not of another fluid;
# behind it no other unit, range or date.
_SIGN = r"(?:[ \t]{0,20}[:=>|—]){0,2}[ \t]{0,20}"
_BETWEEN = rf"(?: (?:level|count|concentration))?(?: (?:was|is|of|at|to))*{_SIGN}"
_NUMBER = r"(?:\d{1,3}(?:[, ]\d{3})+|\d+(?:\.\d+)?)"
_EARLIER = (
    rf"(?:(?:{_NUMBER} ?(?:[-=]+>|→) ?)+"
    rf"|(?:(?:fell|dropped|decreased|rose|increased|went) )?from {_NUMBER} to )?"
)
_VALUE = rf"(?<!\w){_EARLIER}(?P<value>{_NUMBER})"
_BEHIND = r"(?![-\w/%°→]|[.,]\d| ?(?:[%°µμ→]|-+>|(?:mg|g|mcg|ng|IU|U|units|mL|ml|mEq|meq|mmol)\b))"
_OTHERS = re.compile(r"\b(?:CSF|urin\w*|pleural|fluid|ascit\w*|sweat|stool)\W+(?:\w+ )?\Z", re.I)
_BEFORE = 20  # characters
# At these ages other values are normal.
_YOUNG = re.compile(
    r"\b(?:infant|newborn|neonat\w*|baby|toddler|child|(?:days?|weeks?|months?)[- ]old"
    r"|(?<!\d)\d[ -]?(?:y/?o|years?[- ]old))\b",
    re.I,
)
_ROW = re.compile(r"[\s|*-]*([A-Za-z][A-Za-z0-9]*)[^\n\d]*\d")
_LONG = 4  # letters, of a word that no short form in another case is


_WORD = re.compile(r"(?<![\w/-])[A-Za-z][A-Za-z0-9]*")


def measured(text: str) -> dict[str, str]:
    """From measurements out of their reference range, as written, to names of what they show, as
    `known_of` takes them: "Hb 7.2 g/dL" to "anemia".
    """
    found = {}
    is_young: bool | None = None
    for word in _WORD.finditer(text):
        for number in _by_first_word().get(word[0].lower(), ()):
            analyte = tables()["measurements"][number]
            match = _pattern(number).match(text, word.start())
            if match is None or _OTHERS.search(
                text, max(0, match.start() - _BEFORE), match.start()
            ):
                continue
            unit = match["unit"] or ""
            value = float(re.sub("[, ]", "", match["value"])) * analyte["units"].get(unit, 1.0)
            low, high = analyte["plausible"]
            if not low <= value <= high or (analyte.get("needs_unit") and not unit):
                continue
            if analyte.get("needs_unit_or_table") and not (unit or _is_in_table(text, match)):
                continue
            for limit in analyte["limits"]:
                if value < limit["at"] if limit["side"] == "below" else value > limit["at"]:
                    if limit.get("adults") and is_young is None:
                        is_young = bool(_YOUNG.search(text))
                    if not (limit.get("adults") and is_young):
                        found[match[0]] = limit["name"]
    return found


def _is_in_table(text: str, match: re.Match[str]) -> bool:
    """Whether a measurement begins its line, and another one the line before or behind."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)]
    behind = text[end + 1 :][:100] if end >= 0 else ""
    rows = (_ROW.match(line) for line in (text[start : match.end()], before, behind))
    own, *others = (row and row[1].lower() in _by_first_word() for row in rows)
    return bool(own and any(others))


@cache
def _by_first_word() -> dict[str, list[int]]:
    """Numbers of the analytes whose names begin with a word."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, analyte in enumerate(tables()["measurements"]):
        for word in {_WORD.match(name)[0] for name in analyte["names"]}:  # type: ignore[index]
            numbers[word.lower()].append(number)
    return dict(numbers)


@cache
def _pattern(number: int) -> re.Pattern[str]:
    analyte = tables()["measurements"][number]
    longest = (sorted(analyte[key], key=len, reverse=True) for key in ("names", "units"))
    names, units = ([re.escape(one) for one in of] for of in longest)
    names = [f"(?i:{name})" if len(name) >= _LONG else name for name in names]
    second = r"/\d{2,3}" if analyte.get("two_values") else ""
    unit = rf"(?:(?:[ \t]?[ |\t]?)(?P<unit>{'|'.join(units)})(?![\w/])|{_BEHIND})"
    return re.compile(rf"(?:{'|'.join(names)})(?![A-Za-z]){_BETWEEN}{_VALUE}{second}{unit}")

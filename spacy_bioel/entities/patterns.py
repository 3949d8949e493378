"""Find words in and next to names, using the patterns in assets/patterns.tsv.

A row has a use, a regular expression, an example that it matches, and a counterexample that no row
with this use matches. The file begins with a list of the uses. Tests run the examples.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from spacy_bioel.kb.bundled import ASSETS_FOLDER

# Patterns for the text between a name and a use's words; ROWS is a placeholder for these words.
_BETWEEN = {
    "before a gene": r"\b(?:ROWS)(?: (?:of|for|in|to|against|with|encoding))?(?: the)?"
    r"(?: human| mouse| rat)?[ (]$",
    "after a chemical": r"(?P<word>(?P<singular>(?:[ -][a-z]+){0,2}[ -](?:ROWS))s?)"
    r"(?: [A-Z]?\d{1,2}[A-Z]?| [IVX]{1,3}| (?:alpha|beta|gamma))?(?![\w-])",
    # Matches the text before the code in "cat. no. A4503G" and "wells A12G to".
    "before a code": r"(?:ROWS)(?:[ :#(\[]{0,3}(?:no|nos|numbers?|codes?|id|ref|names?|registration"
    r"|was|were|is|are|as|one|primers?|the|called|named|labelled)\b\.?){0,4}[ :#(\[\"']{0,3}"
    r"(?:[A-Z]\w{2,11},? (?:and|or|to) |[A-Z]\w{2,11}, )?$",
    "before a laboratory animal": r"(?:ROWS)(?:tumou?r\s)?(?:in\s(?:nude\s|SCID\s|athymic\s)?)?$",
}
_WHOLE = {"code", "not a chemical"}  # uses whose rows match a whole string
_CASED = {*_WHOLE, "after a chemical"}  # uses whose rows are case-sensitive
_SEARCHED = 70  # the number of characters to search before a name


def pattern_rows() -> dict[str, list[str]]:
    """Read the regular expressions for each context, such as "before a gene"."""
    rows_of: dict[str, list[str]] = {}
    for line in (ASSETS_FOLDER / "patterns.tsv").read_text("utf8").splitlines():
        if line[:1] != "#":
            use, pattern, *_ = line.split("\t")
            rows_of.setdefault(use, []).append(pattern)
    return rows_of


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Compile each use's rows into a single pattern."""
    return {use: joined(use, rows) for use, rows in pattern_rows().items()}


def joined(use: str, rows: Sequence[str]) -> re.Pattern[str]:
    """Compile regular expressions into one pattern, treating them as rows of the given use."""
    words = [row.removeprefix(r"\b") for row in rows if row.startswith(r"\b")]
    others = [row for row in rows if not row.startswith(r"\b")]
    # Trying words only at word boundaries in the text is several times faster.
    rows = [*others, rf"\b(?:{'|'.join(words)})"] if words else others
    whole = _BETWEEN.get(use, "ROWS").replace("ROWS", "|".join(rows))
    return re.compile(whole, re.NOFLAG if use in _CASED else re.IGNORECASE)


def find_words(use: str, text: str, start: int = 0, end: int | None = None) -> re.Match[str] | None:
    """Find a use's words in text[start:end], or before or after it, depending on the use."""
    pattern = patterns()[use]
    end = len(text) if end is None else end
    if use.startswith("before "):
        return pattern.search(text[max(0, start - _SEARCHED) : start])
    if use.startswith("after "):
        return pattern.match(text, end)
    return (pattern.fullmatch if use in _WHOLE else pattern.search)(text, start, end)


def is_code(text: str, start: int, end: int) -> bool:
    """Whether text[start:end] is a code rather than a name: it has digits, and looks like a code
    or follows words such as "cat. no."; or it is "cat" before a catalogue number."""
    mention = text[start:end]
    if mention.lower() == "cat":
        return find_words('after "cat"', text, start, end) is not None
    if not any(map(str.isdigit, mention)) or " " in mention:
        return False
    return any(find_words(use, text, start, end) for use in ("code", "before a code"))

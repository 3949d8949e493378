"""OBO, line by line: ids and names strictly, other fields as far as they are understood."""

from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterator

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.io.open import numbered_lines, open_text
from spacy_bioel.io.records import curie, one_record, unique_names
from spacy_bioel.types import Concept

# "property_value: terms:license https://..."; Dublin Core has many prefixes.
_LICENCE = re.compile(r'property_value:\s*\S*\blicen[cs]e\s+(?:"([^"]*)"|(\S+))')
_STANZA = re.compile(r"\[(\w+)\]\s*(?:!.*)?")
_FIELD = re.compile(r"([A-Za-z][\w-]*)\s*:\s*(.*)", re.S)
# Behind a value may be modifiers, {source="X:1"}, and a comment, ! words.
_ID = re.compile(r"((?:[^\s\\!{]|\\.)+)\s*(?:[!{].*)?", re.S)
_XREF = re.compile(r'((?:[^\s\\!{"]|\\.)+)\s*(?:["!{].*)?', re.S)
# Names of chemicals have braces of their own.
_WORDS = re.compile(r'((?:[^\\!{]|\\.|\{(?![\w:.-]+="))*)(?:[!{].*)?', re.S)
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"\s*(\w*).*', re.S)
_ESCAPED = re.compile(r"\\(.)", re.S)
_WHITE = {"n": "\n", "t": "\t", "W": " ", "\n": ""}
SCOPES = ("EXACT", "NARROW", "BROAD", "RELATED")
_PATTERNS = {
    **dict.fromkeys(("id", "is_a", "alt_id", "replaced_by"), (_ID, "an id")),
    **dict.fromkeys(("name", "namespace", "default-namespace"), (_WORDS, "words")),
    "is_obsolete": (re.compile(r"(true|false)\b.*"), "true or false"),
    "synonym": (_QUOTED, "words in double quotes"),
    "def": (_QUOTED, ""),
    "xref": (_XREF, ""),
}
_OPTIONAL = ("def", "xref")
_LOGGER = logging.getLogger(__name__)

_Lines = list[tuple[int, str]]


class _Problem(Exception):
    """A line that is not understood. ARGS: its number, the line, what was expected."""


def read_obo_lines(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[Concept]:
    """Stream the terms of an .obo file, see `read_obo`.

    Cross-references and definitions that are not understood are left out, with a warning [W477];
    fields that concepts do not have are not looked at.

    RAISES BioelError: [B116] a line that is no field, or one of ids and names that is not
        understood; errors of `numbered_lines`.
    """
    namespace = ""
    unread: _Lines = []
    for kind, lines in _stanzas(path):
        try:
            if kind == "Term":
                yield from _concepts(lines, namespace, prefix, unread)
            elif not kind:
                namespace = "".join(_fields(lines, unread)["default-namespace"])
        except _Problem as problem:
            number, row, expected = problem.args
            with one_record(path, number):
                row = row.strip()[:80]
                raise BioelError(
                    Errors.B116.format(path=path, line=number, expected=expected, row=row)
                ) from None
    if unread:
        number, row = unread[0]
        _LOGGER.warning(Warnings.W477.format(path=path, n=len(unread), line=number, row=row[:80]))


def read_obo_header(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Read release and licence from the header of an .obo file.

    RETURNS (tuple[str, str]): Values of "data-version" and of the property "license"; "" if the
        header does not have them, and for .owl and OBO JSON.
    RAISES BioelError: Errors of `open_text`.
    """
    release = licence = ""
    with open_text(path, errors="replace") as file:  # what follows the header may be wrong
        for line in file:
            if line.startswith(("[", "<", "{")):  # the first term, or another format
                break
            if line.startswith("data-version:"):
                release = line.partition(":")[2].strip()
            elif match := _LICENCE.match(line):
                licence = match[1] or match[2] or ""
    return release, licence


def _stanzas(path: str | os.PathLike[str]) -> Iterator[tuple[str, _Lines]]:
    """Kind and lines of each stanza, the line [KIND] first; the kind of the header is ""."""
    kind, lines = "", [(1, "")]
    continued = False
    for number, line in numbered_lines(path):
        if continued:
            lines[-1] = (lines[-1][0], f"{lines[-1][1]}\n{line}")
        elif match := _STANZA.fullmatch(line):
            yield kind, lines
            kind, lines = match[1], [(number, line)]
        elif line.strip() and not line.startswith("!"):
            lines.append((number, line))
        else:
            continue
        # One backslash at the end continues the line, two are the character itself.
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
    yield kind, lines


def _fields(lines: _Lines, unread: _Lines) -> dict[str, list[str]]:
    """Values of the fields of a stanza that are read; names of synonyms are under their scopes.

    unread (list[tuple[int, str]]): Gets the lines of optional fields that are not understood.
    """
    fields: dict[str, list[str]] = defaultdict(list)
    for number, line in lines[1:]:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise _Problem(number, line, "TAG: VALUE")
        tag, value = field.groups()
        scope, _, kind = tag.rpartition("_")  # "exact_synonym" is of OBO 1.0
        pattern, expected = _PATTERNS.get("synonym" if kind == "synonym" else tag, (None, ""))
        if pattern is None:
            continue
        match = pattern.fullmatch(value)
        if match is not None:
            if kind == "synonym":
                scope = scope.upper() or match[2]
                tag = scope if scope in SCOPES else "RELATED"
            fields[tag].append(_ESCAPED.sub(_unescaped, match[1]).strip())
        elif tag in _OPTIONAL:
            unread.append((number, line))
        else:
            raise _Problem(number, line, f"{tag}: {expected}")
    return fields


def _unescaped(match: re.Match[str]) -> str:
    return _WHITE.get(match[1], match[1])


def _concepts(lines: _Lines, namespace: str, prefix: str, unread: _Lines) -> Iterator[Concept]:
    """Concept of a term, then its alternate ids."""
    fields = _fields(lines, unread)

    def ids(tag: str) -> list[str]:
        return sorted({curie(value, prefix) for value in fields[tag]})

    if len(ids("id")) != 1:
        raise _Problem(*lines[0], "a term with one id")
    (term_id,) = ids("id")
    synonyms = [name for scope in SCOPES for name in sorted(fields[scope])]
    names = unique_names([*fields["name"], *synonyms])
    if "true" in fields["is_obsolete"]:
        if replacements := ids("replaced_by"):
            yield Concept(term_id, names, replaced_by=replacements[0])
    elif any(fields["name"]):
        types = fields["namespace"] or [namespace]
        yield Concept(
            term_id,
            names,
            types=tuple(filter(None, types)),
            parents=tuple(ids("is_a")),
            definition="".join(fields["def"][:1]),
            xrefs=tuple(sorted(set(fields["xref"]))),
        )
        for alternate in ids("alt_id"):
            yield Concept(alternate, (), replaced_by=term_id)

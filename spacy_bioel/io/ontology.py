"""Readers for OBO, OWL, OBO JSON, cellxgene-ontology-guide JSON and MeSH XML.

`pronto` parses OWL and OBO JSON. OBO is read line by line; malformed optional
fields are skipped.
"""

from __future__ import annotations

import io
import re
import warnings
from codecs import BOM_UTF8
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.io.jsonl import parse_json, read_json
from spacy_bioel.io.open import (
    Place,
    StrPath,
    curie,
    iter_xml,
    misspelt,
    numbered_lines,
    open_binary,
    open_text,
    skip_if_bad,
    tree_types,
    unique_names,
    warn_unread,
)
from spacy_bioel.types import Concept

# Matches "property_value: terms:license https://...", with any Dublin Core prefix.
_LICENCE = re.compile(r'property_value:\s*\S*\blicen[cs]e\s+(?:"([^"]*)"|(\S+))')
_STANZA = re.compile(r"\[(\w+)\]\s*(?:!.*)?")
_FIELD = re.compile(r"([A-Za-z][\w-]*)\s*:\s*(.*)", re.S)
# A value may be followed by modifiers, such as {source="X:1"}, and a comment, such as "! words".
_OBO_ID = re.compile(r"((?:[^\s\\!{]|\\.)+)\s*(?:[!{].*)?", re.S)
_XREF = re.compile(r'((?:[^\s\\!{"]|\\.)+)\s*(?:["!{].*)?', re.S)
# Braces may also be part of a chemical name.
_OBO_TEXT = re.compile(r'((?:[^\\!{]|\\.|\{(?![\w:.-]+="))*)(?:[!{].*)?', re.S)
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"\s*(\w*).*', re.S)
_ESCAPED = re.compile(r"\\(.)", re.S)
_ESCAPED_SPACES = {"n": "\n", "t": "\t", "W": " ", "\n": ""}
_SYNONYM_SCOPES = ("EXACT", "NARROW", "BROAD", "RELATED")
# Maps each tag to a pattern for its value and a description for error messages.
_VALUE_PATTERNS = {
    **dict.fromkeys(("id", "is_a", "alt_id", "replaced_by", "consider"), (_OBO_ID, "an id")),
    **dict.fromkeys(("name", "namespace", "default-namespace"), (_OBO_TEXT, "words")),
    "is_obsolete": (re.compile(r"(true|false)\b.*"), "true or false"),
    "synonym": (_QUOTED, "words in double quotes"),
    "def": (_QUOTED, ""),
    "xref": (_XREF, ""),
}
_OPTIONAL_TAGS = ("def", "xref")
_READ_TAGS = (*_VALUE_PATTERNS, *(f"{scope.lower()}_synonym" for scope in _SYNONYM_SCOPES))
# Valid term tags in OBO 1.0 to 1.4 that are not read.
_OTHER_TAGS = frozenset(
    "builtin comment created_by creation_date disjoint_from equivalent_to intersection_of "
    "is_anonymous property_value relationship subset union_of use_term xref_analog "
    "xref_unknown".split()
)
_STANZAS = ("Term", "Typedef", "Instance")

_Lines = list[tuple[Place, str]]
_Fields = Mapping[str, Sequence[str]]


def read_obo(path: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Stream the terms in an .obo file.

    Imports are not followed. Obsolete terms become retired concepts, with or without a replacement,
    and alternate ids become retired concepts without names. Malformed cross-references and
    definitions are skipped with a warning [W477]. Fields without a counterpart in `Concept` are
    ignored; tags that OBO does not define are counted in a warning [W479].

    YIELDS (Concept): Names are the label, then the exact, narrow, broad and related synonyms.
    RAISES BioelError: [B116] for a malformed line, or a tag or stanza that is probably misspelt.
    """
    namespace = ""
    malformed: _Lines = []
    unread = Counter[str]()
    for kind, lines in obo_stanzas(path):
        with skip_if_bad(lines[0][0]):
            if kind == "Term":
                fields = _parse_fields(lines, malformed, unread)
                if len({curie(value, prefix) for value in fields["id"]}) != 1:
                    raise _line_error(*lines[0], "a term with one id")
                yield from _term_concepts(fields, namespace, prefix)
            elif not kind:
                namespace = "".join(_parse_fields(lines, malformed, Counter())["default-namespace"])
            elif kind not in _STANZAS:
                unread[f"[{kind}]"] += 1
    if malformed:
        (_, number, _), row = malformed[0]
        LOGGER.warning(Warnings.W477.format(path=path, n=len(malformed), line=number, row=row[:80]))
    warn_unread(path, "tags", unread)


def read_obo_header(path: StrPath) -> tuple[str, str]:
    """Read the release and licence from an .obo file's header.

    RETURNS (tuple[str, str]): Values of "data-version" and the "license" property; "" if missing.
    """
    release = licence = ""
    with open_text(path, errors="replace") as file:  # terms may contain bad bytes
        for line in file:
            if line.startswith("["):  # the first term
                break
            if line.startswith("data-version:"):
                release = line.partition(":")[2].strip()
            elif match := _LICENCE.match(line):
                licence = match[1] or match[2] or ""
    return release, licence


def obo_stanzas(
    path: StrPath, read: Iterable[tuple[Place, str]] | None = None
) -> Iterator[tuple[str, _Lines]]:
    """Yield each stanza's kind ("" for the header) and its lines, including the [KIND] line.

    read (Iterable | None): Lines of the file, if the file has already been read.
    RAISES BioelError: [B116] for a stanza that is probably meant as [Term].
    """
    kind, lines = "", [(Place(path, 1), "")]
    continued = False
    for where, line in read or numbered_lines(path):
        line = line.rstrip("\r\n")
        if continued:
            lines[-1] = (lines[-1][0], f"{lines[-1][1]}\n{line}")
        elif match := _STANZA.fullmatch(line):
            yield kind, lines
            kind, lines = match[1], [(where, line)]
            if kind not in _STANZAS and misspelt(kind, _STANZAS) == "Term":
                with skip_if_bad(where):
                    raise _line_error(where, line, "[Term]")
        elif line.strip() and not line.startswith("!"):
            lines.append((where, line))
        else:
            continue
        # A single trailing backslash continues the line; two are an escaped backslash.
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
    yield kind, lines


def _parse_fields(lines: _Lines, malformed: _Lines, unread: Counter[str]) -> dict[str, list[str]]:
    """Group values by tag (synonyms by scope), appending malformed optional lines to `malformed`.

    unread (Counter): Counts the tags that OBO does not define.
    """
    fields: dict[str, list[str]] = defaultdict(list)
    for where, line in lines[1:]:
        if (field := _FIELD.fullmatch(line)) is None:
            raise _line_error(where, line, "TAG: VALUE")
        tag, value = field.groups()
        scope, _, kind = tag.rpartition("_")  # "exact_synonym" in OBO 1.0
        key = "synonym" if kind == "synonym" else tag
        if key not in _VALUE_PATTERNS:
            if tag not in _OTHER_TAGS:
                meant = "" if tag in unread else misspelt(tag, (*_READ_TAGS, *_OTHER_TAGS))
                if meant in _READ_TAGS:
                    raise _line_error(where, line, f"{meant}:")
                unread[tag] += 1
            continue
        pattern, expected = _VALUE_PATTERNS[key]
        if match := pattern.fullmatch(value):
            if kind == "synonym":
                scope = scope.upper() or match[2]
                tag = scope if scope in _SYNONYM_SCOPES else "RELATED"
            unescaped = _ESCAPED.sub(lambda m: _ESCAPED_SPACES.get(m[1], m[1]), match[1])
            fields[tag].append(unescaped.strip())
        elif tag in _OPTIONAL_TAGS:
            malformed.append((where, line))
        else:
            raise _line_error(where, line, f"{tag}: {expected}")
    return fields


def _line_error(where: Place, line: str, expected: str) -> BioelError:
    """Record the line as the bad record's location, and return a B116 error."""
    with skip_if_bad(where):
        pass
    return BioelError(Errors.B116.format(where=where, expected=expected, row=line.strip()[:80]))


def _term_concepts(fields: _Fields, namespace: str, prefix: str) -> Iterator[Concept]:
    """Yield the concept for a term, then a retired concept for each alternate id."""

    def ids(tag: str) -> list[str]:
        return sorted({curie(value, prefix) for value in fields.get(tag, ())})

    (term_id,) = ids("id")
    synonyms = [name for scope in _SYNONYM_SCOPES for name in sorted(fields.get(scope, ()))]
    names = unique_names([*fields.get("name", ()), *synonyms])
    if "true" in fields.get("is_obsolete", ()):
        replacements = ids("replaced_by")  # if there are several, the user must choose
        yield from (Concept(term_id, names, replaced_by=other) for other in replacements)
        if not replacements:
            yield Concept(term_id, names, consider=tuple(ids("consider")))
    elif any(fields.get("name", ())):
        yield Concept(
            term_id,
            names,
            types=tuple(filter(None, fields.get("namespace") or [namespace])),
            parents=tuple(ids("is_a")),
            definition="".join(fields.get("def", ())[:1]),
            xrefs=tuple(sorted(set(fields.get("xref", ())))),
        )
        for alternate in ids("alt_id"):
            yield Concept(alternate, (), replaced_by=term_id)


def read_owl(path: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Yield the terms in an OWL or OBO JSON (obographs) file, following the rules of `read_obo`.

    The whole file is read into memory.
    """
    import pronto

    with open_binary(path) as file:
        content = file.read()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # pronto's OBO JSON parser (written in Rust) hangs on deeply nested lists.
            if not content.lstrip(BOM_UTF8).lstrip().startswith(b"<"):
                parse_json(content.decode("utf-8-sig"))
            # Without an explicit encoding, pronto guesses from the first bytes, sometimes wrongly.
            ontology = pronto.Ontology(io.BytesIO(content), import_depth=0, encoding="utf-8")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # parsers raise all sorts of errors, and Rust panics
            raise BioelError(Errors.B119.format(path=path, error=error)) from error
    # pronto parses in threads, so the order of terms varies from run to run.
    for term in sorted(ontology.terms(), key=lambda term: term.id):
        fields: dict[str, list[str]] = defaultdict(list)
        for synonym in term.synonyms:
            fields[synonym.scope or "RELATED"].append(synonym.description)
        fields |= {
            "id": [term.id],
            "name": [term.name or ""],
            "is_obsolete": ["true"] if term.obsolete else [],
            # Use ids rather than terms, because a replacement may be in another ontology.
            "replaced_by": list(term.replaced_by.ids),
            "consider": list(term.consider.ids),
            "is_a": [parent.id for parent in term.superclasses(distance=1, with_self=False)],
            "namespace": [term.namespace] if term.namespace else [],
            "def": [str(term.definition or "")],
            "xref": [xref.id for xref in term.xrefs],
            "alt_id": list(term.alternate_ids),
        }
        yield from _term_concepts(fields, ontology.metadata.default_namespace or "", prefix)


# Optional fields of a cellxgene term and their types; any of them may be null.
_CELLXGENE_FIELDS = {
    "synonyms": list, "ancestors": dict, "description": str, "replaced_by": str, "consider": list,
}  # fmt: skip


def read_cellxgene_json(path: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Yield the terms in a cellxgene-ontology-guide file: {id: {label, ...}}.

    Deprecated terms become retired concepts, with or without a replacement. Parents are the
    ancestors at distance 1. The whole file is read into memory.
    """
    for term_id, term in read_json(path, dict, problem=Errors.B120).items():
        with skip_if_bad(Place(path)):
            if problem := _layout_problem(term):
                raise BioelError(Errors.B120.format(path=path, found=f"{term_id!r} {problem}"))
            replacement = curie(term.get("replaced_by") or "", prefix)
            if term.get("deprecated") and not replacement:
                others = tuple(curie(id, prefix) for id in term.get("consider") or ())
                yield Concept(curie(term_id, prefix), (term["label"],), consider=others)
                continue
            ancestors = term.get("ancestors") or {}
            yield Concept(
                curie(term_id, prefix),
                unique_names([term["label"], *(term.get("synonyms") or [])]),
                parents=tuple(curie(key, prefix) for key, far in ancestors.items() if far == 1),
                definition=term.get("description") or "",
                replaced_by=replacement if term.get("deprecated") else "",
            )


def _layout_problem(term: object) -> str:
    """Describe what makes a cellxgene-ontology-guide term invalid, or return "" if it is valid."""
    if not isinstance(term, dict) or not isinstance(term.get("label"), str):
        return "without 'label'"
    for key, expected in _CELLXGENE_FIELDS.items():
        if not isinstance(term.get(key) or expected(), expected):
            return f"with {key!r} of type {type(term[key]).__name__}"
    if not all(isinstance(name, str) for name in term.get("synonyms") or []):
        return "with a synonym that is not a string"
    known = ("label", "deprecated", *_CELLXGENE_FIELDS)
    for key in term:
        if key not in known and (meant := misspelt(key, known)):
            return f"with {key!r}, expected {meant!r}"
    return ""


_MAPPED_HEADING = "HeadingMappedToList/HeadingMappedTo/DescriptorReferredTo/DescriptorUI"
_SCOPE_NOTE = "ConceptList/Concept[@PreferredConceptYN='Y']/ScopeNote"


def read_mesh_xml(path: StrPath, *, prefix: str = "MESH") -> Iterator[Concept]:
    """Stream MeSH descriptors or supplementary records, depending on the file's root element.

    A descriptor's types and parents are derived from its tree numbers, so the file is read twice;
    only the tree is kept in memory. A supplementary record's parents are its mapped headings; it
    has no types. Names are the heading, the preferred concept's terms, then all other terms.
    """
    with open_text(path) as file:
        root = re.search("<(Supplemental|Descriptor)RecordSet", file.read(4096))
    if root is None:
        raise BioelError(Errors.B121.format(path=path))
    tag = f"{root[1]}Record"
    kind = "Descriptor" if tag == "DescriptorRecord" else tag  # prefix of child element names
    ui_of_tree = {
        tree: record.findtext("DescriptorUI", "").strip()
        for record in (iter_xml(path, tag) if kind == "Descriptor" else ())
        for tree in _trees(record)
    }
    for record in iter_xml(path, tag):
        with skip_if_bad(Place(path)):
            ui = record.findtext(f"{kind}UI", "").strip()
            heading = record.findtext(f"{kind}Name/String", "").strip()
            if not ui or not heading:
                raise BioelError(Errors.B122.format(path=path, kind=kind, ui=ui, name=heading))
            parts = record.findall("ConceptList/Concept")
            parts.sort(key=lambda part: part.get("PreferredConceptYN") != "Y")
            terms = [t.findtext("String", "") for p in parts for t in p.iterfind("TermList/Term")]
            trees = _trees(record)
            parents = [ui_of_tree.get(tree.rpartition(".")[0], "") for tree in trees]
            # Strip the star that marks headings used for indexing articles.
            parents += [(e.text or "").lstrip("*") for e in record.iterfind(_MAPPED_HEADING)]
            scope = record.findtext(_SCOPE_NOTE) or record.findtext("Note") or ""
            yield Concept(
                curie(ui, prefix),
                unique_names([heading, *terms]),
                tree_types(trees),
                tuple(dict.fromkeys(curie(parent, prefix) for parent in parents if parent)),
                " ".join(scope.split()),
            )


def _trees(record: Element) -> list[str]:
    return [(e.text or "").strip() for e in record.iterfind("TreeNumberList/TreeNumber")]

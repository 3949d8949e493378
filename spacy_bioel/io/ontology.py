"""OBO, OWL and OBO JSON (these two by `pronto`), JSON of cellxgene-ontology-guide, and MeSH XML.

OBO is read line by line: ids and names strictly, other fields as far as they are understood.
"""

from __future__ import annotations

import io
import re
import warnings
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.io.jsonl import iter_json_object, parse_json
from spacy_bioel.io.open import (
    Place,
    StrPath,
    curie,
    iter_xml,
    numbered_lines,
    one_record,
    open_binary,
    open_text,
    tree_types,
    unique_names,
)
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
_SCOPES = ("EXACT", "NARROW", "BROAD", "RELATED")
_PATTERNS = {
    **dict.fromkeys(("id", "is_a", "alt_id", "replaced_by"), (_ID, "an id")),
    **dict.fromkeys(("name", "namespace", "default-namespace"), (_WORDS, "words")),
    "is_obsolete": (re.compile(r"(true|false)\b.*"), "true or false"),
    "synonym": (_QUOTED, "words in double quotes"),
    "def": (_QUOTED, ""),
    "xref": (_XREF, ""),
}
_OPTIONAL = ("def", "xref")

_Lines = list[tuple[Place, str]]
_Fields = Mapping[str, Sequence[str]]


def read_obo(path: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Stream the terms of an .obo file.

    Imports are not followed. Obsolete terms are kept only if they have a replacement. Alternate ids
    become retired concepts without names. Cross-references and definitions that are not understood
    are left out, with a warning [W477]; fields that concepts do not have are not looked at.

    YIELDS (Concept): Names are the label, then the synonyms: exact, narrow, broad, related.
    """
    namespace = ""
    unread: _Lines = []
    for kind, lines in _stanzas(path):
        with one_record(lines[0][0]):
            if kind == "Term":
                fields = _fields(lines, unread)
                if len({curie(value, prefix) for value in fields["id"]}) != 1:
                    raise _not_understood(*lines[0], "a term with one id")
                yield from _concepts(fields, namespace, prefix)
            elif not kind:
                namespace = "".join(_fields(lines, unread)["default-namespace"])
    if unread:
        (_, number), row = unread[0]
        LOGGER.warning(Warnings.W477.format(path=path, n=len(unread), line=number, row=row[:80]))


def read_obo_header(path: StrPath) -> tuple[str, str]:
    """Read release and licence from the header of an .obo file.

    RETURNS (tuple[str, str]): Values of "data-version" and of the property "license"; "" if the
        header does not have them.
    """
    release = licence = ""
    with open_text(path, errors="replace") as file:  # what follows the header may be wrong
        for line in file:
            if line.startswith("["):  # the first term
                break
            if line.startswith("data-version:"):
                release = line.partition(":")[2].strip()
            elif match := _LICENCE.match(line):
                licence = match[1] or match[2] or ""
    return release, licence


def _stanzas(path: StrPath) -> Iterator[tuple[str, _Lines]]:
    """Yield kind and lines of each stanza, the line [KIND] first; the kind of the header is ""."""
    kind, lines = "", [(Place(path, 1), "")]
    continued = False
    for where, line in numbered_lines(path):
        if continued:
            lines[-1] = (lines[-1][0], f"{lines[-1][1]}\n{line}")
        elif match := _STANZA.fullmatch(line):
            yield kind, lines
            kind, lines = match[1], [(where, line)]
        elif line.strip() and not line.startswith("!"):
            lines.append((where, line))
        else:
            continue
        # One backslash at the end continues the line, two are the character itself.
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
    yield kind, lines


def _fields(lines: _Lines, unread: _Lines) -> dict[str, list[str]]:
    """Values of the fields of a stanza that are read; names of synonyms are under their scopes.

    unread (list): Gets the lines of optional fields that are not understood.
    """
    fields: dict[str, list[str]] = defaultdict(list)
    for where, line in lines[1:]:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise _not_understood(where, line, "TAG: VALUE")
        tag, value = field.groups()
        scope, _, kind = tag.rpartition("_")  # "exact_synonym" is of OBO 1.0
        pattern, expected = _PATTERNS.get("synonym" if kind == "synonym" else tag, (None, ""))
        if pattern is None:
            continue
        match = pattern.fullmatch(value)
        if match is not None:
            if kind == "synonym":
                scope = scope.upper() or match[2]
                tag = scope if scope in _SCOPES else "RELATED"
            unescaped = _ESCAPED.sub(lambda found: _WHITE.get(found[1], found[1]), match[1])
            fields[tag].append(unescaped.strip())
        elif tag in _OPTIONAL:
            unread.append((where, line))
        else:
            raise _not_understood(where, line, f"{tag}: {expected}")
    return fields


def _not_understood(where: Place, line: str, expected: str) -> BioelError:
    with one_record(where):  # the place of a bad record is this line
        pass
    return BioelError(Errors.B116.format(where=where, expected=expected, row=line.strip()[:80]))


def _concepts(fields: _Fields, namespace: str, prefix: str) -> Iterator[Concept]:
    """Yield the concept of a term, then its alternate ids."""

    def ids(tag: str) -> list[str]:
        return sorted({curie(value, prefix) for value in fields.get(tag, ())})

    (term_id,) = ids("id")
    synonyms = [name for scope in _SCOPES for name in sorted(fields.get(scope, ()))]
    names = unique_names([*fields.get("name", ()), *synonyms])
    if "true" in fields.get("is_obsolete", ()):
        if replacements := ids("replaced_by"):
            yield Concept(term_id, names, replaced_by=replacements[0])
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
    """Yield the terms of an OWL or OBO JSON (obographs) file, as `read_obo` does.

    The whole file is in memory.
    """
    import pronto

    with open_binary(path) as file:
        content = file.read()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # pronto's parser of OBO JSON, in Rust, does not return if lists are nested too deep.
            if not content.lstrip(BOM_UTF8).lstrip().startswith(b"<"):
                parse_json(content.decode("utf-8-sig"))
            # Without an encoding pronto guesses one from the first bytes, sometimes wrongly.
            ontology = pronto.Ontology(io.BytesIO(content), import_depth=0, encoding="utf-8")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # each parser has its own errors; the one in Rust panics
            raise BioelError(Errors.B119.format(path=path, error=error)) from error
    # Its parsers are threads, which end in any order.
    for term in sorted(ontology.terms(), key=lambda term: term.id):
        fields: dict[str, list[str]] = defaultdict(list)
        for synonym in term.synonyms:
            fields[synonym.scope or "RELATED"].append(synonym.description)
        fields |= {
            "id": [term.id],
            "name": [term.name or ""],
            "is_obsolete": ["true"] if term.obsolete else [],
            # Ids, not terms, since the replacement may be in another ontology.
            "replaced_by": list(term.replaced_by.ids),
            "is_a": [above.id for above in term.superclasses(distance=1, with_self=False)],
            "namespace": [term.namespace] if term.namespace else [],
            "def": [str(term.definition or "")],
            "xref": [xref.id for xref in term.xrefs],
            "alt_id": list(term.alternate_ids),
        }
        yield from _concepts(fields, ontology.metadata.default_namespace or "", prefix)


# Optional fields of a cellxgene term, and their types if they are not null.
_CELLXGENE = {"synonyms": list, "ancestors": dict, "description": str, "replaced_by": str}


def read_cellxgene_json(path: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Yield the terms of an ontology file of cellxgene-ontology-guide: {id: {label, ...}}.

    Deprecated terms are kept only if they have a replacement. Parents are the ancestors at
    distance 1. Terms are streamed, since NCBITaxon has a million, each with all ancestors.
    """
    for term_id, term in iter_json_object(path, problem=Errors.B120):
        with one_record(Place(path)):
            if problem := _layout_problem(term):
                raise BioelError(Errors.B120.format(path=path, found=f"{term_id!r} {problem}"))
            replacement = curie(term.get("replaced_by") or "", prefix)
            if term.get("deprecated") and not replacement:
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
    """Return the problem of an entry that is not a term of cellxgene-ontology-guide, or ""."""
    if not isinstance(term, dict) or not isinstance(term.get("label"), str):
        return "without 'label'"
    for key, expected in _CELLXGENE.items():
        if not isinstance(term.get(key) or expected(), expected):
            return f"with {key!r} of the type {type(term[key]).__name__}"
    if not all(isinstance(name, str) for name in term.get("synonyms") or []):
        return "with a synonym that is no text"
    return ""


# -- MeSH ---------------------------------------------------------------------------------------

_HEADING = "HeadingMappedToList/HeadingMappedTo/DescriptorReferredTo/DescriptorUI"
_SCOPE_NOTE = "ConceptList/Concept[@PreferredConceptYN='Y']/ScopeNote"


def read_mesh_xml(path: StrPath, *, prefix: str = "MESH") -> Iterator[Concept]:
    """Stream MeSH descriptors or supplementary records, depending on the first lines.

    Types and parents of a descriptor follow from its tree numbers: the file is read twice, and
    only the tree is kept in memory. The parents of a supplementary record are its mapped headings;
    it has no types. Names are the heading, the preferred concept's terms, then all others.
    """
    with open_text(path) as file:
        head = file.read(4096)
    kinds = {"<SupplementalRecordSet": "SupplementalRecord", "<DescriptorRecordSet": "Descriptor"}
    kind = next((kind for start, kind in kinds.items() if start in head), None)
    if kind is None:
        raise BioelError(Errors.B121.format(path=path))
    tag = f"{kind.removesuffix('Record')}Record"
    ui_of_tree: dict[str, str] = {}
    if kind == "Descriptor":
        ui_of_tree = {
            tree: record.findtext("DescriptorUI", "").strip()
            for record in iter_xml(path, tag)
            for tree in _trees(record)
        }
    for record in iter_xml(path, tag):
        with one_record(Place(path)):
            ui = record.findtext(f"{kind}UI", "").strip()
            heading = record.findtext(f"{kind}Name/String", "").strip()
            if not ui or not heading:
                raise BioelError(Errors.B122.format(path=path, kind=kind, ui=ui, name=heading))
            parts = record.findall("ConceptList/Concept")
            parts.sort(key=lambda part: part.get("PreferredConceptYN") != "Y")
            terms = [t.findtext("String", "") for p in parts for t in p.iterfind("TermList/Term")]
            trees = _trees(record)
            above = [ui_of_tree.get(tree.rpartition(".")[0], "") for tree in trees]
            # A star marks headings that articles are indexed with.
            above += [(e.text or "").lstrip("*") for e in record.iterfind(_HEADING)]
            parents = dict.fromkeys(curie(parent, prefix) for parent in above if parent)
            scope = record.findtext(_SCOPE_NOTE) or record.findtext("Note") or ""
            yield Concept(
                curie(ui, prefix),
                unique_names([heading, *terms]),
                tree_types(trees),
                tuple(parents),
                " ".join(scope.split()),
            )


def _trees(record: Element) -> list[str]:
    return [(e.text or "").strip() for e in record.iterfind("TreeNumberList/TreeNumber")]

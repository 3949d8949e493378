"""OBO, OWL and OBO JSON through the library `pronto`, and the JSON of cellxgene-ontology-guide."""

from __future__ import annotations

import io
import os
import re
import warnings
from codecs import BOM_UTF8
from collections.abc import Iterator

import fastobo
import pronto

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.ids import curie, unique_names
from spacy_bioel.io.json_object import iter_json_object
from spacy_bioel.io.json_values import parse_json
from spacy_bioel.io.open import numbered_lines, open_binary, open_text
from spacy_bioel.io.skipping import is_skipping, one_record
from spacy_bioel.types import Concept

# "property_value: terms:license https://..."; Dublin Core has many prefixes.
_LICENCE = re.compile(r'property_value:\s*\S*\blicen[cs]e\s+(?:"([^"]*)"|(\S+))')
_HEAD = 4096
_SCOPES = ("EXACT", "NARROW", "BROAD", "RELATED")
# Optional fields of a cellxgene term, and their types if they are not null.
_FIELDS = {"synonyms": list, "ancestors": dict, "description": str, "replaced_by": str}


def read_obo(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[Concept]:
    """Yield the terms of an .obo, .owl or OBO JSON (obographs) file, plain or .gz.

    Imports are not followed. Obsolete terms are kept only if they have a replacement. Alternate ids
    become retired concepts without names. The whole ontology is in memory.

    prefix (str): Vocabulary of ids without a prefix.
    YIELDS (Concept): Names are the label, then the synonyms: exact, narrow, broad, related.
    RAISES BioelError: [B119] the file cannot be parsed; errors of `open_binary`.
    """
    # Opened first, since pronto takes a missing path for a web address.
    with open_binary(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = file.peek(_HEAD)[:_HEAD].removeprefix(BOM_UTF8).lstrip()[:1]
        skips = is_skipping() and start not in (b"{", b"<")
        source = io.BytesIO(_good_frames(path).encode("utf8")) if skips else os.fspath(path)
        try:
            # pronto's parser of OBO JSON, in Rust, does not return if lists are nested too deep.
            if start == b"{":
                parse_json(file.read().decode("utf-8-sig"))
            # Without an encoding pronto guesses one from the first bytes, sometimes wrongly.
            ontology = pronto.Ontology(source, import_depth=0, encoding="utf-8")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # each parser has its own errors; the one in Rust panics
            if start not in (b"{", b"<"):
                _good_frames(path)  # names the line, if it is that of a frame
            raise BioelError(Errors.B119.format(path=path, error=error)) from error
    # Its parsers are threads, which end in any order.
    for term in sorted(ontology.terms(), key=lambda term: term.id):
        yield from _concepts(ontology, term, prefix)


def _good_frames(path: str | os.PathLike[str]) -> str:
    """The header of an .obo file and the frames, as [Term], that can be parsed by themselves.

    RAISES BioelError: [B119] on any other frame, unless bad records are skipped.
    """
    frames: list[list[tuple[int, str]]] = [[]]
    for number, line in numbered_lines(path):
        if line.startswith("["):
            frames.append([])
        frames[-1].append((number, line))
    good = []
    for frame in frames:
        text = "\n".join(line for _, line in frame) + "\n"
        try:
            fastobo.loads(text)
            good.append(text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a syntax error, or a panic of the parser, without a line
            number = frame[min((getattr(error, "lineno", 1) or 1), len(frame)) - 1][0]
            with one_record(path, number):
                message = f"line {number}: {getattr(error, 'msg', error)}"
                raise BioelError(Errors.B119.format(path=path, error=message)) from None
    return "".join(good)


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


def _concepts(ontology: pronto.Ontology, term: pronto.Term, prefix: str) -> Iterator[Concept]:
    term_id = curie(term.id, prefix)
    if term.obsolete:
        # Ids, not terms, since the replacement may be in another ontology.
        replacements = sorted(term.replaced_by.ids)
        if replacements:
            yield Concept(term_id, _names(term), replaced_by=curie(replacements[0], prefix))
    elif term.name:
        parents = term.superclasses(distance=1, with_self=False)
        namespace = term.namespace or ontology.metadata.default_namespace
        yield Concept(
            term_id,
            _names(term),
            types=(namespace,) if namespace else (),
            parents=tuple(sorted(curie(parent.id, prefix) for parent in parents)),
            definition=str(term.definition or ""),
            xrefs=tuple(sorted(xref.id for xref in term.xrefs)),
        )
        for alternate in sorted(term.alternate_ids):
            yield Concept(curie(alternate, prefix), (), replaced_by=term_id)


def _names(term: pronto.Term) -> tuple[str, ...]:
    """Label and synonyms; pronto has a set of synonyms, which is sorted to be reproducible."""
    synonyms = sorted((_SCOPES.index(s.scope or "RELATED"), s.description) for s in term.synonyms)
    return unique_names([term.name or "", *(name for _, name in synonyms)])


def read_cellxgene_json(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[Concept]:
    """Yield the terms of an ontology file of cellxgene-ontology-guide: {id: {label, ...}}.

    Deprecated terms are kept only if they have a replacement. Parents are the ancestors at
    distance 1. Terms are streamed, since NCBITaxon has a million, each with all ancestors.

    prefix (str): Vocabulary of ids without a prefix.
    YIELDS (Concept): One term.
    RAISES BioelError: [B120] another layout; errors of `open_text`.
    """
    for term_id, term in iter_json_object(path, problem=Errors.B120):
        with one_record(path):
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
    """Problem of an entry that is not a term of cellxgene-ontology-guide; "" for a term."""
    if not isinstance(term, dict) or not isinstance(term.get("label"), str):
        return "without 'label'"
    for key, expected in _FIELDS.items():
        if not isinstance(term.get(key) or expected(), expected):
            return f"with {key!r} of the type {type(term[key]).__name__}"
    if not all(isinstance(name, str) for name in term.get("synonyms") or []):
        return "with a synonym that is no text"
    return ""

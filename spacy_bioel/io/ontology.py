"""OBO, OWL and OBO JSON (these two by `pronto`), and the JSON of cellxgene-ontology-guide."""

from __future__ import annotations

import io
import os
import warnings
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.json_object import iter_json_object
from spacy_bioel.io.json_values import parse_json
from spacy_bioel.io.obo import SCOPES, read_obo_lines
from spacy_bioel.io.open import open_binary
from spacy_bioel.io.records import curie, one_record, unique_names
from spacy_bioel.types import Concept

if TYPE_CHECKING:
    import pronto

_HEAD = 4096
# Optional fields of a cellxgene term, and their types if they are not null.
_FIELDS = {"synonyms": list, "ancestors": dict, "description": str, "replaced_by": str}


def read_obo(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[Concept]:
    """Yield the terms of an .obo, .owl or OBO JSON (obographs) file, packed or not.

    Imports are not followed. Obsolete terms are kept only if they have a replacement. Alternate ids
    become retired concepts without names. OBO is streamed; the others are in memory as a whole.

    prefix (str): Vocabulary of ids without a prefix.
    YIELDS (Concept): Names are the label, then the synonyms: exact, narrow, broad, related.
    RAISES BioelError: [B119] OWL or OBO JSON that cannot be parsed; errors of `read_obo_lines`.
    """
    with open_binary(path) as file:
        start = file.peek(_HEAD)[:_HEAD].removeprefix(BOM_UTF8).lstrip()[:1]
        if start in (b"{", b"<"):
            yield from _read_owl(path, file.read(), prefix)
            return
    yield from read_obo_lines(path, prefix=prefix)


def _read_owl(path: str | os.PathLike[str], content: bytes, prefix: str) -> Iterator[Concept]:
    """Yield the terms of OWL or OBO JSON."""
    import pronto

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
        yield from _concepts(ontology, term, prefix)


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
    synonyms = sorted((SCOPES.index(s.scope or "RELATED"), s.description) for s in term.synonyms)
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

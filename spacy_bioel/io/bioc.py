"""Readers for BioC XML and BioC JSON.

An XML document is first converted to the structure of BioC JSON, without its relations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from xml.etree.ElementTree import Element

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.jsonl import read_json
from spacy_bioel.io.open import Place, StrPath, check_words, iter_xml, parse_ids, skip_if_bad
from spacy_bioel.types import AnnotatedText, Mention

# Lower-case keys of infons that hold ids, mapped to the ids' vocabulary ("": use `prefix`).
_ID_INFONS = {"mesh": "MESH", "omim": "OMIM", "umls": "UMLS", "cui": "UMLS"} | {
    "identifier": "", "concept_id": "",
}  # fmt: skip
# Exceptions raised for a missing key, a value of the wrong type or deep nesting.
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
# Maximum gap before or between a document's passages, in characters.
_MAX_GAP = 1_000_000


def read_bioc_xml(path: StrPath, *, prefix: str = "") -> Iterator[AnnotatedText]:
    """Stream the documents in a BioC XML collection.

    Passages are placed at their offsets, and gaps are filled with spaces. An annotation with
    several locations becomes a mention with fragments. The parts of a composite mention
    (CompositeRole IndividualMention) are dropped, because the composite itself lists their ids.

    prefix (str): Vocabulary of ids without a prefix, unless the infon implies one ("MESH").
    """
    has_documents = False
    for element in iter_xml(path, "document"):
        has_documents = True
        with skip_if_bad(Place(path)):
            yield _bioc_document(path, element.findtext("id"), partial(_from_xml, element), prefix)
    if not has_documents:
        raise BioelError(Errors.B115.format(path=path, found="no <document> element"))


def read_bioc_json(path: StrPath, *, prefix: str = "") -> Iterator[AnnotatedText]:
    """Yield the documents in a BioC JSON collection, or in a list of collections.

    Arguments, results and errors are the same as for `read_bioc_xml`. The whole file is read into
    memory.
    """
    content = read_json(path, problem=Errors.B115)
    for collection in content if isinstance(content, list) else [content]:
        # The PubTator 3 service stores its documents under the "PubTator3" key.
        keys = ("documents", "PubTator3") if isinstance(collection, dict) else ()
        key = next((key for key in keys if isinstance(collection.get(key), list)), None)
        if key is None:
            raise BioelError(Errors.B115.format(path=path, found="no 'documents' list"))
        for raw in collection[key]:
            doc_id = raw.get("id") if isinstance(raw, dict) else None
            with skip_if_bad(Place(path)):
                yield _bioc_document(path, doc_id, partial(dict, raw), prefix)


def _from_xml(element: Element) -> dict[str, Any]:
    """Recursively convert an XML element (such as a document or annotation) to BioC JSON."""
    fields: dict[str, Any] = {child.tag: child.text or "" for child in element} | element.attrib
    fields |= {key: int(fields[key]) for key in ("offset", "length") if key in fields}
    for tag in ("passage", "sentence", "annotation", "location"):
        fields[f"{tag}s"] = [_from_xml(part) for part in element.iterfind(tag)]
    return fields | {"infons": {e.attrib["key"]: e.text for e in element.iterfind("infon")}}


def _bioc_document(
    path: StrPath, doc_id: object, parse: Callable[[], dict[str, Any]], prefix: str
) -> AnnotatedText:
    """Parse and convert a document. RAISES BioelError: [B112] if it is malformed."""
    where = f"{path}, document {doc_id!s:.80}"
    try:
        return _to_annotated_text(where, parse(), prefix)
    except BioelError:
        raise
    except _MALFORMED as error:
        reason = f"{type(error).__name__}: {error}"
        raise BioelError(Errors.B112.format(where=where, error=reason)) from error


def _to_annotated_text(where: str, document: dict[str, Any], prefix: str) -> AnnotatedText:
    """Join the passages, and collect mentions from the document, passages and sentences."""
    text, n_chars = "", 0
    annotations = list(document.get("annotations", ()))
    for passage in document["passages"]:
        annotations += passage["annotations"]
        pieces = [passage] if passage.get("text") else passage["sentences"]
        for sentence in passage["sentences"]:
            annotations += sentence["annotations"]
        for piece in pieces:
            offset, words = piece["offset"], piece.get("text") or ""
            if offset < len(text):
                raise BioelError(Errors.B113.format(where=where, offset=offset, length=len(text)))
            if offset - n_chars > _MAX_GAP:
                raise BioelError(
                    Errors.B261.format(where=where, offset=offset, n=n_chars, most=_MAX_GAP)
                )
            n_chars += len(words)
            text = text.ljust(offset) + words
    mentions = [
        _bioc_mention(f"{where}, annotation {annotation['id']}", annotation, text, prefix)
        for annotation in annotations
        if annotation["infons"].get("CompositeRole") != "IndividualMention"
    ]
    return AnnotatedText(str(document["id"]), text, tuple(mentions))


def _bioc_mention(where: str, annotation: dict[str, Any], text: str, prefix: str) -> Mention:
    places = annotation["locations"]
    fragments = sorted((place["offset"], place["offset"] + place["length"]) for place in places)
    if not fragments:
        raise BioelError(Errors.B114.format(where=where))
    check_words(text, fragments, annotation.get("text") or None, where=where)
    infons = {key.lower(): str(value or "") for key, value in annotation["infons"].items()}
    ids: list[str] = []
    for key, value in infons.items():
        if key in _ID_INFONS:
            ids += parse_ids(value, _ID_INFONS[key] or prefix)
    start, end = fragments[0][0], max(end for _, end in fragments)
    several = tuple(fragments) if len(fragments) > 1 else ()
    return Mention(start, end, infons.get("type", ""), tuple(dict.fromkeys(ids)), several)

"""BioC XML and JSON, through the library `bioc`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from xml.etree.ElementTree import Element, tostring

import bioc
from bioc import biocjson, biocxml

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.jsonl import parse_json
from spacy_bioel.io.open import StrPath, check_words, iter_xml, open_text, split_ids
from spacy_bioel.types import AnnotatedText, Mention

# From infons with ids (in lower case) to the vocabulary of these; "" is the prefix of the caller.
_ID_INFONS = {"mesh": "MESH", "omim": "OMIM", "umls": "UMLS", "cui": "UMLS"} | {
    "identifier": "", "concept_id": "",
}  # fmt: skip
# Exceptions of `bioc` for documents with a missing key, a value of another type, or deep nesting.
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, RecursionError, SyntaxError)
# Maximum number of characters missing from a document, before and between its passages.
_MAX_GAPS = 1_000_000


def read_bioc_xml(path: StrPath, *, prefix: str = "") -> Iterator[AnnotatedText]:
    """Stream the documents of a BioC XML collection.

    Passages are placed at their offsets, gaps are filled with spaces. An annotation with several
    locations becomes a mention with fragments. The parts of a composite mention
    (CompositeRole IndividualMention) are dropped, since the composite itself has their ids.

    prefix (str): Vocabulary of ids without a prefix, unless their infon implies it ("MESH").
    """
    found = False
    for element in iter_xml(path, "document"):
        found = True
        yield _read_document(path, element.findtext("id"), partial(_parsed, element), prefix)
    if not found:
        raise BioelError(Errors.B115.format(path=path, error="no element <document>"))


def read_bioc_json(path: StrPath, *, prefix: str = "") -> Iterator[AnnotatedText]:
    """Yield the documents of a BioC JSON collection (or of a list of collections).

    Arguments, results and errors are those of `read_bioc_xml`. The whole file is in memory.
    """
    with open_text(path) as file:
        text = file.read()
    try:
        content = parse_json(text)
    except ValueError as error:
        raise BioelError(Errors.B115.format(path=path, error=error)) from error
    for collection in content if isinstance(content, list) else [content]:
        # The PubTator 3 service has its documents under the key "PubTator3".
        keys = ("documents", "PubTator3") if isinstance(collection, dict) else ()
        key = next((key for key in keys if isinstance(collection.get(key), list)), None)
        if key is None:
            raise BioelError(Errors.B115.format(path=path, error="no list 'documents'"))
        for raw in collection[key]:
            doc_id = raw.get("id") if isinstance(raw, dict) else None
            parse = partial(biocjson.fromJSON, raw, "BioCDocument")
            yield _read_document(path, doc_id, parse, prefix)


def _parsed(element: Element) -> bioc.BioCDocument:
    xml = f"<collection>{tostring(element, encoding='unicode')}</collection>"
    return biocxml.loads(xml).documents[0]


def _read_document(
    path: StrPath, doc_id: object, parse: Callable[[], bioc.BioCDocument], prefix: str
) -> AnnotatedText:
    """Parse one document with `bioc`, and convert it to a record."""
    where = f"{path}, document {doc_id}"
    try:
        return _converted(where, parse(), prefix)
    except BioelError:
        raise
    except _MALFORMED as error:
        reason = f"{type(error).__name__}: {error}"
        raise BioelError(Errors.B112.format(where=where, error=reason)) from error


def _converted(where: str, document: bioc.BioCDocument, prefix: str) -> AnnotatedText:
    """Join the passages, then place the annotations of document, passages and sentences."""
    text, n_given = "", 0
    annotations = list(document.annotations)
    for passage in document.passages:
        annotations += passage.annotations
        pieces = [(passage.offset, passage.text)] if passage.text else []
        for sentence in passage.sentences:
            annotations += sentence.annotations
            if not passage.text:
                pieces.append((sentence.offset, sentence.text or ""))
        for offset, piece in pieces:
            if offset < len(text):
                raise BioelError(Errors.B113.format(where=where, offset=offset, length=len(text)))
            if offset - n_given > _MAX_GAPS:
                raise BioelError(
                    Errors.B261.format(where=where, offset=offset, n=n_given, most=_MAX_GAPS)
                )
            n_given += len(piece)
            text = text.ljust(offset) + piece
    mentions = [
        _read_mention(f"{where}, annotation {annotation.id}", annotation, text, prefix)
        for annotation in annotations
        if annotation.infons.get("CompositeRole") != "IndividualMention"
    ]
    return AnnotatedText(str(document.id), text, tuple(mentions))


def _read_mention(where: str, annotation: bioc.BioCAnnotation, text: str, prefix: str) -> Mention:
    fragments = sorted((loc.offset, loc.offset + loc.length) for loc in annotation.locations)
    if not fragments:
        raise BioelError(Errors.B114.format(where=where))
    check_words(text, fragments, annotation.text or None, where=where)
    infons = {key.lower(): str(value or "") for key, value in annotation.infons.items()}
    given = [(value, _ID_INFONS[key]) for key, value in infons.items() if key in _ID_INFONS]
    ids = [id_ for value, implied in given for id_ in split_ids(value, implied or prefix)]
    return Mention(
        fragments[0][0],
        max(end for _, end in fragments),
        infons.get("type", ""),
        tuple(dict.fromkeys(ids)),
        tuple(fragments) if len(fragments) > 1 else (),
    )

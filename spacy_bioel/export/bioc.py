"""Linked documents as BioC XML and JSON, through the library `bioc`."""

from __future__ import annotations

import re

from bioc import (
    BioCAnnotation,
    BioCCollection,
    BioCDocument,
    BioCLocation,
    BioCPassage,
    biocjson,
    biocxml,
)

from spacy_bioel.distributed.rows import LinkedText
from spacy_bioel.export.links import TextFormat, check_ids, link_rows

# Characters that XML cannot hold. A parser would also drop "\r" before "\n", and move offsets.
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DOCUMENT = re.compile(r"<document>.*</document>", re.DOTALL)
_XML_START = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE collection SYSTEM "BioC.dtd">\n'
    "<collection><source>spacy-bioel</source><date></date><key></key>\n"
)
_JSON_START = (
    '{"bioctype": "BioCCollection", "source": "spacy-bioel", "date": "", "key": "", '
    '"version": "1.0", "infons": {}, "documents": [\n'
)


def bioc_xml() -> TextFormat:
    """BioC XML: a document has one passage, whose characters that XML cannot hold are replaced."""
    return TextFormat(_xml, start=_XML_START, end="</collection>\n")


def bioc_json() -> TextFormat:
    """BioC JSON, one collection: a document has one passage."""
    return TextFormat(_json, start=_JSON_START, between=",\n", end="\n]}\n")


def _xml(one: LinkedText) -> str:
    collection = BioCCollection()
    collection.add_document(_to_bioc(one, xml=True))
    found = _DOCUMENT.search(biocxml.dumps(collection, pretty_print=False))
    assert found is not None
    return found.group() + "\n"


def _json(one: LinkedText) -> str:
    return biocjson.dumps(_to_bioc(one, xml=False), ensure_ascii=False)


def _to_bioc(one: LinkedText, *, xml: bool) -> BioCDocument:
    """RAISES BioelError: [B343] on a concept id that would be divided."""

    def storable(value: str) -> str:
        return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value) if xml else value

    text = (one.text or "").replace("\r", " ") if xml else one.text or ""
    passage = BioCPassage.of_text(storable(text), 0)
    for link in one.links:
        check_ids(link.ids, format="BioC")
    for number, row in enumerate(link_rows(str(one.id), text, one.links), start=1):
        annotation = BioCAnnotation()
        annotation.id, annotation.text = str(number), storable(row.text)
        annotation.add_location(BioCLocation(row.start, row.end - row.start))
        infons: dict[str, object] = {
            "type": row.label,
            "identifier": row.id,
            "name": row.preferred_name,
            "score": row.score,
            "evidence": row.evidence,
            "hgvs": row.hgvs,
        }
        annotation.infons = {
            key: storable(str(value)) for key, value in infons.items() if value is not None
        }
        passage.add_annotation(annotation)
    document = BioCDocument()
    document.id = storable(str(one.id))
    document.add_passage(passage)
    return document

"""One valid file of each format that the package reads, and the function that reads it."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import athena
import spacy
import zstandard
from test_bioc import XML, collection
from test_brat import ANNOTATIONS, TEXT
from test_ontology import GRAPHS, OBO, OWL
from test_vocabularies import CONSO, CUI, DEF, DESCRIPTORS, GENES, STY, SUPPLEMENT

from spacy_bioel.cli.inputs import stream_documents
from spacy_bioel.corpus import docs_to_bin, read_texts, text_to_doc
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.table import read_table
from spacy_bioel.types import AnnotatedText, Mention

_OLD = {"synonyms": ["nerve cell"], "deprecated": True, "replaced_by": "CL:0000000"}
CELLXGENE = {
    "CL:0000000": {"label": "cell", "deprecated": False, "ancestors": {}, "description": None},
    "CL:0000001": {"label": "neuron", "ancestors": {"CL:0000000": 1}} | _OLD,
}
PUBTATOR = (
    "1|t|Naïve flu\n1|a|Renal and liver failure\n1\t6\t9\tflu\tDisease\tD1|D2\tflu|flu\n"
    "1\tCID\tD1\tD2\n\n2|t|None\n2|a|\n2\t0\t4\tNone\tDisease\t-1\n"
)
FLU = {"start": 0, "end": 3, "label": "Disease", "ids": ["D1"], "text": "Flu"}
MENTIONS = [FLU, [4, 7, "and", "D2"]]
LINK = FLU | {"ids": ["MESH:D1"], "candidates": [{"id": "MESH:D1", "score": 0.9}]}
LINKED = {"id": "7", "text": "Flu", "links": [LINK], "error": None}
CTD = (
    "# DiseaseName,DiseaseID,AltDiseaseIDs,Definition,ParentIDs,TreeNumbers,Synonyms\n#\n"
    '"Flu, acute",MESH:D1,OMIM:100000|DO:DOID:5,"A ""cold"".",MESH:D2,'
    "C01.2|C19.3/D1,influenza|grippe\n"
)


@dataclass(frozen=True)
class Sample:
    """A file, or a folder of files by name, that is read without errors."""

    files: dict[str, bytes]
    read: Callable[[Path], Iterable[Any]]

    def write(self, folder: Path, files: dict[str, bytes] | None = None) -> Path:
        contents = self.files if files is None else files
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        return folder / next(iter(contents)) if len(contents) == 1 else folder


def _corpus(format: str | None) -> Callable[[Path], Iterable[Any]]:
    return lambda path: read_texts(path, format=format, prefix="MESH")


def _ontology(format: str | None) -> Callable[[Path], Iterable[Any]]:
    return lambda path: read_ontology(path, format=format)


def _columns(path: Path) -> Iterable[Any]:
    return read_table(path, columns={"id": 1, "name": 2, "synonyms": 3}, prefix="X")


def docbin() -> bytes:
    text = AnnotatedText("1", "Naïve flu here", (Mention(6, 9, "Disease", ("MESH:D1",)),))
    nlp = spacy.blank("en")
    return docs_to_bin(text_to_doc(nlp, text)[0] for _ in range(3)).to_bytes()


def _lines(*records: Any) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


_SPAN = {"start": 0, "end": 3, "label": "D", "kb_id": "D1"}
PRODIGY = [
    {"text": "Flu", "spans": [_SPAN], "tokens": [{"start": 0, "end": 3}], "answer": "accept"},
    {"text": "Flu", "spans": [_SPAN], "answer": "reject"},
]
DOCCANO = [
    {"id": 1, "data": "Flu", "label": [[0, 3, "D"]]},
    {"text": "Flu", "entities": [{"id": 1, "label": "D", "start_offset": 0, "end_offset": 3}]},
]
_UMLS = {"MRCONSO": CONSO, "MRSTY": STY, "MRDEF": DEF, "MRCUI": CUI}
_CONCEPTS = _lines(
    {"id": "X:1", "names": ["Flu", "grippe"], "types": ["T"], "parents": ["X:2"]},
    {"id": "X:3", "replaced_by": "X:1"},
)


def _texts(path: Path) -> Iterable[Any]:
    return (AnnotatedText(id or "", text, ()) for text, id in stream_documents(str(path), None))


def _zipped(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("x.obo"), content)
    return out.getvalue()


SAMPLES: dict[str, Sample] = {
    "pubtator": Sample({"x.txt": PUBTATOR.encode()}, _corpus("pubtator")),
    "bioc-xml": Sample({"x.xml": XML.encode()}, _corpus("bioc-xml")),
    "bioc-json": Sample({"x.json": _json(collection())}, _corpus("bioc-json")),
    "jsonl": Sample(
        {"x.jsonl": _lines({"id": "1", "text": "Flu and", "mentions": MENTIONS}, LINKED)},
        _corpus("jsonl"),
    ),
    "prodigy": Sample({"x.jsonl": _lines(*PRODIGY)}, _corpus("jsonl")),
    "doccano": Sample({"x.jsonl": _lines(*DOCCANO)}, _corpus("jsonl")),
    "brat": Sample({"7.txt": TEXT.encode(), "7.ann": ANNOTATIONS.encode()}, _corpus("brat")),
    "spacy": Sample({"x.spacy": docbin()}, _corpus(None)),
    "packed corpus": Sample({"x.gz": gzip.compress(PUBTATOR.encode(), mtime=0)}, _corpus(None)),
    "obo": Sample({"x.obo": OBO.encode()}, _ontology("obo")),
    "zipped obo": Sample({"x.zip": _zipped(OBO.encode())}, _ontology("obo")),
    "texts": Sample({"x.csv": b'id,text\n1,"A flu,\nor a cold"\n2,none\n'}, _texts),
    "owl": Sample({"x.owl": OWL.encode()}, _ontology("owl")),
    "obographs": Sample({"x.json": _json(GRAPHS)}, _ontology("owl")),
    "cellxgene": Sample({"x.json": _json(CELLXGENE)}, _ontology("cellxgene")),
    "mesh descriptors": Sample({"x.xml": DESCRIPTORS.encode()}, _ontology("mesh")),
    "mesh supplement": Sample({"x.xml": SUPPLEMENT.encode()}, _ontology("mesh")),
    "umls": Sample({f"{k}.RRF": v.encode() for k, v in _UMLS.items()}, _ontology("umls")),
    "omop": Sample({f"{k}.csv": v.encode() for k, v in athena.FILES.items()}, _ontology("omop")),
    "ctd": Sample({"x.csv": CTD.encode()}, _ontology("ctd")),
    "genes": Sample({"x.gene_info": GENES.encode()}, _ontology("ncbi-gene")),
    "concepts": Sample({"x.jsonl": _CONCEPTS}, _ontology("jsonl")),
    "table": Sample(
        {"x.csv": b'id,name,synonyms,trees\nD1,"Flu, acute",a|b,C01.2\n'}, _ontology("table")
    ),
    "columns": Sample({"x.tsv": b"# made by hand\nD1\tflu\ta|b\nD2\tcold\t\n"}, _columns),
    "packed ontology": Sample(
        {"x.zst": zstandard.ZstdCompressor().compress(_CONCEPTS)}, _ontology(None)
    ),
}

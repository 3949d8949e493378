"""Linked documents in the formats of corpora: PubTator, BioC by the library `bioc`, and BRAT.

Formats of links, by the ends of file names. Parquet requires pyarrow (extra `parquet`).
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TextIO

from bioc import (
    BioCAnnotation,
    BioCCollection,
    BioCDocument,
    BioCLocation,
    BioCPassage,
    biocjson,
    biocxml,
)

from spacy_bioel.errors import BioelError, Errors, needing
from spacy_bioel.export.html import (
    END_OF_PAGE,
    FACTS,
    columns_of,
    link_rows,
    linked_candidates,
    render_document,
    start_page,
)
from spacy_bioel.export.rows import Document, LinkedText, Row, to_row
from spacy_bioel.files import replacing_file, replacing_folder
from spacy_bioel.types import Link, preferred_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset


# Characters at which readers of corpora divide a field of ids.
_SEPARATORS = re.compile(r"[|+;,\s]")
# Tabs and all that some program takes for the end of a line.
_BREAKS = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Where the title of PubTator ends: at the end of a line, or else of a sentence.
_TITLE_ENDS = (re.compile("\n"), re.compile(r"(?<=[.!?])\s(?=[^\sa-z])"))
# Characters that XML cannot hold. A parser would also drop "\r" before "\n", and move offsets.
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_LABELS = re.compile(r"[^\w-]")
_NOT_IN_FILE_NAMES = re.compile(r'[\x00-\x1f/\\:*?"<>|%]')
_LINE_END = re.compile(r"\s*[\r\n]\s*")
# BRAT wants VOCABULARY:ID; these two are written without.
_BARE = ((re.compile(r"C\d{7,8}"), "UMLS:"), (re.compile(r"CVCL_\w+"), "Cellosaurus:"))


Write = Callable[[LinkedText], None]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A format that is written document by document.

    document (Callable): From a document to its text.
    start, between, end (str): Text around the documents.
    has_failures (bool): Whether documents that failed are written too, with their error, and
        those without an id have none. Otherwise the former are left out, and the latter numbered.
    """

    document: Callable[[LinkedText], str]
    start: str = ""
    between: str = ""
    end: str = ""
    has_failures: bool = False

    @contextmanager
    def writing(self, file: TextIO) -> Iterator[Write]:
        """Write a file. YIELDS (Callable[[LinkedText], None]): Writes one document."""
        numbers, between = count(1), ""

        def write(one: LinkedText) -> None:
            nonlocal between
            number = next(numbers)
            if not self.has_failures:
                if one.error is not None:
                    return
                one = numbered(one, number)
            file.write(between + self.document(one))
            between = self.between

        file.write(self.start)
        yield write
        file.write(self.end)


def numbered(one: LinkedText, number: int) -> LinkedText:
    """The document, with its number as its id if it has none."""
    return one if one.id and not one.id.isspace() else replace(one, id=str(number))


def _check_ids(links: Sequence[Link], *, format: str) -> None:
    """RAISES BioelError: [B343] on an id that a reader of the format would divide."""
    for id in (id for link in links for id in link.ids):
        if found := _SEPARATORS.search(id):
            raise BioelError(Errors.B343.format(id=id, found=found.group(), format=format))


def _pubtator(one: LinkedText) -> str:
    """Title and abstract, then a row a mention. The title is the first line, or if there is one
    line its first sentence. Offsets stay: each line end or tab becomes a space.

    RAISES BioelError: [B342] on an id that would break the rows.
    """
    id, text = str(one.id).strip(), one.text or ""
    if "|" in id or _BREAKS.search(id):
        raise BioelError(Errors.B342.format(id=one.id))
    _check_ids(one.links, format="PubTator")
    border = _end_of_title(text, one.links)
    lines = [f"{id}|t|{text[:border]}", f"{id}|a|{text[border + 1 :]}"]
    lines = [_BREAKS.sub(" ", line) for line in lines]
    for link in one.links:
        words = (_BREAKS.sub(" ", part) for part in (text[link.start : link.end], link.label))
        lines.append(
            "\t".join((id, f"{link.start}", f"{link.end}", *words, "|".join(link.ids) or "-"))
        )
    return "\n".join(lines) + "\n\n"


def _end_of_title(text: str, links: Sequence[Link]) -> int:
    """Offset of the character between title and abstract, which is in no mention."""
    for pattern in _TITLE_ENDS:
        for found in pattern.finditer(text):
            if not any(link.start <= found.start() < link.end for link in links):
                return found.start()
    return len(text)


def _bioc_xml(one: LinkedText) -> str:
    collection = BioCCollection()
    collection.add_document(_to_bioc(one, xml=True))
    found = re.search(
        "<document>.*</document>", biocxml.dumps(collection, pretty_print=False), re.DOTALL
    )
    assert found is not None
    return found.group() + "\n"


def _to_bioc(one: LinkedText, *, xml: bool) -> BioCDocument:
    """A document of one passage; in XML, characters that it cannot hold are replaced."""

    def storable(value: str) -> str:
        return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value) if xml else value

    text = (one.text or "").replace("\r", " ") if xml else one.text or ""
    passage = BioCPassage.of_text(storable(text), 0)
    _check_ids(one.links, format="BioC")
    for number, row in enumerate(link_rows(str(one.id), text, one.links), start=1):
        annotation = BioCAnnotation()
        annotation.id, annotation.text = str(number), storable(row.text)
        annotation.add_location(BioCLocation(row.start, row.end - row.start))
        infons = {
            "type": row.label,
            "identifier": row.id,
            "name": row.preferred_name,
            "score": row.score,
            "evidence": row.evidence,
            **row.facts,
        }
        annotation.infons = {
            key: storable(str(value)) for key, value in infons.items() if value is not None
        }
        passage.add_annotation(annotation)
    document = BioCDocument()
    document.id = storable(str(one.id))
    document.add_passage(passage)
    return document


PUBTATOR = TextFormat(_pubtator)
BIOC_XML = TextFormat(
    _bioc_xml,
    start='<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE collection SYSTEM "BioC.dtd">\n'
    "<collection><source>spacy-bioel</source><date></date><key></key>\n",
    end="</collection>\n",
)
BIOC_JSON = TextFormat(
    lambda one: biocjson.dumps(_to_bioc(one, xml=False), ensure_ascii=False),
    start='{"bioctype": "BioCCollection", "source": "spacy-bioel", "date": "", "key": "", '
    '"version": "1.0", "infons": {}, "documents": [\n',
    between=",\n",
    end="\n]}\n",
)


@contextmanager
def writing_brat(folder: Path) -> Iterator[Write]:
    """Write a folder of NAME.txt and NAME.ann, which gets its name only on success.

    The name of a document is its id, with "%2F" for a character such as "/" that file names cannot
    have; one that is there already gets "-2". The ids of a mention are normalisations, lines
    "N1<tab>Reference T1 MESH:D003920<tab>preferred name".

    YIELDS (Callable[[LinkedText], None]): Writes one document; none that failed.
    RAISES BioelError: [B341] when the folder is there and not empty, [B343] on a concept id that
        would be divided.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BioelError(Errors.B341.format(path=folder))
    numbers = count(1)
    with replacing_folder(folder) as fresh:

        def write(one: LinkedText) -> None:
            number = next(numbers)
            if one.error is None:
                one = numbered(one, number)
                _check_ids(one.links, format="BRAT")
                text, name = one.text or "", _free_name(fresh, str(one.id))
                lines = "".join(_brat_lines(text, one.links))
                for suffix, content in ((".txt", text), (".ann", lines)):
                    with (fresh / f"{name}{suffix}").open(
                        "x", encoding="utf8", newline="\n"
                    ) as file:
                        file.write(content)

        yield write


def _free_name(folder: Path, id: str) -> str:
    name = _NOT_IN_FILE_NAMES.sub(lambda found: f"%{ord(found.group()):02X}", id)
    others = (f"{name}-{number}" for number in count(2))
    free = name
    while (folder / f"{free}.ann").exists():
        free = next(others)
    return free


def _brat_lines(text: str, links: Sequence[Link]) -> Iterator[str]:
    def on_one_line(words: str) -> str:
        return re.sub(r"[\t\n\r]", " ", words)

    normalizations = count(1)
    for number, link in enumerate(links, start=1):
        label = _NOT_IN_LABELS.sub("_", link.label) or "Mention"
        fragments = [*_fragments(text, link.start, link.end)] or [(link.start, link.end)]
        offsets = ";".join(f"{start} {end}" for start, end in fragments)
        words = " ".join(on_one_line(text[start:end]) for start, end in fragments)
        yield f"T{number}\t{label} {offsets}\t{words}\n"
        names = {c.id: preferred_name(c.kb, c.id) or c.name for c in linked_candidates(link)}
        for id in link.ids:
            prefix = next((before for pattern, before in _BARE if pattern.fullmatch(id)), "")
            reference = f"N{next(normalizations)}\tReference T{number} {prefix}{id}"
            yield f"{reference}\t{on_one_line(names.get(id, ''))}\n"


def _fragments(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Parts of a mention on each of its lines: BRAT does not show one across lines."""
    for found in _LINE_END.finditer(text, start, end):
        if found.start() > start:
            yield start, found.start()
        start = max(start, found.end())
    if start < end:
        yield start, end


# Writes what is no text file: a folder, or a binary file.
PathFormat = Callable[[Path], AbstractContextManager[Write]]

SUFFIXES = (
    *(".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv", ".bioc.xml", ".bioc.json"),
    *(".pubtator", ".ann", ".html"),
)
# Those that have a place for cross-references. "" is that of a name without an end, such as "-" or
# that of a pipe: JSON lines.
WITH_XREFS = frozenset({"", ".jsonl", ".ndjson", ".json"})
# Those that have a place for what the text says of a mention.
WITH_CONTEXT = WITH_XREFS | {".csv", ".tsv", ".html"}
# Those that have a place for the errors of documents.
WITH_FAILURES = WITH_XREFS | {".parquet"}
# Spreadsheets take a cell that begins like this for a formula, and run it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def suffix_of(path: str) -> str:
    """Return the end of a file name, of `SUFFIXES`; "" if the name has no dot.

    RAISES BioelError: [B198] on any other.
    """
    name = Path(path).name.lower()
    known = [suffix for suffix in SUFFIXES if name.endswith(suffix)]
    if not known and Path(path).suffix:
        raise BioelError(Errors.B198.format(path=path, known=", ".join(SUFFIXES)))
    return max(known, key=len, default="")


def format_of(
    suffix: str, *, facts: Sequence[str] = FACTS, xrefs: bool = False, formulas: bool = True
) -> TextFormat | PathFormat:
    """Return the format of an end of `suffix_of`.

    facts (Sequence[str]): Names of the facts that tables have columns for.
    xrefs (bool): Also write the cross-references of candidates, where the format has them.
    formulas (bool): Whether cells of CSV and TSV may be formulas; False: they get an apostrophe
        before them.
    """

    def json_of(one: LinkedText) -> str:
        return json.dumps(to_row(one, xrefs=xrefs), ensure_ascii=False)

    match suffix:
        case ".json":
            return TextFormat(json_of, "[\n", between=",\n", end="\n]\n", has_failures=True)
        case ".csv":
            return _table(",", facts, formulas=formulas)
        case ".tsv":
            return _table("\t", facts, formulas=formulas)
        case ".pubtator":
            return PUBTATOR
        case ".bioc.xml":
            return BIOC_XML
        case ".bioc.json":
            return BIOC_JSON
        case ".ann":
            return writing_brat
        case ".html":
            return TextFormat(
                lambda one: render_document(one.text or "", one.links, title=one.id or "") + "\n",
                start=start_page(),
                end=END_OF_PAGE,
            )
        case ".parquet":
            return writing_parquet
    return TextFormat(lambda one: json_of(one) + "\n", has_failures=True)


def _table(delimiter: str, facts: Sequence[str], *, formulas: bool) -> TextFormat:
    """The columns of `columns_of`; cells are quoted where they need it."""

    def cell(value: object) -> object:
        is_formula = isinstance(value, str) and value.startswith(_FORMULA)
        return f"'{value}" if is_formula and not formulas else value

    def text_of(rows: Iterable[Iterable[object]]) -> str:
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
        return out.getvalue()

    return TextFormat(
        lambda one: text_of(
            map(cell, row.cells(facts))
            for row in link_rows(one.id or "", one.text or "", one.links)
        ),
        start=text_of([columns_of(facts)]),
    )


_ROWS_PER_GROUP = 1000


def row_schema() -> pa.Schema:
    """Schema of the output, with one row per document.

    Columns: "id" and "text" as in the input; "links", empty without mentions or on failure;
    "error", null on success. Fields of a link: "start" and "end" count Unicode characters of the
    text, "id" is null for NIL, "ids" has several ids for a composite, "candidates" is sorted, best
    first; "hgvs", "component" and "gene" of a variant, or null. Facts of rules of a user's own are
    left out, so that files of all pipelines have one schema. Fields of an error: "code", "message".
    """
    import pyarrow as pa

    def struct(**fields: object) -> pa.StructType:
        return pa.struct(list(fields.items()))

    string, number = pa.string(), pa.int64()
    candidate = struct(id=string, score=pa.float64(), name=string, evidence=string)
    place = {"start": number, "end": number, "text": string, "label": string}
    many = {"ids": pa.list_(string), "candidates": pa.list_(candidate)}
    link = struct(**place, id=string, **many, **dict.fromkeys(FACTS, string))
    error = struct(code=string, message=string)
    return pa.schema(struct(id=string, text=string, links=pa.list_(link), error=error))


def read_parquet(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Stream (text, id) from the columns "text" and "id" of a Parquet file, or a folder of files.

    RAISES BioelError: [B101] no such path, [B191] a column is missing, [B192] no pyarrow, [B195]
        not Parquet; all raised by the call itself, not by the first document.
    """
    if not Path(path).exists():
        raise BioelError(Errors.B101.format(path=path))
    dataset = _import_pyarrow("dataset").dataset
    try:
        source = dataset(path, format="parquet")
    except Exception as error:  # exceptions of pyarrow and of the system
        raise BioelError(Errors.B195.format(path=path, error=error)) from error
    check_columns(source.schema.names, "text", "id")
    return _documents(source)


def check_columns(columns: list[str], *expected: str) -> None:
    """Check for expected columns. RAISES BioelError: [B191] when one is missing."""
    if missing := [name for name in expected if name not in columns]:
        raise BioelError(Errors.B191.format(missing=missing[0], columns=", ".join(columns)))


@contextmanager
def writing_parquet(path: Path) -> Iterator[Write]:
    """Write rows of `row_schema` to a Parquet file, which gets its name only on success.

    YIELDS (Callable[[LinkedText], None]): Writes one document.
    RAISES BioelError: [B192] no pyarrow.
    """
    parquet, pa = _import_pyarrow("parquet"), _import_pyarrow("lib")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with replacing_file(path) as target, parquet.ParquetWriter(target, row_schema()) as file:

        def flush() -> None:
            file.write_table(pa.Table.from_pylist(rows, schema=row_schema()))
            rows.clear()

        def write(one: LinkedText) -> None:
            rows.append(to_row(one))
            if len(rows) == _ROWS_PER_GROUP:
                flush()

        yield write
        flush()


def _documents(dataset: Dataset) -> Iterator[Document]:
    for batch in dataset.to_batches(columns=["text", "id"]):
        for text, id in zip(batch["text"].to_pylist(), batch["id"].to_pylist(), strict=True):
            yield text, None if id is None else str(id)


def _import_pyarrow(module: str) -> ModuleType:
    with needing("parquet", "Parquet"):
        return import_module(f"pyarrow.{module}")

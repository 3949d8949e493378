"""Output formats for linked documents, selected by file name suffix.

The formats are JSON lines, JSON, CSV, TSV, HTML, Parquet (which needs pyarrow, from the
`parquet` extra), and corpus formats: PubTator, BRAT, and BioC.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO, get_args, get_origin
from xml.etree.ElementTree import Element, SubElement, tostring

from spacy_bioel.errors import BioelError, Errors, needing
from spacy_bioel.export import html
from spacy_bioel.export.rows import (
    Document,
    DocumentRow,
    JsonRow,
    LinkedText,
    LinkRow,
    to_row,
    written_fields,
)
from spacy_bioel.files import replacing_file, replacing_folder
from spacy_bioel.registered import FORMATS, all_names, load_registered, registered_names
from spacy_bioel.text.normalize import escape_formula, table_line
from spacy_bioel.types import Link

if TYPE_CHECKING:
    import pyarrow as pa


# Characters at which corpus readers split an id field.
_RESERVED_IN_IDS = re.compile(r"[|+;,\s]")
# Tabs, and all characters that any program might treat as a line break.
_TABS_AND_BREAKS = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# A PubTator title ends at the first line break, or else after the first sentence.
_TITLE_ENDS = (re.compile("\n"), re.compile(r"(?<=[.!?])\s(?=[^\sa-z])"))
# Characters that XML cannot store. A parser would also drop "\r" before "\n", shifting offsets.
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_LABELS = re.compile(r"[^\w-]")
_NOT_IN_FILE_NAMES = re.compile(r'[\x00-\x1f/\\:*?"<>|%]')
_LINE_BREAKS = re.compile(r"(?<!\s)\s*[\r\n]\s*")
# BRAT expects VOCABULARY:ID, but ids from these two vocabularies have no prefix.
_BRAT_PREFIXES = ((re.compile(r"C\d{7,8}"), "UMLS:"), (re.compile(r"CVCL_\w+"), "Cellosaurus:"))

_BIOC_XML_START = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE collection SYSTEM "BioC.dtd">
<collection><source>spacy-bioel</source><date></date><key></key>
"""
_BIOC_JSON_START = (
    '{"bioctype": "BioCCollection", "source": "spacy-bioel", "date": "", "key": "", '
    '"version": "1.0", "infons": {}, "documents": [\n'
)

Write = Callable[[Any], None]  # writes a linked text (or, in some formats, another record)


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A text format that is written one document at a time.

    document (Callable): Formats a document.
    start, between, end (str): Text before, between and after the documents.
    has_failures (bool): True: failed documents are written with their error, and a missing id stays
        empty. False: failed documents without links are skipped, and documents without an id are
        numbered.
    """

    document: Callable[[Any], str]
    start: str = ""
    between: str = ""
    end: str = ""
    has_failures: bool = False

    @contextmanager
    def writing(self, file: TextIO) -> Iterator[Write]:
        """Write the file's start and end, yielding a function that writes a document in between."""
        separator = ""

        def write(document: LinkedText) -> None:
            nonlocal separator
            file.write(separator + self.document(document))
            separator = self.between

        file.write(self.start)
        yield write if self.has_failures else _without_failures(write)
        file.write(self.end)


def _without_failures(write: Write) -> Write:
    """Skip failed documents that have no links, and number documents that have no id."""
    numbers = count(1)

    def write_linked(document: LinkedText) -> None:
        number = next(numbers)
        if document.error is None or document.links:
            has_id = document.id and not document.id.isspace()
            write(document if has_id else replace(document, id=str(number)))

    return write_linked


def _check_ids(links: Sequence[Link], *, format: str) -> None:
    """Check that no reader of the format would split an id. RAISES BioelError: [B343] otherwise."""
    for link in links:
        for id in link.ids:
            if separator := _RESERVED_IN_IDS.search(id):
                raise BioelError(Errors.B343.format(id=id, found=separator[0], format=format))


def _to_pubtator(document: LinkedText) -> str:
    """Format a document as PubTator: the title, the abstract, then one row per mention.

    The title is the first line, or the first sentence if there is only one line. Each line break or
    tab becomes a space, so that offsets stay the same.

    RAISES BioelError: [B342] if the document id would break the rows.
    """
    id, text = str(document.id).strip(), document.text or ""
    if "|" in id or _TABS_AND_BREAKS.search(id):
        raise BioelError(Errors.B342.format(id=document.id))
    _check_ids(document.links, format="PubTator")
    title_end = _find_title_end(text, document.links)
    text = _TABS_AND_BREAKS.sub(" ", text)
    lines = [f"{id}|t|{text[:title_end]}", f"{id}|a|{text[title_end + 1 :]}"]
    for link in document.links:
        label = _TABS_AND_BREAKS.sub(" ", link.label)
        ids = "|".join(link.ids) or "-"
        words = text[link.start : link.end]
        lines.append(f"{id}\t{link.start}\t{link.end}\t{words}\t{label}\t{ids}")
    return "\n".join(lines) + "\n\n"


def _find_title_end(text: str, links: Sequence[Link]) -> int:
    """Find the offset of the character that separates title and abstract, outside all mentions."""
    for pattern in _TITLE_ENDS:
        for match in pattern.finditer(text):
            if not any(link.start <= match.start() < link.end for link in links):
                return match.start()
    return len(text)


def _to_bioc_xml(document: LinkedText) -> str:
    content = _to_bioc(document, xml=True)
    root = Element("document")
    SubElement(root, "id").text = content["id"]
    for part in content["passages"]:
        passage = SubElement(root, "passage")
        SubElement(passage, "offset").text = str(part["offset"])
        SubElement(passage, "text").text = part["text"]
        for mention in part["annotations"]:
            annotation = SubElement(passage, "annotation", id=mention["id"])
            for key, value in mention["infons"].items():
                SubElement(annotation, "infon", key=key).text = value
            for place in mention["locations"]:
                SubElement(annotation, "location", {key: str(n) for key, n in place.items()})
            SubElement(annotation, "text").text = mention["text"]
    return tostring(root, encoding="unicode") + "\n"


def _to_bioc_json(document: LinkedText) -> str:
    return json.dumps(_to_bioc(document, xml=False), ensure_ascii=False)


def _to_bioc(document: LinkedText, *, xml: bool) -> dict[str, Any]:
    """Convert a text to BioC, with one passage; if `xml`, replace characters invalid in XML."""

    def storable(value: str) -> str:
        return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value) if xml else value

    text = (document.text or "").replace("\r", " " if xml else "\r")
    _check_ids(document.links, format="BioC")
    rows = html.link_rows(str(document.id), text, document.links)
    annotations = []
    for number, (link, row) in enumerate(zip(document.links, rows, strict=True), start=1):
        infons = {"type": link.label, "identifier": row["id"], "name": row["preferred_name"]}
        infons |= {"score": row["score"], "evidence": row["evidence"], **html.plain_facts(link)}
        annotation = {
            "id": str(number),
            "infons": {k: storable(str(v)) for k, v in infons.items() if v is not None},
            "text": storable(row["text"]),
            "locations": [{"offset": link.start, "length": link.end - link.start}],
        }
        annotations.append(annotation)
    passage = {"bioctype": "BioCPassage", "offset": 0, "infons": {}, "text": storable(text)}
    passage |= {"sentences": [], "annotations": annotations, "relations": []}
    converted = {"bioctype": "BioCDocument", "id": storable(str(document.id)), "infons": {}}
    return converted | {"passages": [passage], "annotations": [], "relations": []}


@contextmanager
def writing_brat(folder: Path) -> Iterator[Write]:
    """Write a folder of NAME.txt and NAME.ann files; rename it to `folder` only on success.

    NAME is the document id; characters that are invalid in file names are escaped ("/" as "%2F").
    If a name is already in use, "-2" is appended. A mention's ids are written as normalisations:
    lines such as "N1<tab>Reference T1 MESH:D003920<tab>preferred name".
    """
    with new_folder(folder) as temporary:

        def write(document: LinkedText) -> None:
            _check_ids(document.links, format="BRAT")
            text, first = document.text or "", file_name(str(document.id))
            names = chain([first], (f"{first}-{number}" for number in count(2)))
            name = next(name for name in names if not (temporary / f"{name}.ann").exists())
            lines = "".join(_brat_lines(text, document.links))
            for suffix, content in ((".txt", text), (".ann", lines)):
                path = temporary / f"{name}{suffix}"
                with path.open("x", encoding="utf8", newline="\n") as file:
                    file.write(content)

        yield _without_failures(write)


def new_folder(folder: Path) -> AbstractContextManager[Path]:
    """Create a folder, or replace an empty one. RAISES BioelError: [B341] if it is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BioelError(Errors.B341.format(path=folder))
    return replacing_folder(folder)


def file_name(id: str) -> str:
    """Escape an id for use as a file name: "a/b" becomes "a%2Fb"."""
    return _NOT_IN_FILE_NAMES.sub(lambda match: f"%{ord(match.group()):02X}", id)


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
        names = {c.id: c.preferred_name or c.name for c in html.linked_candidates(link)}
        for id in link.ids:
            prefix = next((name for ids, name in _BRAT_PREFIXES if ids.fullmatch(id)), "")
            reference = f"N{next(normalizations)}\tReference T{number} {prefix}{id}"
            yield f"{reference}\t{on_one_line(names.get(id, ''))}\n"


def _fragments(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a mention into one part per line, because BRAT cannot show line breaks in mentions."""
    for match in _LINE_BREAKS.finditer(text, start, end):
        if match.start() > start:
            yield start, match.start()
        start = max(start, match.end())
    if start < end:
        yield start, end


# A format that is written to a folder or binary file.
PathFormat = Callable[[Path], AbstractContextManager[Write]]
AnyFormat = TextFormat | PathFormat

SUFFIXES = (
    *(".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv", ".bioc.xml", ".bioc.json"),
    *(".pubtator", ".ann", ".html"),
)
# Suffixes of formats that store cross-references. An output without a suffix, such as "-" or a
# named pipe, is written as JSON lines.
WITH_XREFS = frozenset({"", ".jsonl", ".ndjson", ".json"})
# Suffixes of formats that store facts, either in columns or as JSON.
WITH_FACTS = WITH_XREFS | {".csv", ".tsv", ".html"}
# Suffixes of formats that store failed documents' errors.
WITH_FAILURES = WITH_XREFS | {".parquet"}


def suffixes() -> tuple[str, ...]:
    """Return the suffixes of all formats, including plugin formats."""
    return *SUFFIXES, *all_names(FORMATS)


def format_of(
    suffix: str, *, facts: Sequence[str] = html.FACTS, xrefs: bool = False, raw: bool = False
) -> AnyFormat:
    """Return the format for a suffix ("": JSON lines). RAISES BioelError: [B198] if it is unknown.

    facts (Sequence[str]): Names of the facts that have their own columns in tables.
    xrefs (bool): Also write candidates' cross-references, if the format stores them.
    raw (bool): Write CSV and TSV cells unescaped, even if spreadsheets would run them as formulas.
    """

    def json_of(document: LinkedText) -> str:
        return json.dumps(to_row(document, xrefs=xrefs), ensure_ascii=False)

    columns = html.columns_of(facts)

    def rows_of_links(document: LinkedText) -> Iterator[list[Any]]:
        for row in html.link_rows(document.id or "", document.text or "", document.links):
            yield [row.get(name) for name in columns]

    if suffix in registered_names(FORMATS):
        return load_registered(FORMATS, suffix)(raw=raw)
    match suffix:
        case ".json":
            return TextFormat(json_of, "[\n", between=",\n", end="\n]\n", has_failures=True)
        case ".csv" | ".tsv":
            return table_format("," if suffix == ".csv" else "\t", columns, rows_of_links, raw=raw)
        case ".pubtator":
            return TextFormat(_to_pubtator)
        case ".bioc.xml":
            return TextFormat(_to_bioc_xml, start=_BIOC_XML_START, end="</collection>\n")
        case ".bioc.json":
            return TextFormat(_to_bioc_json, _BIOC_JSON_START, between=",\n", end="\n]}\n")
        case ".ann":
            return writing_brat
        case ".html":
            return TextFormat(html.page_part, start=html.start_page(), end=html.END_OF_PAGE)
        case ".parquet":
            return writing_parquet
        case "" | ".jsonl" | ".ndjson":
            return TextFormat(lambda document: json_of(document) + "\n", has_failures=True)
    raise BioelError(Errors.B198.format(path=f"OUT{suffix}", known=", ".join(SUFFIXES)))


def table_format(
    delimiter: str,
    columns: Sequence[str],
    rows_of: Callable[[LinkedText], Iterable[Iterable[object]]],
    *,
    raw: bool,
) -> TextFormat:
    """Return a table format with the given columns, quoting cells if necessary."""

    def cell(value: object) -> object:
        return escape_formula(value) if isinstance(value, str) and not raw else value

    def lines_of(document: LinkedText) -> str:
        return "".join(table_line(map(cell, row), delimiter) for row in rows_of(document))

    return TextFormat(lines_of, start=table_line(columns, delimiter))


_ROWS_PER_GROUP = 1000


def row_schema() -> pa.Schema:
    """Return the schema of Parquet output: one row per document, with the fields of `DocumentRow`.

    "hgvs", "component" and "gene" describe a variant, or are null; "facts" is null or a JSON object
    with the facts from other rules, so that files from all pipelines have the same schema.
    """
    import pyarrow as pa

    plain = {str: pa.string(), int: pa.int64(), float: pa.float64()}

    def to_arrow(kind: Any) -> pa.DataType:
        if kind in plain:
            return plain[kind]
        if inner := get_args(kind):
            return pa.list_(to_arrow(*inner)) if get_origin(kind) is list else to_arrow(inner[0])
        types = {name: to_arrow(field) for name, field in written_fields(kind).items()}
        if kind is LinkRow:
            types |= dict.fromkeys((*html.FACTS, "facts"), pa.string())
        return pa.struct(list(types.items()))

    return pa.schema(to_arrow(DocumentRow))


def to_columns(linked: LinkedText) -> JsonRow:
    """Convert a linked text to a row that matches `row_schema`."""
    row = to_row(linked)
    for link, columns in zip(linked.links, row["links"], strict=True):
        facts = html.plain_facts(link)
        others = {name: fact for name, fact in facts.items() if name not in html.FACTS}
        columns["facts"] = json.dumps(others, ensure_ascii=False) if others else None
    return row


def read_parquet(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Stream (text, id) from the "text" and "id" columns of a Parquet file or folder.

    The call itself raises errors, before the first document is requested.
    """
    if not Path(path).exists():
        raise BioelError(Errors.B101.format(path=path))
    dataset = _import_pyarrow("dataset").dataset
    try:
        source = dataset(path, format="parquet")
    except Exception as error:  # exceptions from pyarrow or the operating system
        raise BioelError(Errors.B195.format(path=path, error=error)) from error
    check_columns(source.schema.names, "text", "id")
    return (
        (text, None if id is None else str(id))
        for batch in source.to_batches(columns=["text", "id"])
        for text, id in zip(batch["text"].to_pylist(), batch["id"].to_pylist(), strict=True)
    )


def check_columns(columns: list[str], *expected: str) -> None:
    """Check that all expected columns exist. RAISES BioelError: [B191] if a column is missing."""
    if missing := [name for name in expected if name not in columns]:
        raise BioelError(Errors.B191.format(missing=missing[0], columns=", ".join(columns)))


@contextmanager
def writing_parquet(path: Path) -> Iterator[Write]:
    """Write a Parquet file (see `row_schema`); rename it to `path` only on success."""
    parquet, pa = _import_pyarrow("parquet"), _import_pyarrow("lib")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[JsonRow] = []
    with replacing_file(path) as target, parquet.ParquetWriter(target, row_schema()) as file:

        def flush() -> None:
            file.write_table(pa.Table.from_pylist(rows, schema=row_schema()))
            rows.clear()

        def write(document: LinkedText) -> None:
            rows.append(to_columns(document))
            if len(rows) == _ROWS_PER_GROUP:
                flush()

        yield write
        flush()


def _import_pyarrow(module: str) -> ModuleType:
    with needing("parquet", "Parquet"):
        return import_module(f"pyarrow.{module}")

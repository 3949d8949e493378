"""The files of good.yml and broken.yml, and the functions that read them."""

import gzip
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import srsly
import zstandard

from spacy_bioel.cli.inputs import stream_documents
from spacy_bioel.io.formats import read_corpus, read_ontology
from spacy_bioel.types import AnnotatedText, Concept, Mention

HERE = Path(__file__).parent


def zipped(content: bytes, *, name: str = "x.obo") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), content)
    return out.getvalue()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gz": lambda content: gzip.compress(content, mtime=0),
    "zst": zstandard.compress,
    "zip": zipped,
}


@dataclass(frozen=True)
class Case:
    """A file, or a folder of files by name; `row` is what a table says about them."""

    files: dict[str, bytes]
    read: Callable[[Path], Iterable[Any]]
    row: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path, files: dict[str, bytes] | None = None) -> Path:
        contents = self.files if files is None else files
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        return folder / next(iter(contents)) if len(contents) == 1 else folder


def reader(section: str, options: dict[str, Any]) -> Callable[[Path], Iterable[Any]]:
    """The function that a section names by its first words: what it reads, and the format."""
    kind, _, format = section.partition(",")[0].partition(" ")
    if kind == "texts":
        return lambda path: stream_documents(str(path), format or None)
    read: Callable[..., Any] = read_corpus if kind == "corpus" else read_ontology
    return lambda path: read(path, format=format or None, **options)


def content_of(spec: Any, before: str, good: str) -> str:
    """The content of a file: as it is, or what changes in the first good file of the section."""
    if isinstance(spec, str):
        return before + spec
    for old, new in spec.items():
        assert old in good
        good = good.replace(old, new)
    return good


def load(table: str) -> Iterator[tuple[str, Case]]:
    """The cases of a table, by section and number."""
    good_rows = srsly.read_yaml(HERE / "good.yml")
    first = {section: about["rows"][0] for section, about in good_rows.items()}
    for section, about in srsly.read_yaml(HERE / table).items():
        good = first.get(section, {})
        for number, row in enumerate(about["rows"], start=1):
            specs = row.get("files") or {row.get("file", "x.txt"): row["text"]}
            if table == "broken.yml" and "files" in row:
                specs = good["files"] | specs
            files = {
                name: PACK[row.get("pack", "")](
                    content_of(
                        spec,
                        about.get("before", ""),
                        good.get("text") or good.get("files", {}).get(name, ""),
                    ).encode(row.get("encoding", "utf8"))
                )
                for name, spec in specs.items()
                if spec is not None
            }
            options = row.get("options", about.get("options", {}))
            yield f"{section} {number}", Case(files, reader(section, options), row)


def as_row(record: Any) -> Any:
    """A record as the tables have it: what differs from an empty one, and short mentions."""
    if isinstance(record, Mention):
        more = [[list(part) for part in record.fragments]] if record.fragments else []
        return [record.start, record.end, record.label, list(record.ids), *more]
    if isinstance(record, AnnotatedText | Concept):
        values = {one.name: getattr(record, one.name) for one in fields(record)}
        return {
            key: as_row(value)
            for key, value in values.items()
            if value or (key == "consider" and value is not None)
        }
    return [as_row(one) for one in record] if isinstance(record, tuple | list) else record

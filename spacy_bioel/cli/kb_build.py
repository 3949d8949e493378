"""Commands that write knowledge bases.

`bioel kb build` builds a knowledge base from source files, `bioel kb encode` adds vectors, and
`bioel kb copy` copies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.kb_show import MEANINGS_OF_COUNTS, ann_text, open_kb_argument
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.formats import detect_ontology_format, read_ontology
from spacy_bioel.io.ontology import read_obo_header
from spacy_bioel.io.open import counting_kept, skip_if_bad
from spacy_bioel.io.table import COLUMN_KEYS, Column, read_table
from spacy_bioel.kb.build import Branches, build_kb, check_ids
from spacy_bioel.kb.folder import homes_in
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept

# Maximum number of digits in a --columns number; longer numbers are treated as header names.
_MAX_DIGITS = 9
RETIRED_COLUMNS = {"id": 1, "replaced_by": 2}  # column numbers in a file of retired ids
SOURCES_HELP = "OBO, OWL, MeSH XML, a UMLS or OMOP folder, CTD, JSONL, CSV, TSV or XLSX."


@dataclass(frozen=True)
class SourceOptions:
    """Options for a knowledge base's sources."""

    format: console.Format = None
    prefix: console.Prefix = ""
    columns: Annotated[
        str | None,
        Option(
            metavar="KEY=COLUMN,...",
            help="Table columns, by number (from 1) or by header: id=1,name=2,synonyms=Synonyms. "
            f"The keys are {', '.join(COLUMN_KEYS)}.",
        ),
    ] = None
    synonym_separator: Annotated[
        str,
        Option(
            metavar="TEXT", help="Separator between synonyms in a cell; default: detected (| or ;)."
        ),
    ] = ""
    vocabulary: Annotated[
        str,
        Option(metavar="NAME,...", help="OMOP vocabularies to read, such as SNOMED,RxNorm."),
    ] = ""
    types: Annotated[
        str | None,
        Option(metavar="TYPE,...", help="Keep only concepts that have one of these types."),
    ] = None
    source: Annotated[
        str,
        Option(
            "--source-name", help="Name of the source, stored as metadata; default: the file names."
        ),
    ] = ""
    release: Annotated[
        str, Option(help="Release of the source, stored as metadata; default: from OBO headers.")
    ] = ""
    licence: Annotated[
        str, Option(help="Licence of the source, stored as metadata; default: from OBO headers.")
    ] = ""
    skip_bad: console.SkipBad = None


@console.expand_options
def build(
    out: Annotated[Path, Argument(help="Folder to create, or knowledge base to replace.")],
    sources: Annotated[list[Path], Argument(metavar="SOURCE", help=SOURCES_HELP)],
    options: SourceOptions,
    under: Annotated[
        list[str] | None,
        Option(metavar="ID", help="Keep only this concept and its descendants; repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        Option(metavar="ID", help="Exclude this concept and its descendants; repeatable."),
    ] = None,
    retired: Annotated[
        Path | None,
        Option(metavar="FILE.tsv", help="Retired ids, one per line: old id, tab, current id."),
    ] = None,
    json_file: console.Json = None,
) -> None:
    """Build a knowledge base from one or more sources.

    Records with the same id are merged. The report counts everything that was dropped. The folder
    is created or replaced only after all sources have been read.

    With --skip-bad, invalid records are skipped: lines in tables, JSON lines, RRF and dictionaries;
    OBO frames; MeSH XML records; and entries in JSON objects. A damaged file, or any error in OWL
    or OBO JSON, always stops the build.

    Example: `bioel kb build my_kb terms.csv --columns id=Code,name=Label --prefix MY`
    """
    console.check_distinct([*sources, retired], [options.skip_bad, json_file])
    had_vectors = bool(homes_in(out, "vectors"))
    with console.reporting_bad(options.skip_bad, sources=sources):
        concepts, about = open_sources(sources, options)
        if retired is not None:
            concepts = chain(
                concepts, read_table(retired, columns=RETIRED_COLUMNS, prefix=options.prefix)
            )
        report = build_kb(
            console.track(concepts, "Reading concepts"),
            out,
            branches=Branches(under or (), exclude or ()) if under or exclude else None,
            **about,
        )
    if console.write_json(json_file, asdict(report)):
        show_counts(f"Built {out}", asdict(report))
    if had_vectors:
        console.show_note(
            f"The vectors of the replaced knowledge base are gone: run bioel kb encode {out} MODEL"
        )


def encode(
    kb: console.KbFolder,
    model: Annotated[
        str,
        Argument(help="Pipeline with a bioel_linker; starter: the bundled encoder."),
    ],
    code: console.Code = None,
    gpu_id: console.GpuId = -1,
) -> None:
    """Encode all names with a pipeline's linker, and store the vectors in the knowledge base.

    A pipeline needs vectors from its own encoder to search a large knowledge base. Vectors from
    other encoders are kept. Names that already have a vector from this encoder are not encoded
    again. For constrained decoding, a trie of the names is also written. Commands that change the
    knowledge base wait until encoding has finished.

    If the pipeline was saved with a copy of this knowledge base, the copy also gets the vectors.

    Example: `bioel kb encode my_kb starter`
    """
    from spacy_bioel.loading import load_model, require_linker

    base = KnowledgeBase.open(kb)
    linker = require_linker(load_model(model), model)
    with console.progress_bar("Encoding names", total=base.n_names) as advance:
        done = linker.encode_kb(base, progress=advance)
    kept = f", {done.copied:,} already had vectors" if done.copied else ""
    console.show_note(
        f"Encoded {done.encoded:,} names of {kb} with encoder {linker.fingerprint}{kept}."
    )
    if done.ann:
        console.show_note(f"Built an {ann_text(done.ann)}.")
    for copy in parts_of(linker.kb_if_built()) if linker.included else ():
        if copy.path and copy.fingerprint == base.fingerprint:
            KnowledgeBase.open(kb).save_to(copy.path)
            console.show_note(f"The copy in {copy.where} has the vectors too.")
        else:
            console.show_note(f"Not encoded: {copy.where}, which is not the same knowledge base.")


def open_sources(
    paths: Sequence[Path], options: SourceOptions
) -> tuple[Iterator[Concept], dict[str, Any]]:
    """Open a knowledge base's sources as specified by a command's options.

    RETURNS (tuple): A stream of the concepts in all files; and a dict with the `types` to keep,
        `source`, `release` and `licence`, by default from the file names and OBO headers.
    """
    columns = None if options.columns is None else parse_columns(options.columns)
    detects = options.format is None and columns is None
    formats = [
        (path, detect_ontology_format(path) if detects else options.format) for path in paths
    ]
    headers = [read_obo_header(path) for path, name in formats if name == "obo"]
    defaults = {"source": [path.name for path in paths]}
    defaults |= {key: [h[i] for h in headers] for i, key in enumerate(("release", "licence"))}
    reading: Any = {"columns": columns, "synonym_separator": options.synonym_separator}
    reading["vocabularies"] = split_list(options.vocabulary)
    concepts = chain.from_iterable(
        _with_good_ids(path, read_ontology(path, format=name, prefix=options.prefix, **reading))
        for path, name in formats
    )
    about: dict[str, Any] = {"types": None if options.types is None else split_list(options.types)}
    for key, values in defaults.items():
        about[key] = getattr(options, key) or ", ".join(dict.fromkeys(filter(None, values)))
    return counting_kept(concepts), about


def _with_good_ids(path: Path, concepts: Iterable[Concept]) -> Iterator[Concept]:
    for number, concept in enumerate(concepts, start=1):
        with skip_if_bad():
            check_ids(concept, where=f"record {number} of {path}")
            yield concept


def show_counts(title: str, counts: Mapping[str, int | str]) -> None:
    """Print a table of non-zero counts with their meanings."""
    rows = [
        (MEANINGS_OF_COUNTS[name], count if isinstance(count, str) else f"{count:,}")
        for name, count in counts.items()
        if count
    ]
    console.show_table(("count", "value"), rows, title=title)


def parse_columns(text: str) -> dict[str, Column]:
    """Parse "id=1,name=Label" as {"id": 1, "name": "Label"}."""
    columns: dict[str, Column] = {}
    for part in split_list(text):
        key, _, column = (piece.strip() for piece in part.partition("="))
        if not key or not column:
            raise BioelError(Errors.B070.format(part=part))
        columns[key] = int(column) if column.isdecimal() and len(column) <= _MAX_DIGITS else column
    return columns


def split_list(text: str) -> list[str]:
    """Parse "a, b" as ["a", "b"]."""
    return [part.strip() for part in text.split(",") if part.strip()]


def copy(
    kb: console.Kb,
    out: Annotated[Path, Argument(metavar="OUT", help="Folder for the copy.")],
) -> None:
    """Copy a knowledge base, bundled or not, to a folder where you can change it.

    Example: `bioel kb copy starter:genes my_genes`
    """
    open_kb_argument(kb).save_to(out)
    console.show_note(f"To add concepts to it: bioel kb add {out} SOURCE")

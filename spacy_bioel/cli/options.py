"""Arguments and options that several commands have."""

from __future__ import annotations

import errno
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option


def refuse_folder(path: Path | None) -> Path | None:
    """Refuse a folder before anything is done, not when the result is there to be written."""
    if path is not None and path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "", str(path))
    return path


def _import_code(path: str | None) -> str | None:
    """Import it while the options are read, before a pipeline is loaded."""
    if path is not None:
        from spacy_bioel.loading import import_code

        import_code(path)
    return path


Format = Annotated[
    str | None, Option(help="Format of the input; default: detected from the content.")
]
Prefix = Annotated[
    str, Option(help="Prefix of ids without one, e.g. MESH: D003920 becomes MESH:D003920.")
]
Json = Annotated[
    Path | None,
    Option(
        "--json",
        metavar="FILE",
        help="Also write the result as JSON; - for stdout.",
        callback=refuse_folder,
    ),
]

# A pipeline, of `link`, `explain`, `serve` and `mcp`.
MODEL = (
    "a pipeline, by folder or package name, or a knowledge base; default: the pipeline of the "
    "package."
)

Code = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help="Python that registers functions which the config of MODEL names, such as rules for a "
        "kind of entity of your own.",
        callback=_import_code,
    ),
]

PresetName = StrEnum("PresetName", ["CLINICAL"])
Preset = Annotated[
    PresetName | None,
    Option(
        help="clinical, for notes: their shorthand and measurements are found, and what they say "
        "of each mention (negated, past, ...)."
    ),
]

# Gold documents, of `evaluate` and `tune`.
Label = Annotated[
    list[str] | None,
    Option(
        "--label",
        metavar="GOLD=MODEL",
        help="The label MODEL of the pipeline is GOLD in the corpus; can be repeated, also for one "
        "MODEL. GOLD= leaves the mentions of GOLD out.",
    ),
]
Prefixes = Annotated[
    list[str] | None,
    Option(
        "--prefix",
        metavar="PREFIX",
        help="Prefix of ids without one, e.g. MESH: D003920 becomes MESH:D003920. Gene=NCBIGene is "
        "for the label Gene of the corpus alone; can be repeated.",
    ),
]
Annotates = Annotated[
    list[str] | None,
    Option(
        metavar="LABEL",
        help="A label of the pipeline that the corpus annotates, can be repeated: predictions of "
        "other labels are left out, and not counted as wrong. Default: what the documents say, or "
        "all labels.",
    ),
]

# Knowledge bases and their sources, of `bioel kb`.
KbFolder = Annotated[Path, Argument(help="Folder that `bioel kb build` wrote.")]
Kb = Annotated[
    str,
    Argument(
        metavar="KB",
        help="Folder that `bioel kb build` wrote, or a knowledge base of the package: "
        "starter:mesh, starter:genes, starter:species or starter:cells.",
    ),
]
Sources = Annotated[
    list[Path],
    Argument(
        metavar="SOURCE",
        help="OBO, OWL, MeSH XML, a UMLS folder, CTD, JSONL, CSV or TSV.",
    ),
]
Columns = Annotated[
    str | None,
    Option(
        metavar="KEY=COLUMN,...",
        help="Columns of a table, by number or header: id=1,name=2,synonyms=Synonyms.",
    ),
]
Types = Annotated[
    str | None,
    Option(metavar="TYPE,...", help="Keep only concepts that have one of these types."),
]
SourceName = Annotated[
    str, Option(help="Name of the source, for the record; default: the file names.")
]
Release = Annotated[
    str, Option(help="Release of the source, for the record; default: that of OBO headers.")
]
Licence = Annotated[
    str, Option(help="Licence of the source, for the record; default: that of OBO headers.")
]

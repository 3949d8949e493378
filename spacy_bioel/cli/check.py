"""The command `bioel check`, which compares ids in files with their names."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.kb_build import parse_columns
from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.io.open import WORKBOOKS, Place

if TYPE_CHECKING:
    from spacy_bioel.curation.pairs import CheckedId

_MAX_IN_TABLE = 500
_SUFFIXES = (".jsonl", ".csv", ".tsv", ".html")


def check_ids_command(
    files: Annotated[
        list[Path],
        Argument(
            metavar="FILES",
            help="Text, Markdown, CSV, TSV, XLSX, JSON, JSON lines, YAML or OBO; folders; - for "
            "stdin.",
        ),
    ],
    kb: Annotated[
        list[str] | None,
        Option(
            help="Knowledge base: a folder, or a name from `bioel kb list`; starter: all bundled "
            "ones. Repeatable; each checks the ids with its prefixes. Default: starter."
        ),
    ] = None,
    output: Annotated[
        list[Path] | None,
        Option(
            "--output",
            "-o",
            metavar="OUT",
            help="File for the findings: .jsonl, .csv, .tsv or .html. Repeatable. Default: a table "
            "on stdout.",
        ),
    ] = None,
    all: Annotated[bool, Option("--all", help="Also list pairs that are right.")] = False,
    columns: Annotated[
        str, Option(help="Columns of tables, by name or number: id=HPO,name=CheckedId.")
    ] = "",
    prefix: console.Prefix = "",
    format: Annotated[str, Option(help="text, table, json, yaml or obo; default: by suffix.")] = "",
    baseline: Annotated[
        Path | None,
        Option(
            metavar="FILE.jsonl",
            help="Findings of an earlier run, written by -o. They are accepted: only others are "
            "listed and counted as wrong.",
        ),
    ] = None,
    fix: Annotated[
        Path | None,
        Option(
            metavar="OUT",
            help="Write a copy of the file in which retired ids are replaced, and show the changes "
            "as a diff. An id without a clear replacement, or whose name does not fit it, stays.",
            callback=console.refuse_folder,
        ),
    ] = None,
    labels: Annotated[
        bool, Option("--labels", help="With --fix, also replace synonyms by preferred names.")
    ] = False,
) -> None:
    """Check that ids in files exist, and mean what the names next to them say.

    The verdicts are:

    * agrees, synonym: the name is the preferred name of the concept with the id, or another name.
    * close: it differs from a name in a typing error, the order of words, or a plural.
    * other concept: it does not. The proposals are concepts that the name may mean.
    * retired: the id was replaced by another. Without a replacement, a person has to decide.
    * unknown id, malformed: the id does not exist, or does not have the form of its vocabulary.
    * not checked: no knowledge base has the ids with this prefix.

    Ids without a name are only checked for existence. The exit status is 0 if nothing is wrong, 1
    if an id is retired, unknown, malformed or that of another concept, and 2 if a file cannot be
    read.

    Example: `bioel check answer.md --kb kb/hp --kb kb/mondo`
    """
    from spacy_bioel.curation.check import Checker
    from spacy_bioel.curation.report import (
        FINDING_COLUMNS,
        corrected_lines,
        edits_of,
        finding_cells,
        read_baseline,
        write_findings,
    )
    from spacy_bioel.curation.sources import files_in, read_pairs
    from spacy_bioel.curation.tables import TableOptions

    outputs = output or []
    for path in outputs:
        if path.suffix not in _SUFFIXES:
            raise BioelError(Errors.B606.format(path=path))
    console.check_distinct([*files, baseline], [*outputs, fix])
    sources = list(files_in(files))
    if fix is not None:
        _check_fixable(sources, fix)
    accepted = read_baseline(baseline) if baseline else frozenset()
    options = TableOptions(parse_columns(columns), prefix)
    checker = Checker(kb or ["starter"])
    counts: Counter[str] = Counter()
    unchecked: Counter[str] = Counter()
    kept: list[CheckedId] = []
    edits = []
    n_failed = n_left = 0
    for source in sources:
        lines = _stdin_lines() if str(source) == "-" else None
        try:
            for pair in read_pairs(
                source, checker.ids, format=format, options=options, lines=lines
            ):
                finding = checker.check(pair)
                key = finding.id, finding.name, finding.verdict.value
                finding = replace(finding, is_accepted=key in accepted)
                counts[finding.verdict.value] += 1
                unchecked[checker.unchecked_prefix(finding)] += 1
                if all or finding.is_wrong or finding.verdict.value == "close":
                    kept.append(finding)
                made = list(edits_of(finding, labels=labels)) if fix else []
                edits += [(edit, pair.style) for edit in made]
                n_left += finding.is_wrong and not (made and finding.is_certain)
        except BioelError as error:
            if len(sources) == 1:
                raise
            console.show_error(str(error))
            n_failed += 1
    for path in outputs:
        with console.writing(path) as file:
            write_findings(file, path.suffix, kept)
    if not outputs and kept:
        console.show_table(FINDING_COLUMNS, map(finding_cells, kept[:_MAX_IN_TABLE]))
        if len(kept) > _MAX_IN_TABLE:
            console.show_note(f"and {len(kept) - _MAX_IN_TABLE:,} more: -o OUT.csv lists all.")
    if fix is not None and not n_failed:
        with console.writing(fix) as file:
            console.show_line(f"--- {sources[0]}\n+++ {fix}")
            for number, old, new in corrected_lines(sources[0], edits):
                file.write(new)
                if old != new:
                    lines_of_diff = f"@@ -{number} +{number} @@", f"-{old}", f"+{new}"
                    console.show_line("\n".join(line.rstrip("\r\n") for line in lines_of_diff))
    for prefix_of_ids, n in unchecked.items():
        if prefix_of_ids:
            console.show_note(Warnings.W400.format(n=n, prefix=prefix_of_ids))
    shown = ", ".join(f"{n:,} {verdict}" for verdict, n in counts.items())
    console.show_note(f"{console.count_of(counts.total(), 'id')}: {shown or 'none found'}.")
    if n_failed or n_left:
        raise Exit(2 if n_failed else 1)


def _check_fixable(sources: list[Path], out: Path) -> None:
    problem = ""
    if len(sources) != 1:
        problem = f"there are {len(sources)} files"
    elif str(sources[0]) == "-" or sources[0].suffix in (*WORKBOOKS, ".gz", ".zst", ".zip"):
        problem = f"{sources[0]} cannot be rewritten"
    if problem:
        raise BioelError(Errors.B604.format(out=out, problem=problem))


def _stdin_lines() -> Iterator[tuple[Place, str]]:
    for number, line in enumerate(sys.stdin.buffer, start=1):
        yield Place("stdin", number), line.decode("utf8", "replace")

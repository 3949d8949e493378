"""Commands for new releases: `bioel kb diff` and `bioel migrate`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from typer import Argument, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.check import ReportOut, write_report
from spacy_bioel.cli.kb_show import open_kb_argument

if TYPE_CHECKING:
    from spacy_bioel.curation.releases import MovedId

OldKb = Annotated[str, Argument(metavar="OLD", help="Knowledge base of the old release.")]
NewKb = Annotated[str, Argument(metavar="NEW", help="Knowledge base of the new release.")]


def diff_command(
    old: OldKb,
    new: NewKb,
    output: ReportOut = None,
    annotations: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="List only ids in these files or folders, as for `migrate`."),
    ] = None,
    prefix: console.Prefix = "",
) -> None:
    """Compare two releases of a knowledge base.

    The changes are: added; replaced, by a new id; merged, into a concept that existed; split, if
    the names are now those of several concepts; consider, if a person has to choose; gone; renamed;
    parents changed; name moved, to another concept; name ambiguous, since it has a second concept.

    Example: `bioel kb diff kb/hp-2024 kb/hp-2026 -o changes.html`
    """
    from spacy_bioel.curation.releases import compare_releases, migrated_lines
    from spacy_bioel.curation.sources import files_in

    console.check_distinct([*(annotations or ())], [output])
    before, after = open_kb_argument(old), open_kb_argument(new)
    lines = (migrated_lines(p, before, before, prefix=prefix) for p in files_in(annotations or ()))
    moves = chain.from_iterable(moves for _, moves in chain.from_iterable(lines))
    used = {id for move in moves for id in (move.id, *move.to)}
    counts: Counter[str] = Counter()
    rows_of_names = after.preferred_rows(np.arange(len(after)))
    names = dict(zip(after.ids, after.names.take(rows_of_names), strict=True))

    def rows() -> Iterator[tuple[dict[str, object], tuple[str, ...]]]:
        for change in compare_releases(before, after):
            if annotations is None or change.id in used:
                counts[change.kind] += 1
                now = "\n".join(f"{id} {names.get(id, '')}" for id in change.to) or change.new_name
                yield change._asdict(), (change.kind, change.id, change.name, now)

    write_report(output, "Changes", ("change", "id", "name", "now"), rows())
    shown = ", ".join(f"{n:,} {kind}" for kind, n in counts.items())
    console.show_note(f"{console.count_of(counts.total(), 'change')}: {shown or 'none'}.")


def migrate_command(
    links: Annotated[
        Path, Argument(metavar="LINKS", help="JSON lines, CSV, PubTator, BioC, BRAT.")
    ],
    old: OldKb,
    new: NewKb,
    out: Annotated[Path, Option("--out", "-o", metavar="OUT", help="The migrated copy.")],
    rest: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="File of the ids that need a person: .jsonl, .csv, .tsv or .html. Default: a "
            "table.",
        ),
    ] = None,
    all: Annotated[bool, Option("--all", help="Also list the ids that moved.")] = False,
    prefix: console.Prefix = "",
) -> None:
    """Replace the ids of annotations that have a replacement in a new release.

    LINKS is a file or a folder, such as the output of `bioel link`. Only the ids of links change,
    never a text. An id without a replacement, or with several to consider, stays as it is, and is
    listed.

    Example: `bioel migrate links.jsonl kb/hp-2024 kb/hp-2026 -o links-2026.jsonl`
    """
    from spacy_bioel.curation.releases import migrated_lines
    from spacy_bioel.curation.sources import files_in
    from spacy_bioel.export.formats import new_folder

    console.check_distinct([links], [out, rest])
    before, after = open_kb_argument(old), open_kb_argument(new)
    counts: Counter[str] = Counter()

    def moves() -> Iterator[MovedId]:
        with new_folder(out) if links.is_dir() else nullcontext(out) as target:
            for path in files_in([links]):
                to = target / path.relative_to(links) if links.is_dir() else target
                with console.writing(to) as file:
                    is_empty = not path.stat().st_size  # such as a text of BRAT without mentions
                    lines = migrated_lines(path, before, after, prefix=prefix)
                    for line, found in () if is_empty else lines:
                        file.write(line)
                        counts.update(move.status for move in found)
                        yield from found

    hidden = ("unchanged",) if all else ("unchanged", "moved")
    rows = (
        (
            move._asdict() | {"place": str(move.place)},
            (move.status, move.id, move.name, "\n".join(move.to), str(move.place)),
        )
        for move in moves()
        if move.status not in hidden
    )
    write_report(rest, "Migrated ids", ("status", "id", "name", "now", "place"), rows)
    shown = ", ".join(f"{n:,} {status}" for status, n in counts.items())
    console.show_note(f"{console.count_of(counts.total(), 'id')}: {shown or 'none found'}.")

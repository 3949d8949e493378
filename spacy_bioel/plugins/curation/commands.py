"""The `bioel check`, `migrate`, `relink`, `kb diff` and `kb export` commands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache
from itertools import chain, islice, tee
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.kb_build import parse_columns
from spacy_bioel.cli.kb_show import open_kb_argument
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import suffix_of
from spacy_bioel.io.open import WORKBOOKS
from spacy_bioel.io.table import Column
from spacy_bioel.plugins.curation.errors import CurationErrors, CurationWarnings
from spacy_bioel.text.normalize import escape_formula, table_line

if TYPE_CHECKING:
    from spacy_bioel.kb.knowledge_base import KnowledgeBase
    from spacy_bioel.plugins.curation.pairs import Cell, CheckedId
    from spacy_bioel.plugins.curation.releases import IdOutcome

_MAX_IN_TABLE = 500
_SUFFIXES = (".jsonl", ".csv", ".tsv", ".html")
_ARCHIVES = (".zip", ".zst")  # read, but not written
_NOT_TEXT = ("[B102]", "[B477]", "[B600]")  # errors for empty files, archives and images
ReportOut = Annotated[
    list[Path] | None,
    Option(
        "--output",
        "-o",
        metavar="OUT",
        help="Report file: .jsonl, .csv, .tsv or .html; repeatable. Default: a table.",
    ),
]
Columns = Annotated[str, Option(help="Table columns, by name or number: id=HPO,name=Finding.")]


def check_ids_command(
    files: Annotated[
        list[Path],
        Argument(metavar="FILES", help="Files and folders; - for stdin."),
    ],
    kb: Annotated[
        list[str] | None,
        Option(
            help="Knowledge base: a folder, or a name from `bioel kb list`; starter: all bundled "
            "ones. Repeatable; each is used for the ids with its prefixes. Default: starter."
        ),
    ] = None,
    output: ReportOut = None,
    all: Annotated[bool, Option("--all", help="Also list ids without problems.")] = False,
    columns: Columns = "",
    prefix: console.Prefix = "",
    baseline: Annotated[
        Path | None,
        Option(
            metavar="FILE.jsonl",
            help="Findings from an earlier run, written by -o, which are not listed again.",
        ),
    ] = None,
    fix: Annotated[
        Path | None,
        Option(
            metavar="OUT",
            help="Write a copy of the file with retired ids replaced, even in link addresses, and "
            "show the changes as a diff. An id without a clear replacement, or with a name that "
            "does not match, is kept and counted.",
            callback=console.refuse_folder,
        ),
    ] = None,
    labels: Annotated[
        bool, Option("--labels", help="With --fix, also replace names with preferred names.")
    ] = False,
) -> None:
    """Check that the ids in files exist and match the names next to them.

    The files can be text, Markdown, CSV, TSV, XLSX, JSON, JSON lines, YAML or OBO. The possible
    verdicts are agrees, exists (no name to compare), synonym (perhaps also another concept's
    preferred name), close (a typing error, different word order or plural), other concept (with
    proposals), retired, unknown id, malformed, and not checked (no knowledge base has the prefix).
    The exit status is 0 if nothing is wrong, 1 if something is, 2 if a file cannot be read, and 3
    if nothing is wrong but a file has no names to check its ids against. With --fix, corrected ids
    do not count as wrong.

    Example: `bioel check answer.md --kb kb/hp --kb kb/mondo`
    """
    from spacy_bioel.plugins.curation import report, sources
    from spacy_bioel.plugins.curation.check import Checker
    from spacy_bioel.plugins.curation.ids import prefix_key, split_id

    console.check_distinct([*files, baseline], [*(output or ()), fix])
    paths = list(sources.files_in(files))
    suffixes = {"" if path == Path("-") else path.suffix or "." for path in paths}
    is_fixable = len(paths) == 1 and suffixes.isdisjoint({"", ".gz", ".zst", ".zip", *WORKBOOKS})
    if fix is not None and not is_fixable:
        raise BioelError(CurationErrors.B604.format(out=fix, found=", ".join(map(str, paths[:3]))))
    accepted = frozenset(report.read_baseline(baseline) if baseline else ())
    at_columns = _id_columns(columns)
    against = kb or ["starter"]
    checker = Checker(against)
    counts: Counter[str] = Counter()
    unchecked: Counter[tuple[str, str]] = Counter()  # number of ids by prefix and reason
    corrections: list[tuple[Cell, str]] = []
    spelled: dict[str, str] = {}  # one spelling per prefix key
    skipped: list[Path] = []
    without_ids: list[Path] = []
    without_names: list[Path] = []
    left: Counter[str] = Counter()  # number of wrong ids that were not corrected
    n_failed = 0

    def findings() -> Iterator[CheckedId]:
        """Yield the findings to list, and count all findings."""
        nonlocal n_failed
        for path in paths:
            before = counts.copy()
            try:
                pairs = sources.read_pairs(
                    path, checker.ids, columns=at_columns, prefix=prefix, values=checker.values
                )
                for finding in map(checker.check, pairs):
                    if (finding.id, finding.name, finding.verdict.value) in accepted:
                        counts["accepted"] += 1
                        continue
                    counts[finding.verdict.value] += 1
                    if finding.verdict.value == "not checked":
                        name = (split_id(finding.id) or ("",))[0]
                        unchecked[spelled.setdefault(prefix_key(name), name), finding.reason] += 1
                    made = list(report.corrections_of(finding, labels=labels)) if fix else []
                    corrections.extend(made)
                    if finding.is_wrong and not (made and finding.is_certain):
                        left[finding.verdict.value] += 1
                    is_doubtful = bool(finding.proposals) or finding.verdict.value == "close"
                    if all or finding.is_wrong or is_doubtful:
                        yield finding
                is_text = sources.format_of_file(path) in ("text", "obo")
                new = counts - before
                if not new and not is_text:
                    without_ids.append(path)
                if new and new.keys() == {"exists"}:
                    without_names.append(path)
            except BioelError as error:
                if path not in files and str(error).startswith(_NOT_TEXT):
                    skipped.append(path)
                    continue
                if len(paths) == 1:
                    raise
                console.show_error(str(error))
                n_failed += 1

    rows = ((report.finding_record(found), report.finding_cells(found)) for found in findings())
    title = f"Ids checked with {', '.join(against)}"
    _write_report(output, title, checker.kbs, report.FINDING_COLUMNS, rows, counts)
    if fix is not None and not n_failed:
        style = sources.format_of_file(paths[0])
        with console.writing(fix) as file:
            console.show_line(f"--- {paths[0]}\n+++ {fix}")
            for number, old, new, n in report.corrected_lines(paths[0], corrections, style):
                file.write(new)
                left.update({"written in another way": n} if n else {})
                if old != new:
                    diff = f"@@ -{number} +{number} @@", f"-{old}", f"+{new}"
                    console.show_line("\n".join(line.rstrip("\r\n") for line in diff))
    for (name, reason), n in unchecked.items():
        note = CurationWarnings.W483 if reason else CurationWarnings.W400
        console.show_note(note.format(n=n, prefix=name, reason=reason))
    warnings = CurationWarnings.W411, CurationWarnings.W416, CurationWarnings.W481
    for warning, listed in zip(warnings, (skipped, without_ids, without_names), strict=True):
        if listed:
            console.show_note(warning.format(n=len(listed), first=listed[0]))
    _show_counts(counts, "id")
    if fix and left:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in left.items())
        console.show_note(f"{left.total():,} not corrected: {kinds}.")
    if n_failed or left or without_names:
        raise Exit(2 if n_failed else 1 if left else 3)


def _id_columns(text: str) -> dict[str, Column]:
    """Parse --columns. RAISES BioelError: [B127] unless the keys are "id" and optionally "name"."""
    columns = parse_columns(text)
    if columns and columns.keys() | {"name"} != {"id", "name"}:
        raise BioelError(Errors.B127.format(path="--columns", found=[*columns], known=["name"]))
    return columns


def _show_counts(counts: Counter[str], noun: str, after: str = "") -> None:
    shown = ", ".join(f"{n:,} {kind}" for kind, n in counts.items()) or "none found"
    console.show_note(f"{console.count_of(counts.total(), noun)}: {shown}{after}.")


def _write_report(
    outs: Collection[Path] | None,
    title: str,
    kbs: Iterable[KnowledgeBase],
    columns: Sequence[str],
    rows: Iterator[tuple[dict[str, Any], Sequence[str]]],
    counts: Counter[str],
) -> None:
    """Write a report to files, or show its first rows as a table.

    rows (Iterator): Pairs of a JSON value and table cells. Lines of cells may begin with ids.
    counts (Counter): Number of rows by verdict or kind, complete only after the last row.
    """
    if not outs:
        if shown := [cells for _, cells in islice(rows, _MAX_IN_TABLE)]:
            console.show_table(columns, shown)
            if n_more := sum(1 for _ in rows):
                console.show_note(f"and {n_more:,} more, listed only in a file.")
        return
    suffixes = [suffix_of(str(out), _SUFFIXES) for out in outs]
    for out, suffix, copy in zip(outs, suffixes, tee(rows, len(outs)), strict=True):
        with console.writing(out) as file:
            if suffix == ".html":
                from spacy_bioel.export.pages import PAGES

                listed = (cells for _, cells in copy)
                about = {"title": title, "columns": columns, "rows": listed, "counts": counts}
                releases = [release for kb in kbs for release in kb.releases]
                file.writelines(PAGES.get_template("table.html").generate(about, releases=releases))
            elif separator := {".csv": ",", ".tsv": "\t"}.get(suffix):
                lines = chain([columns], (map(escape_formula, cells) for _, cells in copy))
                file.writelines(table_line(cells, separator) for cells in lines)
            else:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row, _ in copy)


OldKb = Annotated[str, Argument(metavar="OLD", help="Knowledge base that LINKS was made with.")]
NewKb = Annotated[str, Argument(metavar="NEW", help="Knowledge base to update LINKS to.")]


def diff_command(
    old: Annotated[str, Argument(metavar="OLD", help="Knowledge base of the old release.")],
    new: Annotated[str, Argument(metavar="NEW", help="Knowledge base of the new release.")],
    output: ReportOut = None,
    annotations: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="List only ids in these files or folders (see `migrate`)."),
    ] = None,
    prefix: console.Prefix = "",
) -> None:
    """Compare two releases of a knowledge base.

    The changes are: added; replaced (by a new id); merged (into an existing concept); split
    (several concepts now have the names); consider (a person has to choose); gone; meaning changed
    (another concept now has the preferred name); renamed; parents changed; name added or name gone
    (a synonym); name moved (to another concept); name ambiguous (a second concept now has it); and
    not in OLD or not in NEW (that release was built from other branches only).

    Example: `bioel kb diff kb/hp-2024 kb/hp-2026 -o changes.html`
    """
    from spacy_bioel.plugins.curation.releases import compare_releases, migrated_lines
    from spacy_bioel.plugins.curation.sources import files_in

    console.check_distinct([*(annotations or ())], output or ())
    before, after = open_kb_argument(old), open_kb_argument(new)
    lines = (migrated_lines(p, before, before, prefix=prefix) for p in files_in(annotations or ()))
    found = chain.from_iterable(outcomes for _, outcomes, _ in chain.from_iterable(lines))
    used = {id for outcome in found for id in (outcome.id, *outcome.to)}
    counts: Counter[str] = Counter()
    missing = {"not in OLD": before.selected, "not in NEW": after.selected}

    @cache
    def with_name(id: str) -> str:
        return f"{id} {after.preferred_name(after.find(id)) if id in after else ''}"

    def rows() -> Iterator[tuple[dict[str, object], tuple[str, ...]]]:
        for change in compare_releases(before, after):
            if annotations is None or change.id in used:
                counts[change.kind] += 1
                about = missing.get(change.kind) or change.new_name
                now = "\n".join(map(with_name, change.to)) or about
                yield change._asdict(), (change.kind, change.id, change.name, now)

    title, columns = f"Changes from {old} to {new}", ("change", "id", "name", "now")
    _write_report(output, title, (before, after), columns, rows(), counts)
    _show_counts(counts, "change")


def migrate_command(
    links: Annotated[
        Path, Argument(metavar="LINKS", help="JSON lines, CSV, PubTator, BioC or BRAT.")
    ],
    old: OldKb,
    new: NewKb,
    out: Annotated[Path, Option("--out", "-o", metavar="OUT", help="File or folder for the copy.")],
    rest: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="File for ids that a person must review: .jsonl, .csv, .tsv or .html. Default: a "
            "table.",
        ),
    ] = None,
    all: Annotated[bool, Option("--all", help="Also list moved ids and ids not in OLD.")] = False,
    columns: Columns = "",
    prefix: console.Prefix = "",
) -> None:
    """Migrate annotations to a new release: replace each id that has exactly one replacement.

    LINKS is a file or a folder, such as the output of `bioel link`. Only ids are changed, never the
    text. If several ids of a link have been merged, the new id is written once. An id is kept and
    listed if it has no replacement or more than one, if its meaning has changed, or if NEW was
    built from other branches only. An id that is not in OLD is kept, but listed only if OLD has ids
    with its prefix. Hidden and non-text files in a folder are copied. If the name of OUT ends in
    .gz, the output is compressed.

    Example: `bioel migrate links.jsonl kb/hp-2024 kb/hp-2026 -o links-2026.jsonl`
    """
    from spacy_bioel.export.formats import new_folder
    from spacy_bioel.plugins.curation.releases import migrated_lines
    from spacy_bioel.plugins.curation.sources import files_in

    console.check_distinct([links], [out, rest])
    if out.suffix in _ARCHIVES:
        raise BioelError(Errors.B198.format(path=out, known=".gz, or the suffix of LINKS"))
    kbs = open_kb_argument(old), open_kb_argument(new)
    options: Any = {"columns": _id_columns(columns), "prefix": prefix}
    counts: Counter[str] = Counter()
    others: dict[str, None] = {}  # ids that OLD lacks
    copied: list[Path] = []
    n_repeated = 0
    unknown, hidden = ("in neither release", "not in OLD"), ("unchanged", "moved", "not in OLD")

    def outcomes() -> Iterator[IdOutcome]:
        """Write the migrated files, and yield each id's outcome."""
        nonlocal n_repeated
        with new_folder(out) if links.is_dir() else nullcontext(out) as target:
            texts = list(files_in([links]))
            if links.is_dir():
                texts = [path for path in texts if path.suffix not in _ARCHIVES]
                # The output may be inside the input, and symbolic links may be broken.
                skip: Any = {"ignore": lambda *_: {target.name}, "ignore_dangling_symlinks": True}
                copytree(links, target, dirs_exist_ok=True, **skip)
                every = (links / p.relative_to(target) for p in target.rglob("*") if p.is_file())
                copied.extend(sorted(set(every).difference(texts)))
            for path in texts:
                # BRAT has an empty file for a text without mentions.
                is_empty = path.exists() and not path.stat().st_size
                lines = () if is_empty else migrated_lines(path, *kbs, **options)
                try:
                    with console.writing(target / path.relative_to(links)) as file:
                        for line, found, n in lines:
                            file.write(line)
                            n_repeated += n
                            yield from found
                except BioelError as error:
                    if path == links or not str(error).startswith(_NOT_TEXT):
                        raise
                    copied.append(path)

    def rows() -> Iterator[tuple[dict[str, object], tuple[str, ...]]]:
        for outcome in outcomes():
            status, id, name, ids, place = outcome
            counts[status] += 1
            others.update({id: None} if status in unknown else {})
            if all and status != "unchanged" or status not in hidden:
                now = "\n".join(ids) or (kbs[1].selected if status == "not in NEW" else "")
                yield outcome._asdict() | {"place": str(place)}, (status, id, name, now, str(place))

    columns_of_rest = ("status", "id", "name", "now", "place")
    _write_report([rest] if rest else (), "Migrated ids", kbs, columns_of_rest, rows(), counts)
    merged = f", as {n_repeated:,} duplicated another id of a link" if n_repeated else ""
    _show_counts(counts, "id", f"; {counts.total() - n_repeated:,} written{merged}")
    if copied:
        console.show_note(CurationWarnings.W482.format(n=len(copied), first=copied[0]))
    if others or not counts:
        branches = f"{old} ({kbs[0].selected})" if kbs[0].selected else old
        about = {"links": links, "old": branches, "first": ", ".join(islice(others, 3))}
        n = sum(counts[status] for status in unknown)
        console.show_note(CurationWarnings.W410.format(n=n, known=counts.total() - n, **about))


def relink_command(
    links: Annotated[Path, Argument(metavar="LINKS", help="JSONL from `bioel link OLD TEXTS`.")],
    texts: Annotated[str, Argument(metavar="TEXTS", help="The INPUT for `bioel link`.")],
    old: OldKb,
    new: NewKb,
    out: Annotated[Path, Option("--out", "-o", metavar="OUT", help="Output file (JSON lines).")],
    format: console.Format = None,
) -> None:
    """Update links to a new release by linking only the texts whose links could change.

    LINKS was made with the knowledge base OLD, and is updated to the knowledge base NEW. The result
    is the same as that of `bioel link NEW TEXTS`. New texts are also linked.

    Example: `bioel relink links.jsonl notes.txt kb/hp-2024 kb/hp-2026 -o links-2026.jsonl`
    """
    from spacy_bioel import loading
    from spacy_bioel.cli import inputs
    from spacy_bioel.io.jsonl import read_documents_jsonl
    from spacy_bioel.plugins.curation.relink import relinked

    console.check_distinct([links, texts], [out])
    suffix_of(str(out), (".jsonl", ".ndjson"))
    documents = inputs.stream_documents(texts, format)
    earlier = read_documents_jsonl(links, "links", "error")
    pipelines = loading.load_model(old), loading.load_model(new)
    counts: Counter[str] = Counter()
    with console.writing(out) as file:
        for row, is_new in relinked(earlier, documents, *pipelines, where=str(links)):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            counts.update(all=1, linked=is_new, failed=row["error"] is not None)
    linked = f"{counts['linked']:,} of {console.count_of(counts['all'], 'document')} linked again"
    links_of = f"with NEW ({new}), the others keep their links from OLD ({old})"
    console.show_note(f"{linked} {links_of}; {counts['failed']:,} failed.")
    if counts["failed"]:
        raise Exit(1)


def export_command(
    kb: console.Kb,
    output: Annotated[Path, Option("--output", "-o", metavar="OUT.sssom.tsv", help="Output file.")],
) -> None:
    """Write the cross-references of all concepts as SSSOM mappings.

    The predicate is oboInOwl:hasDbXref, because a knowledge base does not store whether a
    cross-reference is exact.

    Example: `bioel kb export my_kb -o my_kb.sssom.tsv`
    """
    from spacy_bioel.plugins.curation.mappings import sssom_lines

    suffix_of(str(output), (".sssom.tsv",))
    left_out = Counter[str]()
    with console.writing(output) as file:
        file.writelines(sssom_lines(open_kb_argument(kb), left_out))
    if left_out:
        first = ", ".join(sorted(left_out)[:10])
        console.show_note(CurationWarnings.W414.format(n=left_out.total(), first=first))

"""`bioel kb retire`: replace or remove ids of a knowledge base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.cli.console import JsonOption, PrefixOption
from spacy_bioel.cli.kb_add import show_growth
from spacy_bioel.cli.sources import read_retired
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.ids import curie
from spacy_bioel.kb.build.grow import retire_ids


def retire(
    kb: Annotated[Path, typer.Argument(help="Folder that `bioel kb build` wrote.")],
    old: Annotated[str | None, typer.Argument(help="Id to retire.")] = None,
    replaced_by: Annotated[
        str, typer.Option(metavar="ID", help="Id of the concept that takes its place.")
    ] = "",
    pairs: Annotated[
        Path | None,
        typer.Option(metavar="FILE.tsv", help="Ids to retire: the old id, a tab, the current id."),
    ] = None,
    prefix: PrefixOption = "",
    json_file: JsonOption = None,
) -> None:
    """Retire ids of a knowledge base.

    A retired id resolves to its replacement, which takes over the names and the children of the
    concept. Without a replacement, the concept, the names that only it had and its id are removed.
    If one of the ids is unknown, none is retired.
    """
    if (old is None) == (pairs is None) or (pairs is not None and replaced_by):
        raise BioelError(Errors.B204)
    if pairs is not None:
        chosen = _read_pairs(pairs, prefix=prefix)
    else:
        chosen = {curie(str(old), prefix): curie(replaced_by, prefix)}
    show_growth(f"Retired in {kb}", retire_ids(kb, chosen), kb=kb, json_file=json_file)


def _read_pairs(path: Path, *, prefix: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for record in read_retired(path, prefix=prefix):
        known = pairs.setdefault(record.id, record.replaced_by)
        if known != record.replaced_by:
            raise BioelError(
                Errors.B205.format(path=path, id=record.id, first=known, second=record.replaced_by)
            )
    return pairs

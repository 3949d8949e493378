"""`bioel kb compact`: a knowledge base without what it does not need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.cli.console import JsonOption, count_of, show_note, write_json


def compact(
    kb: Annotated[Path, typer.Argument(help="Folder that `bioel kb build` wrote.")],
    forget_retired: Annotated[
        bool, typer.Option("--forget-retired", help="Retired ids lead nowhere from now on.")
    ] = False,
    json_file: JsonOption = None,
) -> None:
    """Remove what a knowledge base does not need.

    `bioel kb add` and `bioel kb retire` leave whole columns, so that nothing in them needs
    compacting. Removed are vectors of an earlier state, of each encoder, which `bioel kb encode`
    would copy from (run it first), and what killed commands have left. Retired ids stay, unless you
    say `--forget-retired`.
    """
    from spacy_bioel.kb.build.grow import forget_retired_ids, remove_leftovers

    n, freed = remove_leftovers(kb)
    about = {"leftovers": n, "megabytes": round(freed / 1e6, 1), "forgotten": 0}
    shown = f"Removed {count_of(n, 'leftover')} of {about['megabytes']:,} MB."
    if forget_retired:
        growth = forget_retired_ids(kb)
        about["forgotten"] = -growth.retired
        shown += f" Forgot {count_of(-growth.retired, 'retired id')}."
        if growth.vectors_outdated:
            shown += f" The vectors fit no longer: run bioel kb encode {kb} MODEL; no name is new."
    show_note(shown)
    if json_file is not None:
        write_json(json_file, about)

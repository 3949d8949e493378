"""`bioel kb compact`: remove unused files of a knowledge base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.cli.console import JsonOption, count_of, show_note, write_json
from spacy_bioel.kb.build.grow import compact_kb


def compact(
    kb: Annotated[Path, typer.Argument(help="Folder that `bioel kb build` wrote.")],
    forget_retired: Annotated[
        bool, typer.Option("--forget-retired", help="Also remove all retired ids.")
    ] = False,
    json_file: JsonOption = None,
) -> None:
    """Remove unused files of a knowledge base.

    These are outdated vectors of all encoders, and leftovers of killed commands. Run
    `bioel kb encode` first: it reuses outdated vectors. Columns need no compaction, because
    `bioel kb add` and `bioel kb retire` rewrite them. Retired ids are kept without
    `--forget-retired`.
    """
    done = compact_kb(kb, forget_retired=forget_retired)
    about = {"leftovers": done.leftovers, "megabytes": round(done.n_bytes / 1e6, 1), "forgotten": 0}
    shown = f"Removed {count_of(done.leftovers, 'leftover')} of {about['megabytes']:,} MB."
    if (growth := done.growth) is not None:
        about["forgotten"] = -growth.retired
        shown += f" Forgot {count_of(-growth.retired, 'retired id')}."
        if growth.vectors_outdated:
            shown += f" The vectors fit no longer: run bioel kb encode {kb} MODEL; no name is new."
    show_note(shown)
    if json_file is not None:
        write_json(json_file, about)

"""`bioel verify`: compare a saved pipeline or a knowledge base with what was saved."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.cli.console import JsonOption, show_error, show_table, write_json


def verify(
    path: Annotated[
        Path, typer.Argument(help="Folder of a saved pipeline, or of a knowledge base.")
    ],
    json_file: JsonOption = None,
) -> None:
    """Read every byte of a saved pipeline or a knowledge base, and compare digests.

    Of a pipeline, its pipes `bioel_mentions` and `bioel_linker` and their knowledge bases are
    compared; the rest of it is loaded. Pipes that an earlier version saved have no digests, and the
    command says so.

    The exit status is 0 when nothing is wrong, 1 when something is, and 2 when PATH is no pipeline
    and no knowledge base.
    """
    from spacy_bioel.pipeline.loading import verify as run

    found = run(path)
    if write_json(json_file, asdict(found)):
        shown = {
            "as it was saved": found.whole,
            "saved by an earlier version: there is nothing to compare": found.without,
            "not as it was saved": found.failed,
        }
        rows = [(folder, state) for state, folders in shown.items() for folder in folders]
        show_table(("folder", "found"), rows)
    for message in found.failed.values():
        show_error(message)
    if found.failed:
        raise typer.Exit(1)

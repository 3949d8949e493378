"""`bioel kb edit`: change the names of a concept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.cli.console import JsonOption, PrefixOption
from spacy_bioel.cli.kb_add import show_growth
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.ids import curie
from spacy_bioel.kb.build.edit import NameEdit
from spacy_bioel.kb.build.grow import edit_names


def edit(
    kb: Annotated[Path, typer.Argument(help="Folder that `bioel kb build` wrote.")],
    id: Annotated[str, typer.Argument(help="Id of the concept.")],
    add: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Synonym to add; may be repeated.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Name to remove; may be repeated.")
    ] = None,
    rename: Annotated[
        str, typer.Option(metavar="NAME", help="New preferred name; the old one is a synonym then.")
    ] = "",
    prefix: PrefixOption = "",
    json_file: JsonOption = None,
) -> None:
    """Change the names of one concept of a knowledge base.

    Names are compared whatever their case and punctuation. Removal comes last: --rename "new name"
    --remove "old name" leaves no trace of the old one. If anything is wrong, nothing is changed.

    All columns are rewritten, in seconds for half a million names, and replaced in one step.
    Vectors are kept: `bioel kb encode` encodes the new names only. Changes are lost when the
    knowledge base is built again: keep those that shall stay in a source of your own, for
    `bioel kb add`.
    """
    if not (add or remove or rename):
        raise BioelError(Errors.B402)
    change = NameEdit(add=add or (), remove=remove or (), rename=rename)
    growth = edit_names(kb, {curie(id, prefix): change})
    show_growth(f"Edited {curie(id, prefix)} in {kb}", growth, kb=kb, json_file=json_file)

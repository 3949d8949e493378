"""`bioel kb upgrade`: a knowledge base of an earlier version in the layout of this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.cli.console import show_note


def upgrade(
    kb: Annotated[Path, typer.Argument(help="Folder that `bioel kb build` wrote.")],
) -> None:
    """Bring a knowledge base that an earlier version wrote into the layout of this one.

    It is read as it is, too. In the layout of this version it can be changed while others read it,
    and has vectors of several encoders. Names and vectors stay as they are; the commands that
    change a knowledge base do the same for its columns. An earlier version cannot read it then.
    """
    from spacy_bioel.kb.build.grow import upgrade_kb

    done = upgrade_kb(kb)
    show_note(f"Brought {kb} into the new layout." if done else f"{kb} is in the new layout.")

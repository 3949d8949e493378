"""`bioel kb upgrade`: convert a knowledge base of an earlier version to the current layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.cli.console import show_note
from spacy_bioel.kb.build.grow import upgrade_kb


def upgrade(
    kb: Annotated[Path, typer.Argument(help="Folder that `bioel kb build` wrote.")],
) -> None:
    """Convert a knowledge base of an earlier version to the current layout.

    The earlier layout can be read, too. The current one can be changed while others read it, and
    can have vectors of several encoders. Names and vectors do not change. Commands that change a
    knowledge base also convert its columns. Earlier versions cannot read the current layout.
    """
    done = upgrade_kb(kb)
    shown = f"Converted {kb} to the current layout." if done else f"{kb} has the current layout."
    show_note(shown)

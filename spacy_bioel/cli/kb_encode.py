"""`bioel kb encode`: encode the names of a knowledge base as vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.cli.console import progress_bar, show_note
from spacy_bioel.cli.kb_info import ann_text
from spacy_bioel.cli.models import load_model, require_linker
from spacy_bioel.kb.columns.store import KnowledgeBase


def encode(
    kb: Annotated[Path, typer.Argument(help="Folder that `bioel kb build` wrote.")],
    model: Annotated[
        str,
        typer.Argument(help="Pipeline with a bioel_linker; or KB again, for the bundled encoder."),
    ],
) -> None:
    """Encode all names with a pipeline's linker, and store the vectors in the knowledge base.

    A pipeline can search a large knowledge base only with vectors of its own encoder. Vectors of
    other encoders are kept. Names that already have a vector of this encoder are not encoded again,
    so that an interrupted run resumes. A pipeline that writes names gets a trie of them too.
    Commands that change the knowledge base wait meanwhile.
    """
    base = KnowledgeBase.open(kb)
    linker = require_linker(load_model(model), model)
    with progress_bar("Encoding names", total=base.n_names) as advance:
        done = linker.encode_kb(base, progress=advance)
    kept = f", {done.copied:,} were there" if done.copied else ""
    show_note(f"Encoded {done.encoded:,} names of {kb} with encoder {linker.fingerprint}{kept}.")
    if done.ann:
        show_note(f"Built an {ann_text(done.ann)}.")

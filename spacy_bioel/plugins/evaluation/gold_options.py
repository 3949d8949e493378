"""Options of commands for gold documents, which `--help` shows without importing spaCy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from spacy_bioel.cli.console import Format, GoldPlace


@dataclass(frozen=True)
class GoldOptions(GoldPlace):
    """Options for gold documents, whose labels and ids are mapped to those of a pipeline."""

    format: Format = None
    prefix: Annotated[
        list[str] | None,
        Option(
            metavar="PREFIX",
            help="Prefix for ids without one, e.g. MESH: D003920 becomes MESH:D003920. "
            "Gene=NCBIGene applies only to the corpus label Gene; repeatable.",
        ),
    ] = None
    label: Annotated[
        list[str] | None,
        Option(
            metavar="GOLD=MODEL",
            help="The corpus label GOLD is MODEL in the pipeline; repeatable, even with the same "
            "MODEL. GOLD= excludes the mentions labelled GOLD.",
        ),
    ] = None
    annotates: Annotated[
        list[str] | None,
        Option(
            metavar="LABEL",
            help="A pipeline label that the corpus annotates; repeatable. Predictions with other "
            "labels are excluded instead of being counted as wrong. Default: the labels that the "
            "documents declare, or all labels.",
        ),
    ] = None

"""The command `bioel`, with its subcommands. No other package imports this one."""

from spacy_bioel.cli.app import main

__all__ = ["main"]

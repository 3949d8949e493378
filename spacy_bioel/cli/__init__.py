"""The command `bioel`, with one subcommand per file. No other package imports this one."""

from spacy_bioel.cli.app import main

__all__ = ["main"]

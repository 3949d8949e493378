"""The command `bioel`, one command a file. Nothing imports this package."""

from spacy_bioel.cli.app import main

__all__ = ["main"]

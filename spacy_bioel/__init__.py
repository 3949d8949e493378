"""Biomedical entity linking for spaCy."""

__version__ = "0.1.0"

"""Errors raised when linking on Spark."""

from __future__ import annotations

from spacy_bioel.errors import Errors


class SparkErrors(Errors):
    B193 = "Spark does not start ({error}). Expected Java 17 or newer: install it, and set JAVA_HOME to its folder."
    B194 = "Spark failed: {error}. Nothing was written. If a worker lacks the pipeline or this package, put them where all workers can read them (docs/guides/scale.md)."
    B197 = "{path} already exists. Remove it, or choose another name."

"""Messages of curation, besides those of the engine."""

from __future__ import annotations

from spacy_bioel.errors import Errors, Warnings


class CurationErrors(Errors):
    B600 = "{where}: this file is not text (it contains a null byte). Expected text, Markdown, CSV, TSV, XLSX, JSON, YAML or OBO in UTF-8: leave the file out, or convert it."
    B601 = "{where}: found {found}, expected JSON, JSON lines or YAML of at most 100 levels. Correct the file, or rename it to .txt to read it as text."
    B605 = "{path}, line {line}: this is not a baseline. Expected JSON lines with an id, a name and a verdict, as written by `bioel check FILES -o baseline.jsonl`: write one, or correct --baseline."
    B635 = "{path} has links to {id}, which {old} does not have. Expected links made by: bioel link {old} TEXTS"
    B636 = "{path} cannot be updated (found: {found}). Expected two knowledge bases, and links that `bioel link KB TEXTS` made without --preset, --context and --xrefs. Link the texts again: bioel link NEW TEXTS"


class CurationWarnings(Warnings):
    W401 = "{first} and {second} both have ids with the prefix {prefix}. An id is looked up in the first of them that knows it; if one is an older release, leave it out."

"""Errors and warnings of the curation plugin."""

from __future__ import annotations

from spacy_bioel.errors import Errors, Warnings


class CurationErrors(Errors):
    B204 = "Expected either an id to retire, or --pairs FILE.tsv with an old id, a tab and a current id per line. Specify one of the two."
    B205 = "{path} replaces {id!r} by {first!r} and by {second!r}, expected one replacement. Remove one; nothing was changed."
    B402 = "No name change is specified. Use --add, --remove or --rename, each with a name."
    B600 = "{where}: this file is not text (it contains a null byte). Expected text, Markdown, CSV, TSV, XLSX, JSON, YAML or OBO in UTF-8: leave the file out, or convert it."
    B601 = "{where}: found {found}, expected JSON, JSON lines or YAML of at most 100 levels. Correct the file, or rename it to .txt to read it as text."
    B604 = "--fix cannot correct {found} in {out}. Expected one file of text, Markdown, CSV, TSV, JSON, YAML or OBO, not compressed: correct other files one by one, and workbooks by hand."
    B605 = "{path}, line {line}: this is not a baseline. Expected JSON lines with an id, a name and a verdict, as written by `bioel check FILES -o baseline.jsonl`: write one, or correct --baseline."
    B609 = "{kb} has no cross-reference to {name}; it has some to {known}. Correct --as, or add mappings: bioel kb add KB --sssom FILE"
    B635 = "{path} has links to {id}, which OLD ({old}) does not have{hint}. OLD is the knowledge base with which the links were made (bioel link OLD TEXTS), NEW that to which to update: bioel relink LINKS TEXTS OLD NEW"
    B636 = "{path} cannot be updated (found: {found}). Expected two knowledge bases, OLD and NEW, and links that `bioel link OLD TEXTS` made without --preset, --context and --xrefs. Link the texts again: bioel link NEW TEXTS"
    B638 = "There is nothing to add. Name a source, or mappings: --sssom FILE"


class CurationWarnings(Warnings):
    W400 = "Not checked, because no knowledge base has all ids with the prefix {prefix}: {n:,}. To check them, add one: --kb FOLDER, or build it: bioel kb build FOLDER SOURCE"
    W401 = "{first} and {second} both have ids with the prefix {prefix}. An id is looked up in the first of them that knows it; if one is an older release, leave it out."
    W410 = "{links}: ids of {old}: {known:,}; others, which stay as they are: {n:,} ({first}). Check that OLD is the release with which it was annotated; ids without a prefix need --prefix, and a table needs a column such as id, or --columns."
    W411 = "Skipped in folders, because they are empty or not text: {n:,} ({first}). To read such a file, convert it to text, or name it to see the error."
    W412 = "Ids that stay those of the knowledge base, because their concepts have no cross-reference to {name}: {n:,} ({first}). To add mappings: bioel kb add KB --sssom FILE"
    W413 = "{path}: mappings left out: {n:,} ({why}). Only exact mappings of concepts in the knowledge base are added."
    W414 = "Cross-references left out, because they or the ids of their concepts do not have the form PREFIX:ID: {n:,} ({first})."
    W416 = "Tables and JSON or YAML files in which no ids were found: {n:,} ({first}). For a table with codes, name their column and prefix: --columns id=Code,name=Finding --prefix SNOMED. In JSON and YAML, ids need their prefix, or a key such as hpo_id."
    W443 = "Punctuation in names is ignored, so {name!r} is found wherever a text has {number}. Use a longer name, such as one with a unit, and remove this one: bioel kb edit {kb} {id} --remove={name}"
    W481 = "Files in which no id has a name next to it: {n:,} ({first}). Their ids were looked up, but not compared. If a table has names, say where: --columns id=...,name=..."
    W482 = "Files that were copied as they are, because they are hidden, not text, archives, or behind a link to a folder: {n:,} ({first}). If one has ids to replace, migrate it by itself."
    W483 = "Ids with the prefix {prefix} that were not checked: {n:,}. They are {reason}."

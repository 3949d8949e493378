"""`bioel corpus check`: examine an annotated corpus before training on it."""

from __future__ import annotations

from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from spacy_bioel.cli import console


def check_command(
    train: Annotated[Path, Argument(help="Training documents, as for `bioel convert`.")],
    dev: Annotated[Path, Argument(help="Development documents.")],
    kb: Annotated[list[str], Option(help="Knowledge base: a folder or starter:NAME; repeatable.")],
    format: console.Format = None,
    prefix: console.Prefixes = None,
    spans_key: console.SpansKey = None,
    ents: console.Ents = False,
    label: console.Label = None,
    annotates: console.Annotates = None,
    json_file: console.Json = None,
) -> None:
    """Check a corpus before training: labels, ids, offsets, overlaps, repeated documents.

    The table counts the mentions of each label, the gold ids that the knowledge base has, and the
    ids and strings in DEV that TRAIN lacks. All faults are listed. The exit status is 1 if training
    makes no sense: no mentions or no ids, fewer than half of the ids in the knowledge base, most
    offsets inside words, DEV and TRAIN with the same documents or without a common label.

    Example: `bioel corpus check train.pubtator dev.pubtator --kb kb/mine --prefix MESH`
    """
    from spacy_bioel.cli.inputs import stream_mapped_gold
    from spacy_bioel.cli.kb_show import open_kb_argument
    from spacy_bioel.evaluation.corpus_check import describe, find_faults, summarise
    from spacy_bioel.kb.bundled import open_kbs
    from spacy_bioel.loading import dictionary_pipeline

    base, nlp = open_kbs(kb, open_kb_argument), dictionary_pipeline(kb)
    options: Any = {"format": format, "spans_key": console.gold_place(spans_key, ents)}
    read = partial(stream_mapped_gold, prefix=prefix, label=label, annotates=annotates, **options)
    first, second = (
        summarise(console.track(read(path), str(path)), path, nlp) for path in (train, dev)
    )
    rows = describe(first, base), describe(second, base, first)
    report: dict[str, Any] = {"train": rows[0], "dev": rows[1]}
    faults = list(find_faults(first, second, base))
    report["errors"] = [message for message in faults if message.startswith("[B")]
    report["warnings"] = [message for message in faults if not message.startswith("[B")]
    if console.write_json(json_file, report):
        titles = dict.fromkeys(chain(*rows))
        cells = ((t, *(f"{of[t]:,}" if t in of else "" for of in rows)) for t in titles)
        console.show_table(("", "train", "dev"), cells)
    for message in report["warnings"]:
        console.show_note(message)
    for message in report["errors"]:
        console.show_error(message)
    if report["errors"]:
        raise Exit(1)

"""`bioel corpus check`: examine an annotated corpus before training on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from spacy_bioel.cli import console
from spacy_bioel.kb.known_ids import KnownIds

_NO_MENTIONS = defaultdict[str, int](int)


def check(
    train: Annotated[Path, Argument(help="Training documents, as for `bioel convert`.")],
    dev: Annotated[Path, Argument(help="Development documents.")],
    kb: Annotated[list[str], Option(help="Knowledge base: a folder or starter:NAME; repeatable.")],
    format: console.Format = None,
    prefix: console.Prefixes = None,
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
    from spacy_bioel.evaluation import corpus_check
    from spacy_bioel.kb.bundled import open_kbs
    from spacy_bioel.loading import dictionary_pipeline

    base, nlp = open_kbs(kb, open_kb_argument), dictionary_pipeline(kb)
    options: Any = {"format": format, "prefix": prefix, "label": label, "annotates": annotates}
    report: dict[str, Any] = {}
    both = []
    for name, path in (("train", train), ("dev", dev)):
        texts = console.track(stream_mapped_gold(path, **options), f"Reading {name}")
        both.append(one := corpus_check.summarise(texts, path, nlp))
        counts = {key: one.counts[key] for key in corpus_check.COUNTS}
        known = one.known_ids(base)
        labels = {x: {"mentions": one.mentions[x], **_counts(known[x])} for x in sorted(known)}
        report[name] = {"path": str(path), **counts, "labels": labels, "first": one.first}
    report["compared"] = corpus_check.compare(*both)
    faults = list(corpus_check.find_faults(*both, base))
    report["errors"] = [message for message in faults if message.startswith("[B")]
    report["warnings"] = [message for message in faults if message not in report["errors"]]
    if console.write_json(json_file, report):
        console.show_table(("", "train", "dev"), _rows(report))
    for message in report["warnings"]:
        console.show_note(message)
    for message in report["errors"]:
        console.show_error(message)
    if report["errors"]:
        raise Exit(1)


def _counts(known: KnownIds) -> dict[str, int]:
    return {key: value for key, value in asdict(known).items() if key != "missing"}


def _rows(report: dict[str, Any]) -> Iterator[list[str]]:
    from spacy_bioel.evaluation.corpus_check import COUNTS

    files = report["train"], report["dev"]
    for key, title in COUNTS.items():
        yield [title, *(f"{file[key]:,}" for file in files)]
    for label in sorted({label for file in files for label in file["labels"]}):
        of_label = [file["labels"].get(label, _NO_MENTIONS) for file in files]
        yield [f"{label}: mentions", *(f"{one['mentions']:,}" for one in of_label)]
        for part, of in (("known", "n"), ("distinct_known", "distinct")):
            title = f"{label}: {'distinct ' * (of == 'distinct')}ids in the knowledge base"
            yield [title, *(_share(one[part], one[of]) for one in of_label)]
    compared = report["compared"]
    for key, title in (("ids", "distinct ids"), ("strings", "distinct mention strings")):
        yield [f"{title} that train lacks", "", _share(compared[f"unseen_{key}"], compared[key])]
    yield ["documents that are also in train", "", f"{compared['shared_documents']:,}"]


def _share(n: int, of: int) -> str:
    return f"{n:,} of {of:,} ({100 * n / of:.1f} %)" if of else "–"

"""`bioel corpus check`, and the options shared by all commands that read gold documents."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.kb_show import open_kb_argument


@dataclass(frozen=True)
class GoldOptions(console.GoldPlace):
    """Options for gold documents: how their labels and ids map to a pipeline's."""

    format: console.Format = None
    prefix: Annotated[
        list[str] | None,
        Option(
            metavar="PREFIX",
            help="Prefix for ids without one: with MESH, D003920 becomes MESH:D003920. "
            "Gene=NCBIGene applies only to mentions labelled Gene; repeatable.",
        ),
    ] = None
    label: Annotated[
        list[str] | None,
        Option(
            metavar="GOLD=MODEL",
            help="The corpus label GOLD corresponds to the pipeline label MODEL; repeatable, even "
            "with the same MODEL. GOLD= excludes mentions labelled GOLD.",
        ),
    ] = None
    annotates: Annotated[
        list[str] | None,
        Option(
            metavar="LABEL",
            help="A pipeline label that is annotated in the corpus; repeatable. Predictions with "
            "other labels are ignored instead of being counted as incorrect. Default: the labels "
            "declared in the documents, or all labels.",
        ),
    ] = None


@console.expand_options
def check_command(
    train: Annotated[Path, Argument(help="Training documents, as for `bioel convert`.")],
    dev: Annotated[Path, Argument(help="Development documents.")],
    kb: Annotated[list[str], Option(help="Knowledge base: a folder or starter:NAME; repeatable.")],
    options: GoldOptions,
    json_file: console.Json = None,
    html: console.Html = None,
) -> None:
    """Check a corpus before training: labels, ids, offsets, overlaps and repeated documents.

    The table counts the mentions of each label, the gold ids in the knowledge base, and the ids and
    strings that are in DEV but not in TRAIN. All problems are listed. The exit status is 1 if
    training would be pointless: no mentions or ids, under half of the ids in the knowledge base,
    most offsets inside words, documents in both DEV and TRAIN, or no labels in common. The --html
    page also shows the lengths of documents and mentions, and what TRAIN lacks for each label.

    Example: `bioel corpus check train.pubtator dev.pubtator --kb kb/mine --prefix MESH`
    """
    from spacy_bioel.export.pages import PAGES, bins_of
    from spacy_bioel.kb.bundled import open_kbs
    from spacy_bioel.loading import dictionary_pipeline
    from spacy_bioel.plugins.evaluation.corpus_check import (
        describe,
        find_faults,
        summarise,
        unseen_by_label,
    )
    from spacy_bioel.plugins.evaluation.gold import stream_mapped_gold

    console.check_distinct([train, dev], [json_file, html])
    base, nlp = open_kbs(kb, open_kb_argument), dictionary_pipeline(kb)
    seen = set[str]()  # an option may apply to only one of the files
    summaries = []
    for path in (train, dev):
        texts = stream_mapped_gold(path, options, seen=seen, is_last=path is dev)
        summaries.append(summarise(console.track(texts, str(path)), path, nlp))
    first, second = summaries
    rows = describe(first, base), describe(second, base, first)
    report: dict[str, Any] = {"train": rows[0], "dev": rows[1]}
    faults = list(find_faults(first, second, base))
    report["errors"] = [message for message in faults if message.startswith("[B")]
    report["warnings"] = [message for message in faults if not message.startswith("[B")]
    titles, columns = dict.fromkeys(chain(*rows)), ("train", "dev")
    cells = [(t, *(f"{of[t]:,}" if t in of else "" for of in rows)) for t in titles]
    if console.write_json(json_file, report):
        console.show_table(("", *columns), cells)
    if html is not None:
        of_mentions = bins_of(first.mention_lengths, second.mention_lengths)
        of_documents = bins_of(first.lengths, second.lengths)
        unseen = unseen_by_label(first, second)
        charts = [
            ("Mentions by label.", ("label", *columns), _shares(first.mentions, second.mentions)),
            ("% of dev's ids and strings that train lacks.", ("label", "ids", "strings"), unseen),
            ("Mentions by number of tokens.", ("tokens", *columns), _shares(*of_mentions)),
            ("Documents by number of tokens.", ("tokens", *columns), _shares(*of_documents)),
        ]
        tables = [("Counts", ("Count", *columns), cells)]
        about = {"messages": faults, "charts": charts, "tables": tables}
        with console.writing(html) as file:
            file.write(PAGES.get_template("report.html").render(about, title="Corpus check"))
    for message in report["warnings"]:
        console.show_note(message)
    for message in report["errors"]:
        console.show_error(message)
    if report["errors"]:
        raise Exit(1)


def _shares(*counts: Counter[str]) -> list[tuple[str, *tuple[float, ...]]]:
    """Return each name with its percentage of each counter's total."""
    names = dict.fromkeys(chain(*counts))
    return [(name, *(100 * of[name] / max(of.total(), 1) for of in counts)) for name in names]

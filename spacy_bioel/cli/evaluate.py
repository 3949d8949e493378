"""`bioel evaluate`: a pipeline against a gold corpus, by named protocols."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from spacy_bioel.cli.console import (
    JsonOption,
    PrefixOption,
    progress_bar,
    show_note,
    show_table,
    track,
    write_json,
)
from spacy_bioel.cli.models import find_linker, load_model, require_linker
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.types import AnnotatedText, Link

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.scoring.measure import Measurement
    from spacy_bioel.scoring.protocols import Protocol

_DEFAULT = ("mention", "end_to_end", "gold")
_SUMMARY = ("f1", "accuracy@1")  # shown for each label; the other metrics only for all labels
_JSON_ONLY = ("accuracy@1_normalised", "map_normalised")  # follow from others and the recall
_NOTES = (
    "nil_gold", "nil_predicted", "missing_from_kb", "partly_missing_from_kb", "not_predicted",
    "nil_not_predicted", "widened", "tied",
)  # fmt: skip
_COLUMNS = ("protocol", "metric", "value", "95 % interval", "n", "label")
_BATCH = 32


def evaluate(
    model: Annotated[
        str, typer.Argument(help="Pipeline, by folder or package name; or a knowledge base.")
    ],
    gold: Annotated[
        Path, typer.Argument(help="Corpus with gold mentions, in any format of `bioel convert`.")
    ],
    kb: Annotated[
        Path | None, typer.Option(help="Link against this knowledge base instead of the model's.")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="May be repeated: mention, mention_unlabelled, end_to_end (or strict), "
            "end_to_end_any, end_to_end_with_nil, partial_binary (or partial), "
            "partial_fractional, document, gold, gold_any. Default: mention, end_to_end, gold.",
        ),
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="Format of the corpus; recognised from content if not given.")
    ] = None,
    prefix: PrefixOption = "",
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    json_file: JsonOption = None,
) -> None:
    """Measure a pipeline by one or several protocols, with 95 % intervals.

    "gold" and "gold_any" hand the linker the gold mentions. All others run the whole pipeline on
    the bare text. The denominator is always that of the corpus: mentions that the tokens or the
    knowledge base cannot represent count as wrong. JSON has every metric for every label, and
    accuracy and mean average precision over the mentions whose concept is a candidate
    ("normalised"). Ranks are counted within the linker's `max_candidates`.
    """
    from spacy_bioel.corpus import read_texts
    from spacy_bioel.scoring.protocols import get_protocol

    chosen = dict(get_protocol(name) for name in protocol or _DEFAULT)
    texts = list(read_texts(gold, format=format, prefix=prefix))
    if not any(text.mentions for text in texts):
        raise BioelError(Errors.B076.format(path=gold, n=len(texts)))
    nlp = load_model(model)
    if kb is not None:
        require_linker(nlp, model).set_kb(kb)
    if any(one.given_mentions for one in chosen.values()):
        require_linker(nlp, model)
    _check_ids(texts, find_linker(nlp), gold)
    found = measure_pipeline(nlp, texts, chosen, seed=seed)
    about = _describe_run(nlp, model=model, gold=gold, seed=seed)
    if json_file is not None:
        write_json(json_file, [asdict(row) | about for row in found])
    if str(json_file) != "-":
        unlabelled = {name for name, one in chosen.items() if not one.given_mentions}
        _show(found, about, unlabelled=unlabelled if finds_names(nlp) else set())


def _check_ids(texts: Sequence[AnnotatedText], linker: Any, path: Path) -> None:
    """RAISES BioelError: [B077] when the knowledge base knows not a single gold id."""
    ids = [id_ for text in texts for mention in text.mentions for id_ in mention.ids]
    if linker is None or not ids:
        return
    coverage = linker.kb.coverage(ids)
    if coverage.missing == coverage.n:
        first = ", ".join(coverage.first_missing)
        raise BioelError(Errors.B077.format(n=coverage.n, path=path, first=first))


def measure_pipeline(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    protocols: dict[str, Protocol],
    *,
    seed: int = 0,
) -> list[Measurement]:
    """Run a pipeline once a kind of protocol, and score it.

    protocols (dict[str, Protocol]): By proper name.
    RETURNS (list[Measurement]): In the order of the protocols.
    """
    from spacy_bioel.scoring.protocols import evaluate as score

    linker = find_linker(nlp)
    found = []
    for given in (False, True):
        names = [name for name, one in protocols.items() if one.given_mentions == given]
        if not names:
            continue
        links = link_given(nlp, linker, texts) if given else link_open(nlp, linker, texts)
        found += score(
            texts,
            list(links),
            protocols=names,
            canonical=linker.kb.canonical if linker is not None else str,
            in_kb=(lambda id_: linker.kb.find(id_) >= 0) if linker is not None else None,
            seed=seed,
        )
    order = list(protocols)
    return sorted(found, key=lambda row: order.index(row.protocol))


def link_open(nlp: Language, linker: Any, texts: Iterable[AnnotatedText]) -> Iterator[list[Link]]:
    """Links of the whole pipeline, which is shown nothing but the text."""
    from spacy_bioel.pipeline.annotate import get_links
    from spacy_bioel.pipeline.gold import SPANS_KEY

    key = linker.cfg["spans_key"] if linker is not None else SPANS_KEY
    bare = [text.text for text in texts]
    for doc in track(nlp.pipe(bare, batch_size=_BATCH), "Running the pipeline", total=len(bare)):
        yield get_links(doc, spans_key=key)


def link_given(nlp: Language, linker: Any, texts: Sequence[AnnotatedText]) -> Iterator[list[Link]]:
    """Links of the linker alone, which is shown the places and labels of the gold mentions."""
    from spacy_bioel.pipeline.annotate import get_links
    from spacy_bioel.pipeline.gold import with_gold_mentions
    from spacy_bioel.pipeline.tokens import with_token_vectors

    key = linker.cfg["spans_key"]
    docs = (with_gold_mentions(nlp.make_doc(t.text), t, spans_key=key) for t in texts)
    own_choice = linker.cfg["mentions"]
    linker.cfg["mentions"] = "spans"  # and not entities, or names of the knowledge base
    try:
        with progress_bar("Linking gold mentions", total=len(texts)) as advance:
            for doc in linker.pipe(with_token_vectors(nlp, docs), batch_size=_BATCH):
                yield get_links(doc, spans_key=key)
                advance(1)
    finally:
        linker.cfg["mentions"] = own_choice


def _describe_run(nlp: Language, *, model: str, gold: Path, seed: int) -> dict[str, Any]:
    linker = find_linker(nlp)
    has_encoder = linker is not None and linker.has_encoder
    return {
        "model": model,
        "model_fingerprint": fingerprint_folder(nlp.path) if nlp.path is not None else "",
        "encoder_fingerprint": linker.fingerprint if has_encoder else "",
        "kb_fingerprint": linker.kb.fingerprint if linker is not None else "",
        "gold": str(gold),
        "seed": seed,
        "command": shlex.join(["bioel", *sys.argv[1:]]),
    }


def fingerprint_folder(folder: Path) -> str:
    """Identify a saved pipeline by the names and contents of all its files."""
    from hashlib import blake2b, file_digest

    digest = blake2b(digest_size=8)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                content = file_digest(file, "blake2b").digest()
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + content)
    return digest.hexdigest()


def finds_names(nlp: Language) -> bool:
    """Whether mentions are the names of the knowledge base in the text: those have no label."""
    linker = find_linker(nlp)
    return linker is not None and linker.cfg["mentions"] == "kb"


def _show(
    found: Sequence[Measurement], about: dict[str, Any], *, unlabelled: Collection[str]
) -> None:
    """Tables and notes on what was found.

    unlabelled (Collection[str]): Protocols whose links have no labels, so that no row of a label
        could be anything but zero.
    """
    table = Table(*(Column(name, overflow="fold") for name in _COLUMNS))
    for row in found:
        if row.metric in _JSON_ONLY:
            continue
        if not row.label or (row.metric in _SUMMARY and row.protocol not in unlabelled):
            interval = f"{row.low:.2f}-{row.high:.2f}"
            cells = (row.protocol, row.metric, f"{row.value:.2f}", interval, f"{row.n:,}")
            table.add_row(*cells, row.label or "(all)")
    show_table(table)
    totals = {row.protocol: row.details for row in reversed(found) if not row.label}
    for name, details in reversed(totals.items()):
        counted = [f"{key} {details[key]:.0f}" for key in _NOTES if details.get(key)]
        if counted:
            show_note(f"{name}: {', '.join(counted)}")
    if "mention" in unlabelled:
        show_note("mention: names of a knowledge base have no label; see mention_unlabelled")
    for key, value in about.items():
        show_note(f"{key}: {value}")

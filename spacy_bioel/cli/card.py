"""`bioel card`: write the model card of a pipeline, from what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from spacy_bioel.cli.card_text import CorpusFacts, Facts, write_card
from spacy_bioel.cli.console import count_of, show_note
from spacy_bioel.cli.evaluate import finds_names, fingerprint_folder
from spacy_bioel.cli.models import find_linker, load_model
from spacy_bioel.errors import BioelError, Errors, Warnings

_FIELDS = frozenset("protocol metric value low high n label details gold seed command".split())


def card(
    model: Annotated[Path, typer.Argument(help="Folder of a pipeline, which gets the card.")],
    scores: Annotated[Path, typer.Argument(help="What `bioel evaluate MODEL GOLD --json` wrote.")],
    name: Annotated[
        str, typer.Option(help="Name of the package, without the language; default: as it is.")
    ] = "",
    version: Annotated[str, typer.Option(help="Version of the package; default: as it is.")] = "",
    author: Annotated[str, typer.Option(help="Who made it.")] = "",
    corpus: Annotated[str, typer.Option(help="Name of the training corpus.")] = "",
    licence: Annotated[str, typer.Option(help="Licence of the corpus.")] = "",
    domain: Annotated[
        str, typer.Option(help='Kind of its texts, e.g. "discharge letters in English".')
    ] = "",
    train: Annotated[
        Path | None, typer.Option(help="Training documents, to be counted, as `convert` reads.")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="A further limit of the pipeline; can be repeated.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a README.md that is there.")
    ] = False,
) -> None:
    """Write the model card of a tuned and measured pipeline: README.md, and meta.json.

    It has the corpus, the knowledge base with release, licence and fingerprint, scores by protocol
    with n and 95 % intervals, thresholds, limits, and how the pipeline was made. `spacy package`
    puts both files into the package. The scores and losses of training, which spaCy keeps in
    meta.json, are replaced by those of SCORES.
    """
    from spacy_bioel.pipeline.training_log import STEPS

    if name and not name.isidentifier():
        raise BioelError(Errors.B368.format(name=name))
    sizes = {} if train is None else {"train": size_of(train)}
    rows = read_scores(scores)
    if (model / "README.md").exists() and not replace:
        raise BioelError(Errors.B367.format(path=model / "README.md"))
    if not (model / "meta.json").is_file():
        raise BioelError(Errors.B365.format(path=model))
    found, expected = fingerprint_folder(model), rows[0].get("model_fingerprint")
    if found != expected:
        show_note(Warnings.W311.format(path=scores, found=expected or "none", expected=found))
    nlp = load_model(str(model))
    meta = json.loads((model / "meta.json").read_text(encoding="utf8"))
    if finds_names(nlp):  # their labels are not those of gold
        rows = [row for row in rows if row["protocol"] != "mention"]
    linker = find_linker(nlp)
    made = []
    if STEPS in meta:
        seed = nlp.config["training"]["seed"]
        made.append(f"Training: {count_of(meta[STEPS], 'update')}, seed {seed}.")
    facts = Facts(
        name=name or meta["name"],
        version=version or meta["version"],
        authors=author or meta.get("author", ""),
        corpora=[CorpusFacts(corpus, licence, domain)],
        sizes=sizes,
        kb={} if linker is None else linker.kb.meta,
        scores=rows,
        meta=meta | {"labels": dict(nlp.pipe_labels)},
        made=made,
        limits=limit or (),
    )
    if not facts.shown:
        only = f"only {', '.join(dict.fromkeys(row['protocol'] for row in rows)) or 'mention'}"
        raise BioelError(Errors.B366.format(path=scores, found=only))
    write_card(model, facts)
    show_note(f"{model / 'README.md'}, {model / 'meta.json'}")


def read_scores(path: Path) -> list[dict[str, Any]]:
    """Read rows of `bioel evaluate --json`. RAISES BioelError: [B366] on others."""
    try:
        rows = json.loads(path.read_text(encoding="utf8"))
    except ValueError as error:
        raise BioelError(Errors.B366.format(path=path, found=error)) from error
    is_list = isinstance(rows, list) and rows != []
    if not is_list or not all(isinstance(row, dict) and row.keys() >= _FIELDS for row in rows):
        raise BioelError(Errors.B366.format(path=path, found=f"{rows!r:.60}"))
    return rows


def size_of(path: Path) -> tuple[int, int]:
    """Documents and gold mentions of a corpus."""
    from spacy_bioel.corpus import read_texts

    mentions = [len(text.mentions) for text in read_texts(path)]
    return len(mentions), sum(mentions)

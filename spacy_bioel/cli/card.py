"""`bioel card`: write the model card of a pipeline, README.md and meta.json, from its scores.

Its scores are those of `bioel evaluate`, by protocol. Those of the training loop are not: they were
measured with other weights and thresholds, and losses are no scores. It is `templates/card.md`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

from spacy_bioel import __version__
from spacy_bioel.cli import console
from spacy_bioel.cli.evaluate import fingerprint_folder
from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.evaluation.protocols import protocol_summary
from spacy_bioel.files import replacing_text

NOT_STATED = "not stated"
PURPOSE = "For research and for the curation of text; not for decisions about patients."
_FIELDS = frozenset("protocol metric value low high n label details gold seed command".split())
# Rows of the table of scores: protocol, metric.
_FOUND = ("mention", "mention_unlabelled", "end_to_end")
_SHOWN = [
    *((protocol, metric) for protocol in _FOUND for metric in ("precision", "recall", "f1")),
    *(("gold", metric) for metric in ("accuracy@1", "accuracy@1_nil_ignored", "recall@5")),
]


class CorpusFacts(NamedTuple):
    """A corpus that a pipeline was trained on, in words; "": not stated."""

    title: str = ""
    licence: str = ""
    domain: str = ""


@dataclass(frozen=True)
class Facts:
    """All that a card says.

    name, version, authors (str): Of the package; the name without the language.
    corpora (Sequence[CorpusFacts]): What it was trained on.
    sizes (Mapping[str, tuple[int, int]]): Documents and gold mentions of each split.
    kb (Mapping): meta.json of the knowledge base; empty without a linker.
    scores (Sequence[Mapping]): Rows of `bioel evaluate --json`.
    meta (Mapping): meta.json of the pipeline, with the report of `bioel tune` if it was tuned.
    made (Sequence[str]): How it was made, in paragraphs.
    limits (Sequence[str]): Limits beside those of all pipelines.
    demo (str): Warning of a pipeline that is for no real work; "": it is not one.
    """

    name: str
    version: str
    authors: str
    corpora: Sequence[CorpusFacts]
    sizes: Mapping[str, tuple[int, int]]
    kb: Mapping[str, Any]
    scores: Sequence[Mapping[str, Any]]
    meta: Mapping[str, Any]
    made: Sequence[str] = ()
    limits: Sequence[str] = ()
    demo: str = ""

    @property
    def shown(self) -> list[Mapping[str, Any]]:
        found = {(row["protocol"], row["metric"]): row for row in self.scores if not row["label"]}
        return [found[key] for key in _SHOWN if key in found]

    @property
    def labels(self) -> str:
        found = (label for labels in self.meta["labels"].values() for label in labels)
        return ", ".join(dict.fromkeys(found))

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Names of the corpora and of the knowledge base, with their licences."""
        found = [(corpus.title, corpus.licence) for corpus in self.corpora]
        found += [(self.kb_name, self.kb.get("licence", ""))] if self.kb else []
        return [(name, licence or NOT_STATED) for name, licence in found]

    @property
    def kb_name(self) -> str:
        release = self.kb.get("release")
        return f"{self.kb.get('source') or 'a knowledge base'}{f' ({release})' if release else ''}"

    @property
    def licences(self) -> str:
        found = (f"{name or 'corpus'}: {licence}" for name, licence in self.sources)
        return "; ".join(dict.fromkeys(found))

    @property
    def description(self) -> str:
        linked = f" and links them to {self.kb_name}" if self.kb else ""
        what = f"Finds mentions{f' ({self.labels})' if self.labels else ''}{linked}."
        return f"{self.demo} {what}" if self.demo else f"{what} {PURPOSE}"


def card(
    model: Annotated[Path, Argument(help="Folder of a pipeline, which gets the card.")],
    scores: Annotated[Path, Argument(help="What `bioel evaluate MODEL GOLD --json` wrote.")],
    name: Annotated[str, Option(help="Of the package, without language; default: as it is.")] = "",
    version: Annotated[str, Option(help="Of the package; default: as it is.")] = "",
    author: Annotated[str, Option(help="Who made it.")] = "",
    corpus: Annotated[str, Option(help="Name of the training corpus.")] = "",
    licence: Annotated[str, Option(help="Licence of the corpus.")] = "",
    domain: Annotated[str, Option(help='Kind of its texts, e.g. "discharge letters".')] = "",
    train: Annotated[Path | None, Option(help="Training documents, to be counted.")] = None,
    limit: Annotated[list[str] | None, Option(help="A further limit; can be repeated.")] = None,
    code: console.Code = None,
    replace: Annotated[bool, Option("--replace", help="Replace a README.md.")] = False,
) -> None:
    """Write the model card of a tuned and measured pipeline: README.md, and meta.json.

    It has the corpus, the knowledge base with release, licence and fingerprint, scores by protocol
    with n and 95 % intervals, thresholds, limits, and how the pipeline was made. `spacy package`
    puts both files into the package. The scores and losses of training, which spaCy keeps in
    meta.json, are replaced by those of SCORES.
    """
    from spacy_bioel.cli import inputs
    from spacy_bioel.evaluation.scorers import STEPS

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
        what = Warnings.W311.format(path=scores, found=expected or "none", expected=found)
        console.show_note(what)
    nlp = inputs.load_model(str(model))
    meta = json.loads((model / "meta.json").read_text(encoding="utf8"))
    if inputs.finds_names(nlp):  # their labels are not those of gold
        rows = [row for row in rows if row["protocol"] != "mention"]
    linker = inputs.find_linker(nlp)
    made = []
    if STEPS in meta:
        seed = nlp.config["training"]["seed"]
        made.append(f"Training: {console.count_of(meta[STEPS], 'update')}, seed {seed}.")
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
    console.show_note(f"{model / 'README.md'}, {model / 'meta.json'}")


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
    """Count the documents and gold mentions of a corpus."""
    from spacy_bioel.corpus import read_texts

    mentions = [len(text.mentions) for text in read_texts(path)]
    return len(mentions), sum(mentions)


def write_card(folder: Path, facts: Facts) -> None:
    """Write README.md and meta.json of a pipeline."""
    meta = json.dumps(_meta(facts), indent=1, ensure_ascii=False) + "\n"
    for file, text in (("README.md", _readme(facts)), ("meta.json", meta)):
        with replacing_text(folder / file, follow=False) as out:
            out.write(text)


def _meta(facts: Facts) -> dict[str, Any]:
    """meta.json: scores by protocol and metric, as fractions, for spaCy shows them times 100."""
    return {
        **facts.meta,
        "name": facts.name,
        "version": facts.version,
        "description": facts.description,
        "author": facts.authors,
        "license": facts.licences,
        "sources": [
            {"name": name or NOT_STATED, "license": licence} for name, licence in facts.sources
        ],
        "performance": {
            f"{row['protocol']}_{row['metric']}": round(row["value"] / 100, 4)
            for row in facts.shown
        },
        "notes": "Scores: `bioel evaluate`, by protocol and metric. README.md has their "
        "intervals, and all else.",
    }


def _readme(facts: Facts) -> str:
    from spacy_bioel.export.html import PAGES

    return PAGES.get_template("card.md").render(
        facts=facts,
        missing=max(int(row["details"].get("missing_from_kb", 0)) for row in facts.shown),
        versions={"spacy-bioel": __version__, "spacy": version_of("spacy")}
        | {"torch": version_of("torch").partition("+")[0]},
        count_of=console.count_of,
        describe=protocol_summary,
        NOT_STATED=NOT_STATED,
        PURPOSE=PURPOSE,
    )

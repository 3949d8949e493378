"""`bioel card`: write a pipeline's model card (README.md, card.html, meta.json) from its scores.

The scores come from `bioel evaluate`, for each protocol. Scores from the training loop are
excluded, because they were measured with other weights and thresholds. The template is
`templates/card.md`; card.html is the same text with a chart of the scores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version as version_of
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

from spacy_bioel import __version__
from spacy_bioel.cli import console
from spacy_bioel.errors import BioelError
from spacy_bioel.files import fingerprint_folder, replacing_text
from spacy_bioel.plugins.evaluation.errors import EvaluationErrors, EvaluationWarnings
from spacy_bioel.scoring.protocols import protocol_summary

NOT_STATED = "not stated"
CARD_FILES = ("README.md", "card.html", "meta.json")
PURPOSE = "For research and for the curation of text; not for decisions about patients."
_FIELDS = frozenset("protocol metric value low high n label details gold seed command".split())
# Rows of the score table: (protocol, metric).
_CARD_SCORES = [
    *product(("mention", "mention_unlabelled", "end_to_end"), ("precision", "recall", "f1")),
    *product(["gold"], ("accuracy@1", "accuracy@1_nil_ignored", "recall@5")),
]


class CorpusFacts(NamedTuple):
    """A training corpus's title, licence and domain; "" if not given."""

    title: str = ""
    licence: str = ""
    domain: str = ""


@dataclass(frozen=True)
class Facts:
    """Contents of a model card.

    name, version, authors (str): Name (without the language), version and authors of the package.
    corpora (Sequence[CorpusFacts]): Training corpora.
    sizes (Mapping[str, tuple[int, int]]): Documents and gold mentions of each split.
    kb (Mapping): Description of the knowledge base; empty without a linker.
    scores (Sequence[Mapping]): Rows of `bioel evaluate --json`.
    meta (Mapping): meta.json of the pipeline, with the report of `bioel tune` if it was tuned.
    made (Sequence[str]): Paragraphs on how the pipeline was made.
    limits (Sequence[str]): Limits of this pipeline, in addition to the general limits.
    others (Mapping[str, Sequence[Mapping]]): Scores of other pipelines on the same documents, by
        pipeline name.
    demo (str): Warning that the pipeline is a demo, not for real work; "" if it is not one.
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
    others: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    demo: str = ""

    @property
    def shown(self) -> list[Mapping[str, Any]]:
        rows = {(row["protocol"], row["metric"]): row for row in self.scores if not row["label"]}
        return [rows[key] for key in _CARD_SCORES if key in rows]

    def of_others(self, row: Mapping[str, Any]) -> list[str]:
        """Return each other pipeline's score for a row's metric, or "" if it was not measured."""
        same = {"protocol": row["protocol"], "metric": row["metric"], "label": ""}.items()
        return [
            next((f"{one['value']:.1f}" for one in rows if same <= one.items()), "")
            for rows in self.others.values()
        ]

    @property
    def labels(self) -> str:
        labels = [label for of_pipe in self.meta["labels"].values() for label in of_pipe]
        return ", ".join(dict.fromkeys(labels))

    @property
    def origins(self) -> Sequence[Mapping[str, Any]]:
        """The pipelines that this one was trained from (see `spacy_bioel.pipe.note_origin`)."""
        origins: Sequence[Mapping[str, Any]] = self.meta.get("bioel", {}).get("origins", ())
        return origins

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Name and licence of each corpus, of the knowledge base, and of each pipeline that this
        one was trained from, including that pipeline's own sources."""
        pairs = [(corpus.title, corpus.licence) for corpus in self.corpora]
        if self.kb:
            pairs.append((self.kb_name, self.kb.get("licence", "")))
        for origin in self.origins:
            pairs.append((f"{origin['name']} {origin['version']}", origin["license"]))
            pairs += [(one["name"], one.get("license", "")) for one in origin["sources"]]
        return list(dict.fromkeys((name, licence or NOT_STATED) for name, licence in pairs))

    @property
    def kb_name(self) -> str:
        source, release = self.kb.get("source") or "a knowledge base", self.kb.get("release")
        return f"{source} ({release})" if release else source

    @property
    def licences(self) -> str:
        return "; ".join(f"{name or 'corpus'}: {licence}" for name, licence in self.sources)

    @property
    def description(self) -> str:
        labels = f" ({self.labels})" if self.labels else ""
        linked = f" and links them to {self.kb_name}" if self.kb else ""
        summary = f"Finds mentions{labels}{linked}."
        return f"{self.demo} {summary}" if self.demo else f"{summary} {PURPOSE}"


def card(
    model: Annotated[Path, Argument(help="Pipeline folder; the card is written there.")],
    scores: Annotated[Path, Argument(help="Output of `bioel evaluate MODEL GOLD --json`.")],
    name: Annotated[str, Option(help="Package name without language; default: unchanged.")] = "",
    version: Annotated[str, Option(help="Package version; default: unchanged.")] = "",
    author: Annotated[str, Option(help="Author of the pipeline.")] = "",
    corpus: Annotated[str, Option(help="Name of the training corpus.")] = "",
    licence: Annotated[str, Option(help="Licence of the corpus.")] = "",
    domain: Annotated[str, Option(help='Kind of text, e.g. "discharge letters".')] = "",
    train: Annotated[Path | None, Option(help="Training documents to count for the card.")] = None,
    limit: Annotated[list[str] | None, Option(help="A limitation to add; repeatable.")] = None,
    code: console.Code = None,
    replace: Annotated[bool, Option("--replace", help="Replace an existing README.md.")] = False,
) -> None:
    """Write the model card of a tuned and evaluated pipeline: README.md, card.html and meta.json.

    The card describes the corpus; the knowledge base, with its release, licence and fingerprint;
    scores by protocol, with n and 95 % intervals; thresholds; limits; and how the pipeline was
    made. card.html is the same card as a web page, with a chart of the scores. `spacy package` adds
    all three files to the package. SCORES replace the training scores and losses that spaCy stores
    in meta.json.

    Example: `bioel card tuned scores.json --name notes --corpus "My notes" --licence "CC BY 4.0"`
    """
    from spacy_bioel import loading
    from spacy_bioel.scoring.scorers import STEPS

    if name and not name.isidentifier():
        raise BioelError(EvaluationErrors.B368.format(name=name))
    sizes = {} if train is None else {"train": size_of(train)}
    rows = read_scores(scores)
    if (model / "README.md").exists() and not replace:
        raise BioelError(EvaluationErrors.B367.format(path=model / "README.md"))
    if not (model / "meta.json").is_file():
        raise BioelError(EvaluationErrors.B365.format(path=model))
    fingerprint, scored = fingerprint_folder(model), rows[0].get("model_fingerprint")
    if fingerprint != scored:
        warning = EvaluationWarnings.W311.format(
            path=scores, found=scored or "none", expected=fingerprint
        )
        console.show_note(warning)
    nlp = loading.load_model(str(model))
    meta = json.loads((model / "meta.json").read_text(encoding="utf8"))
    if loading.finds_names(nlp):  # mentions found by KB name lookup do not have gold labels
        rows = [row for row in rows if row["protocol"] != "mention"]
    linker, made = loading.find_linker(nlp), []
    if STEPS in meta:
        seed = nlp.config.interpolate()["training"]["seed"]
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
        protocols = ", ".join(dict.fromkeys(row["protocol"] for row in rows)) or "mention"
        raise BioelError(EvaluationErrors.B366.format(path=scores, found=f"only {protocols}"))
    write_card(model, facts)
    console.show_note(", ".join(str(model / name) for name in CARD_FILES))


def read_scores(path: Path) -> list[dict[str, Any]]:
    """Read the output of `bioel evaluate --json`. RAISES BioelError: [B366] if it has no scores."""
    try:
        rows = json.loads(path.read_text(encoding="utf8"))
    except ValueError as error:
        raise BioelError(EvaluationErrors.B366.format(path=path, found=error)) from error
    is_list = isinstance(rows, list) and rows != []
    if not is_list or not all(isinstance(row, dict) and row.keys() >= _FIELDS for row in rows):
        raise BioelError(EvaluationErrors.B366.format(path=path, found=f"{rows!r:.60}"))
    return rows


def size_of(path: Path) -> tuple[int, int]:
    """Count the documents and gold mentions of a corpus."""
    from spacy_bioel.corpus import read_texts

    mentions = [len(text.mentions) for text in read_texts(path)]
    return len(mentions), sum(mentions)


def write_card(folder: Path, facts: Facts) -> None:
    """Write README.md, card.html and meta.json into a pipeline folder."""
    from markdown_it import MarkdownIt

    from spacy_bioel.export.pages import PAGES

    readme = PAGES.get_template("card.md").render(
        facts=facts,
        missing=max(int(row["details"].get("missing_from_kb", 0)) for row in facts.shown),
        versions={"spacy-bioel": __version__, "spacy": version_of("spacy")}
        | {"torch": version_of("torch").partition("+")[0]},
        count_of=console.count_of,
        describe=protocol_summary,
        NOT_STATED=NOT_STATED,
        PURPOSE=PURPOSE,
    )
    name, _, text = readme.removeprefix("# ").partition("\n")
    # Values may contain Markdown, but no HTML or images, which could load from another host.
    markdown = MarkdownIt("js-default").disable("image")
    page = PAGES.get_template("card.html").render(
        title=name, card=markdown.render(text), scores=facts.shown
    )
    meta = {
        **facts.meta,
        "name": facts.name,
        "version": facts.version,
        "description": facts.description,
        "author": facts.authors,
        "license": facts.licences,
        "sources": [
            {"name": name or NOT_STATED, "license": licence} for name, licence in facts.sources
        ],
        "performance": {  # fractions, because spaCy shows them as percentages
            f"{row['protocol']}_{row['metric']}": round(row["value"] / 100, 4)
            for row in facts.shown
        },
        "notes": "Scores are from `bioel evaluate`, by protocol and metric. README.md has the "
        "intervals and all other facts.",
    }
    content = json.dumps(meta, indent=1, ensure_ascii=False) + "\n"
    for file, written in zip(CARD_FILES, (readme, page, content), strict=True):
        with replacing_text(folder / file, follow=False) as out:
            out.write(written)

"""Write the model card of a tuned and measured pipeline: README.md and meta.json of its folder.

The scores in it are those of `bioel evaluate`, by protocol. Those of the training loop are not:
they were measured with other weights and thresholds, and losses are no scores.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import spacy
import srsly
import torch
import typer
from specs import is_mixture, load_spec, parts_of

import spacy_bioel
from spacy_bioel.corpus import read_texts
from spacy_bioel.scoring.protocols import describe
from spacy_bioel.storage.atomic import replacing_folder

NOT_STATED = "not stated"
# Rows of the table of scores: protocol, metric.
_SHOWN = [
    *(("mention", metric) for metric in ("precision", "recall", "f1")),
    *(("end_to_end", metric) for metric in ("precision", "recall", "f1")),
    *(("gold", metric) for metric in ("accuracy@1", "accuracy@1_nil_ignored", "recall@5")),
]
_DEMO = (
    "Demo, do not use for real work: it was trained on a few invented texts, to show that "
    "everything works. For real texts: `spacy_bioel.load()`, or a pipeline trained on your corpus."
)
_PURPOSE = "For research and for the curation of text; not for decisions about patients."


@dataclass(frozen=True)
class Facts:
    """All that a card says.

    name, version, authors (str): Of the package.
    corpora (Sequence[dict]): `about` in corpora.yml, of each part of a mixture.
    sizes (dict[str, tuple[int, int]]): Documents and gold mentions of each split.
    kb (dict): meta.json of the knowledge base.
    scores (Sequence[dict]): Rows of `bioel evaluate --json` on the development documents.
    tuning (dict): What `bioel tune --json` wrote.
    meta (dict): meta.json of the pipeline.
    command, config (str): How it was made.
    seed (int): Of the training, and of the intervals.
    """

    name: str
    version: str
    authors: str
    corpora: Sequence[dict[str, Any]]
    sizes: dict[str, tuple[int, int]]
    kb: dict[str, Any]
    scores: Sequence[dict[str, Any]]
    tuning: dict[str, Any]
    meta: dict[str, Any]
    command: str
    config: str
    seed: int

    @property
    def is_demo(self) -> bool:
        return any(about.get("demo") for about in self.corpora)

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The scores of all labels in the table."""
        found = {(r["protocol"], r["metric"]): r for r in self.scores if not r["label"]}
        return [found[key] for key in _SHOWN if key in found]


def main(
    corpus: str,
    config: Path,
    name: Annotated[str, typer.Option(help="Of the package, without the language.")],
    version: Annotated[str, typer.Option()],
    seed: Annotated[int, typer.Option()] = 0,
    author: Annotated[str, typer.Option(help="Default: the corpus's own, or none.")] = "",
) -> None:
    """Read models/CORPUS/tuned and its metrics; write models/CORPUS/final, with the card."""
    tuned, metrics = Path("models") / corpus / "tuned", Path("metrics") / corpus
    corpora = abouts(corpus)
    authors = author or next((about["authors"] for about in corpora if "authors" in about), "")
    facts = Facts(
        name=f"{srsly.read_json(tuned / 'meta.json')['lang']}_{name}",
        version=version,
        authors=authors,
        corpora=corpora,
        sizes=dict(split_sizes(Path("corpus") / corpus)),
        kb=srsly.read_json(Path("kb") / corpus / "meta.json"),
        scores=srsly.read_json(metrics / "dev.json"),
        tuning=srsly.read_json(metrics / "tuning.json"),
        meta=srsly.read_json(tuned / "meta.json"),
        command=command(corpus, config, seed),
        config=config.as_posix(),
        seed=seed,
    )
    with replacing_folder(Path("models") / corpus / "final") as folder:
        # Links take no room; the two files of the card are new ones.
        shutil.copytree(tuned, folder, copy_function=_link_or_copy, dirs_exist_ok=True)
        for file, text in (("README.md", card(facts)), ("meta.json", _json(meta(facts, name)))):
            (folder / file).unlink(missing_ok=True)
            (folder / file).write_text(text, encoding="utf8")


def abouts(corpus: str) -> list[dict[str, Any]]:
    """`about` of a corpus, or of each part of a mixture; at least a title."""
    parts = parts_of(corpus) if is_mixture(corpus) else [corpus]
    return [{"title": part} | load_spec(part).get("about", {}) for part in parts]


def split_sizes(folder: Path) -> Iterable[tuple[str, tuple[int, int]]]:
    """Documents and gold mentions of training and development documents."""
    for split, file in (("train", "train.spacy"), ("dev", "dev.jsonl")):
        n = [len(text.mentions) for text in read_texts(folder / file)]
        yield split, (len(n), sum(n))


def command(corpus: str, config: Path, seed: int) -> str:
    """The command that makes the pipeline again."""
    found = f"python -m spacy project run all --vars.corpus {corpus} --vars.config {config.stem}"
    found += f" --vars.seed {seed}"
    folder = config.parent.as_posix()
    return found if folder == "training/configs" else f"{found} --vars.configs {folder}"


def meta(facts: Facts, name: str) -> dict[str, Any]:
    """meta.json: scores by protocol and metric, as fractions, for spaCy shows them times 100."""
    sources = [
        {"name": about["title"], "license": about.get("licence", NOT_STATED)}
        for about in facts.corpora
    ]
    sources.append({"name": kb_name(facts.kb), "license": facts.kb.get("licence") or NOT_STATED})
    return facts.meta | {
        "name": name,
        "version": facts.version,
        "description": description(facts),
        "author": facts.authors,
        "license": licence(facts),
        "sources": sources,
        "performance": {
            f"{row['protocol']}_{row['metric']}": round(row["value"] / 100, 4)
            for row in facts.shown
        },
        "notes": "Scores: `bioel evaluate` on the development documents, by protocol and metric. "
        "README.md has their intervals, and all else.",
    }


def description(facts: Facts) -> str:
    labels = ", ".join(facts.meta["labels"].get("bioel_mentions", [])) or "mentions"
    what = f"Finds {labels} in English texts and links them to {kb_name(facts.kb)}."
    return f"{_DEMO} {what}" if facts.is_demo else f"{what} {_PURPOSE}"


def licence(facts: Facts) -> str:
    parts = [f"{about['title']}: {about.get('licence', NOT_STATED)}" for about in facts.corpora]
    named = facts.kb.get("licence") or NOT_STATED
    return "; ".join([*dict.fromkeys(parts), f"{kb_name(facts.kb)}: {named}"])


def kb_name(kb: dict[str, Any]) -> str:
    release = kb.get("release")
    return f"{kb.get('source') or 'a knowledge base'}{f' ({release})' if release else ''}"


def card(facts: Facts) -> str:
    """README.md of the pipeline."""
    demo = " (demo)" if facts.is_demo else ""
    parts = [
        f"# {facts.name}{demo}",
        description(facts),
        _table(["", ""], _summary(facts)),
        "## On the development documents",
        _about_scores(facts),
        _table(["protocol", "metric", "%", "95 % interval", "n"], _scores(facts)),
        _protocols(facts),
        "## Chosen on them",
        _table(["pipe", "settings", "measured by", "fitted", "cross-fitted"], _tuned(facts)),
        "Fitted: on the documents of the choice. Cross-fitted: each document measured with what "
        "was chosen on other documents, which is nearer to what unseen documents give.",
        "## Limits",
        "\n".join(f"- {limit}" for limit in _limits(facts)),
        "## How it was made",
        f"```bash\n{facts.command}\n```",
        f"Config: `{facts.config}` with the settings of the corpus, as `config.cfg` has them. "
        f"Seed: {facts.seed}. spacy-bioel {spacy_bioel.__version__}, spaCy {spacy.__version__}, "
        f"PyTorch {torch.__version__.partition('+')[0]}. The same seed gives the same pipeline on "
        "one machine.",
    ]
    return "\n\n".join(parts) + "\n"


def _summary(facts: Facts) -> list[list[str]]:
    sizes = "; ".join(f"{s} {d:,} documents, {m:,} mentions" for s, (d, m) in facts.sizes.items())
    counts = facts.kb.get("counts", {})
    kb = f"{kb_name(facts.kb)}, {counts.get('concepts', 0):,} concepts with "
    kb += f"{counts.get('names', 0):,} names; fingerprint `{facts.kb['fingerprint']}`"
    domains = dict.fromkeys(about.get("domain", NOT_STATED) for about in facts.corpora)
    return [
        ["version", facts.version],
        ["pipeline", ", ".join(f"`{name}`" for name in facts.meta["pipeline"])],
        ["labels", ", ".join(facts.meta["labels"].get("bioel_mentions", [])) or "none of its own"],
        ["linked to", kb],
        ["trained on", f"{' + '.join(about['title'] for about in facts.corpora)}: {sizes}"],
        ["domain", "; ".join(domains)],
        ["licences", licence(facts)],
        ["authors", facts.authors or NOT_STATED],
    ]


def _about_scores(facts: Facts) -> str:
    documents, mentions = facts.sizes["dev"]
    return (
        f"{documents:,} documents with {mentions:,} gold mentions. Weights and thresholds were "
        "chosen on these documents, so that the figures are a little optimistic. They replace "
        "those that `spacy train` printed, which were measured before that choice; its losses are "
        "no scores, and are not kept."
    )


def _scores(facts: Facts) -> list[list[str]]:
    return [
        [
            *(f"`{row['protocol']}`", f"`{row['metric']}`", f"{row['value']:.1f}"),
            *(f"{row['low']:.1f}-{row['high']:.1f}", f"{row['n']:,}"),
        ]
        for row in facts.shown
    ]


def _protocols(facts: Facts) -> str:
    names = dict.fromkeys(row["protocol"] for row in facts.shown)
    rules = "\n".join(f"- `{name}`: {describe(name)}." for name in names)
    seed = f"Intervals: bootstrap over documents, seed {facts.scores[0]['seed']}."
    return f"{rules}\n\n{seed} Command: `{facts.scores[0]['command']}`."


def _tuned(facts: Facts) -> list[list[str]]:
    return [
        [
            f"`{one['what']}`",
            ", ".join(f"`{name}` {_plain(value)}" for name, value in one["chosen"].items()),
            f"`{one['protocol']}` {one['metric']}",
            f"{one['fitted']:.1f}",
            "–" if one["cross_fitted"] is None else f"{one['cross_fitted']:.1f}",
        ]
        for one in facts.tuning["tuned"]
    ]


def _plain(value: float | bool | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _limits(facts: Facts) -> list[str]:
    details = next((row["details"] for row in facts.shown if row["protocol"] == "gold"), {})
    missing = details.get("missing_from_kb", 0)
    limits = [
        "Measured on texts like those that it was trained on only; on others it is worse.",
        "Links to the concepts of its knowledge base only: all else is NIL, or linked to a like "
        f"name. Of the gold mentions with an id, {missing:,.0f} have none that it knows.",
        "English only. It does not tell negated, hypothetical or family mentions apart.",
        _PURPOSE,
    ]
    return [_DEMO, *limits] if facts.is_demo else limits


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([c.replace("|", "\\|") for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _json(content: dict[str, Any]) -> str:
    return srsly.json_dumps(content, indent=2) + "\n"


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


if __name__ == "__main__":
    typer.run(main)

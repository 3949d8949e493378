"""Text of a model card: README.md and meta.json of a tuned and measured pipeline.

The scores in it are those of `bioel evaluate`, by protocol. Those of the training loop are not:
they were measured with other weights and thresholds, and losses are no scores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from spacy_bioel import __version__
from spacy_bioel.cli.console import count_of
from spacy_bioel.scoring.protocols import describe
from spacy_bioel.storage.atomic import replacing_text

NOT_STATED = "not stated"
PURPOSE = "For research and for the curation of text; not for decisions about patients."
# Rows of the table of scores: protocol, metric.
_SHOWN = [
    *(
        (protocol, metric)
        for protocol in ("mention", "mention_unlabelled", "end_to_end")
        for metric in ("precision", "recall", "f1")
    ),
    *(("gold", metric) for metric in ("accuracy@1", "accuracy@1_nil_ignored", "recall@5")),
]


@dataclass(frozen=True)
class CorpusFacts:
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
    shown: list[Mapping[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        found = {(r["protocol"], r["metric"]): r for r in self.scores if not r["label"]}
        object.__setattr__(self, "shown", [found[key] for key in _SHOWN if key in found])

    @property
    def labels(self) -> str:
        found = (label for labels in self.meta["labels"].values() for label in labels)
        return ", ".join(dict.fromkeys(found))


def write_card(folder: Path, facts: Facts) -> None:
    """Write README.md and meta.json of a pipeline."""
    for file, text in (("README.md", card(facts)), ("meta.json", _json(card_meta(facts)))):
        with replacing_text(folder / file, follow=False) as out:
            out.write(text)


def card_meta(facts: Facts) -> dict[str, Any]:
    """meta.json: scores by protocol and metric, as fractions, for spaCy shows them times 100."""
    sources = [
        {"name": corpus.title or NOT_STATED, "license": corpus.licence or NOT_STATED}
        for corpus in facts.corpora
    ]
    if facts.kb:
        licence = facts.kb.get("licence") or NOT_STATED
        sources.append({"name": _kb_name(facts.kb), "license": licence})
    performance = {
        f"{row['protocol']}_{row['metric']}": round(row["value"] / 100, 4) for row in facts.shown
    }
    return {
        **facts.meta,
        "name": facts.name,
        "version": facts.version,
        "description": _description(facts),
        "author": facts.authors,
        "license": _licences(facts),
        "sources": sources,
        "performance": performance,
        "notes": "Scores: `bioel evaluate`, by protocol and metric. README.md has their "
        "intervals, and all else.",
    }


def card(facts: Facts) -> str:
    """README.md of the pipeline."""
    demo = " (demo)" if facts.demo else ""
    parts = [
        f"# {facts.meta['lang']}_{facts.name}{demo}",
        _description(facts),
        _table(["", ""], _summary(facts)),
        "## Scores",
        _about_scores(facts),
        _table(["protocol", "metric", "%", "95 % interval", "n", *_beside(facts)], _scores(facts)),
        _protocols(facts),
        *_tuning(facts),
        "## Limits",
        "\n".join(f"- {limit}" for limit in _limits(facts)),
        "## How it was made",
        *facts.made,
        f"spacy-bioel {__version__}, spaCy {version('spacy')}, "
        f"PyTorch {version('torch').partition('+')[0]}. `config.cfg` has all settings.",
    ]
    return "\n\n".join(parts) + "\n"


def _description(facts: Facts) -> str:
    linked = f" and links them to {_kb_name(facts.kb)}" if facts.kb else ""
    what = f"Finds mentions ({facts.labels})" if facts.labels else "Finds mentions"
    return f"{facts.demo} {what}{linked}." if facts.demo else f"{what}{linked}. {PURPOSE}"


def _licences(facts: Facts) -> str:
    parts = [f"{c.title or 'corpus'}: {c.licence or NOT_STATED}" for c in facts.corpora]
    if facts.kb:
        parts.append(f"{_kb_name(facts.kb)}: {facts.kb.get('licence') or NOT_STATED}")
    return "; ".join(dict.fromkeys(parts))


def _kb_name(kb: Mapping[str, Any]) -> str:
    release = kb.get("release")
    return f"{kb.get('source') or 'a knowledge base'}{f' ({release})' if release else ''}"


def _summary(facts: Facts) -> list[list[str]]:
    titles = " + ".join(corpus.title or NOT_STATED for corpus in facts.corpora)
    sizes = "; ".join(
        f"{split} {count_of(documents, 'document')}, {count_of(mentions, 'mention')}"
        for split, (documents, mentions) in facts.sizes.items()
    )
    domains = dict.fromkeys(corpus.domain or NOT_STATED for corpus in facts.corpora)
    kb = "nothing: it has no linker"
    if facts.kb:
        counts = facts.kb["counts"]
        kb = (
            f"{_kb_name(facts.kb)}, {count_of(counts['concepts'], 'concept')} with "
            f"{count_of(counts['names'], 'name')}; fingerprint `{facts.kb['fingerprint']}`"
        )
    return [
        ["version", facts.version],
        ["pipeline", ", ".join(f"`{name}`" for name in facts.meta["pipeline"])],
        ["labels", facts.labels or "none of its own"],
        ["linked to", kb],
        ["trained on", f"{titles}: {sizes}" if sizes else titles],
        ["domain", "; ".join(domains)],
        ["licences", _licences(facts)],
        ["authors", facts.authors or NOT_STATED],
    ]


def _about_scores(facts: Facts) -> str:
    text = f"On `{facts.scores[0]['gold']}`."
    if "tuning" in facts.meta.get("bioel", {}):
        text += (
            " Where weights and thresholds were chosen on the same documents, the figures are a "
            "little optimistic: compare the cross-fitted ones below."
        )
    return text + (
        " Scores that `spacy train` printed are not among them, for they were measured before "
        "weights and thresholds were chosen; nor are losses, which are no scores."
    )


def _beside(facts: Facts) -> list[str]:
    """A further column: what the names of the knowledge base find alone, without training."""
    return ["names alone"] if any("names_alone" in row for row in facts.shown) else []


def _scores(facts: Facts) -> list[list[str]]:
    return [
        [
            *(f"`{row['protocol']}`", f"`{row['metric']}`", f"{row['value']:.1f}"),
            *(f"{row['low']:.1f}-{row['high']:.1f}", f"{row['n']:,}"),
            *(f"{row['names_alone']:.1f}" if "names_alone" in row else "" for _ in _beside(facts)),
        ]
        for row in facts.shown
    ]


def _protocols(facts: Facts) -> str:
    names = dict.fromkeys(row["protocol"] for row in facts.shown)
    rules = "\n".join(f"- `{name}`: {describe(name)}." for name in names)
    seed = f"Intervals: bootstrap over documents, seed {facts.scores[0]['seed']}."
    return f"{rules}\n\n{seed} Command: `{facts.scores[0]['command']}`."


def _tuning(facts: Facts) -> list[str]:
    """The choices of `bioel tune`."""
    report = facts.meta.get("bioel", {}).get("tuning")
    if not report:
        return []
    rows = [
        [
            f"`{one['what']}`",
            ", ".join(f"`{name}` {_plain(value)}" for name, value in one["chosen"].items()),
            f"`{one['protocol']}` {one['metric']}",
            f"{one['fitted']:.1f}",
            "–" if one["cross_fitted"] is None else f"{one['cross_fitted']:.1f}",
        ]
        for one in report["tuned"]
    ]
    documents, mentions = report["documents"], report["mentions"]
    return [
        "## Weights and thresholds",
        f"Chosen by `bioel tune` on {count_of(documents, 'document')} with "
        f"{count_of(mentions, 'mention')}.",
        _table(["pipe", "settings", "measured by", "fitted", "cross-fitted"], rows),
        "Fitted: on the documents of the choice. Cross-fitted: each document measured with what "
        "was chosen on other documents, which is nearer to what unseen documents give.",
    ]


def _plain(value: float | bool | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _limits(facts: Facts) -> list[str]:
    limits = [facts.demo] if facts.demo else []
    limits += facts.limits
    for row in facts.shown:
        if row["metric"] == "f1" and row.get("names_alone", 0) > row["value"]:
            limits.append(
                f"It is worse than the names of its knowledge base alone, without training: "
                f"`{row['protocol']}` F1 {row['value']:.1f}, the names {row['names_alone']:.1f}."
            )
    limits.append("On texts of another kind than those that it was trained on it is worse.")
    if facts.kb:
        missing = max((int(r["details"].get("missing_from_kb", 0)) for r in facts.shown), default=0)
        limits.append(
            "It links to the concepts of its knowledge base only: all else is NIL, or linked to a "
            f"like name. Gold mentions above whose ids it does not know: {missing:,}."
        )
    limits.append(
        "It links negated, hypothetical and family mentions too; bioel_context marks them."
    )
    return [*limits, PURPOSE]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([c.replace("|", "\\|") for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

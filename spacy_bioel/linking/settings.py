"""The settings of `bioel_linker`, checked and frozen; `kb` is a folder, several, or one a label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.bundled import _check_kb, only_labels
from spacy_bioel.pipe import check_kinds, check_number, is_number

SWITCHES = ("exact", "memory", "sparse", "dense", "prior", "context", "generated", "organism")
BY_KB = "kb"  # found with the knowledge base
SPANS_AND_KB = "spans_and_kb"
MENTIONS = ("auto", "spans", SPANS_AND_KB, "ents", BY_KB, "read")
# How names are found with a knowledge base; see `mentions.finder.NameFinder.find`.
FINDING: dict[str, bool | float | list[str]] = {
    "variants": True,
    "typos": True,
    "threshold": 0.5,
    "nested": False,
    "notes": False,
    "measurements": False,
    "never": [],
}
# Which entities get the ids of links: those that were linked, none, or all links become entities.
SET_ENTS = (True, False, "links")
LOSSES = ("multi_similarity", "info_nce", "marginal")
# Above it a search is slower than all that is gained, and its table fills the memory.
_MOST = 10_000
LINKER, DETECTOR = "bioel_linker", "bioel_mentions"  # names of the factories
_KINDS = {
    **dict.fromkeys(("abbreviations", "shorthand", "composites", "include_kb"), bool),
    **dict.fromkeys(("spans_key", "gold_key"), str),
    **dict.fromkeys(("evidence", "label_types", "training", "finding"), dict),
}
_INNER_KINDS: dict[str, Any] = {"evidence": bool, "label_types": (list, tuple)}

FindingSettings = tuple[tuple[str, bool | float | tuple[str, ...]], ...]


@dataclass(frozen=True)
class LinkerSettings:
    """Settings of candidate generation and of the decision, see docs/reference/settings.yml.

    evidence (frozenset[str]): Names that are switched on, of `SWITCHES`.
    label_types (tuple): Pairs of a label and its semantic types, sorted by label.
    only_labels (tuple[str, ...]): Labels of the only knowledge base; see `only_labels`.
    """

    evidence: frozenset[str]
    label_types: tuple[tuple[str, tuple[str, ...]], ...]
    search_names: int
    max_candidates: int
    nil_threshold: float
    coherence: float
    abbreviations: bool
    shorthand: bool
    composites: bool
    mentions: str
    finding: FindingSettings
    spans_key: str
    gold_key: str
    only_labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> LinkerSettings:
        """The settings of a pipe as they are now.

        RAISES BioelError: [B270] on a value that is not a number, or out of its range, [B054],
            [B061] and [B065] on unknown mentions, unknown evidence and a negative coherence,
            [B273] on an unknown setting, [B311] on an unknown way of finding, [B321] on a value
            that is not a knowledge base, [B345] on another `set_ents`, [B465] on a value of
            another type.
        """
        known = {*cls.__dataclass_fields__, "kb", "include_kb", "set_ents", "training"}
        known.remove("only_labels")  # it follows from "kb"
        if unknown := set(cfg) - known:
            raise BioelError(Errors.B273.format(unknown=sorted(unknown), known=sorted(known)))
        _check_kb(cfg["kb"])
        check_kinds(cfg, _KINDS, pipe=LINKER)
        for name, kind in _INNER_KINDS.items():
            check_kinds(cfg[name], dict.fromkeys(cfg[name], kind), pipe=f"{LINKER}.{name}")
        if cfg.get("set_ents", True) not in SET_ENTS:
            raise BioelError(Errors.B345.format(found=cfg["set_ents"]))
        if cfg["mentions"] not in MENTIONS:
            raise BioelError(Errors.B054.format(mentions=cfg["mentions"]))
        if unknown := set(cfg["evidence"]) - set(SWITCHES):
            raise BioelError(Errors.B061.format(unknown=sorted(unknown), known=list(SWITCHES)))
        check_number(cfg, "search_names", 1, _MOST, kind=int, pipe=LINKER)
        check_number(cfg, "max_candidates", 1, _MOST, kind=int, pipe=LINKER)
        check_number(cfg, "nil_threshold", 0, 1, kind=float, pipe=LINKER)
        coherence = cfg["coherence"]
        if not (is_number(coherence, float) and 0 <= coherence < float("inf")):
            raise BioelError(Errors.B065.format(coherence=coherence))
        types = sorted(cfg["label_types"].items())
        # Pipelines were saved without "shorthand" and "finding".
        values = {"shorthand": True} | {name: cfg[name] for name in known if name in cfg}
        values |= {
            "evidence": frozenset(name for name, used in cfg["evidence"].items() if used),
            "label_types": tuple((label, tuple(of_label)) for label, of_label in types),
            "finding": _finding(FINDING | dict(cfg.get("finding", {}))),
            "only_labels": only_labels(cfg["kb"]),
        }
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})


def _finding(finding: dict[str, Any]) -> FindingSettings:
    never = finding["never"]
    # Pipelines were saved with "learned".
    switches = {n: x for n, x in finding.items() if n not in ("threshold", "never", "learned")}
    wrong = {n: x for n, x in switches.items() if n not in FINDING or not isinstance(x, bool)}
    if not (isinstance(never, list) and all(isinstance(name, str) for name in never)):
        wrong["never"] = never
    if wrong:
        raise BioelError(Errors.B311.format(found=wrong, expected=FINDING))
    check_number(finding, "threshold", 0, 1, kind=float, pipe=f"{LINKER}.finding")
    of = switches | {"threshold": finding["threshold"], "never": tuple(never)}
    return tuple(of.items())


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of training, see docs/reference/settings.yml."""

    synonyms: int
    negatives: int
    candidates: int
    mentions: int
    refresh_every: int
    pool_names: int
    loss: str
    seed: int

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> TrainingSettings:
        """RAISES BioelError: [B048] on an unknown loss, [B270] on a number out of its range, [B273]
        on an unknown setting."""
        training, known = cfg["training"], list(cls.__dataclass_fields__)
        if unknown := sorted(f"training.{name}" for name in set(training) - set(known)):
            raise BioelError(Errors.B273.format(unknown=unknown, known=known))
        if training["loss"] not in LOSSES:
            raise BioelError(Errors.B048.format(loss=training["loss"]))
        for name in ("refresh_every", "pool_names", "candidates", "mentions"):
            check_number(training, name, 1, None, kind=int, pipe=LINKER)
        for name in ("synonyms", "negatives", "seed"):
            check_number(training, name, 0, None, kind=int, pipe=LINKER)
        return cls(**training)

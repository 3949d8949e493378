"""The settings of `bioel_linker`, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.linker.kbs import check_kb, only_labels

SWITCHES = ("exact", "memory", "sparse", "dense", "prior", "context", "generated", "organism")
BY_KB = ("kb", "kb_exact")  # found with the knowledge base
MENTIONS = ("auto", "spans", "ents", *BY_KB, "read")
# How names are found with a knowledge base; see `mentions.finder.NameFinder.find`.
FINDING: dict[str, bool | float] = {
    "variants": True,
    "typos": True,
    "learned": True,
    "threshold": 0.5,
    "nested": False,
}
# Which entities get the ids of links: those that were linked, none, or all links become entities.
SET_ENTS = (True, False, "links")
LOSSES = ("multi_similarity", "info_nce", "marginal")
# Above it a search is slower than all that is gained, and its table fills the memory.
_MOST = 10_000
PIPE = "bioel_linker"
_KINDS = {
    **dict.fromkeys(("abbreviations", "shorthand", "composites", "include_kb"), bool),
    **dict.fromkeys(("spans_key", "gold_key"), str),
    **dict.fromkeys(("evidence", "label_types", "training", "finding"), dict),
}
_INNER_KINDS: dict[str, Any] = {"evidence": bool, "label_types": (list, tuple)}


@dataclass(frozen=True)
class LinkerSettings:
    """Settings of candidate generation and of the decision, see docs/reference/settings.yml.

    evidence (frozenset[str]): Names that are switched on, of `SWITCHES`.
    label_types (tuple): Pairs of a label and its semantic types, sorted by label.
    only_labels (tuple[str, ...]): Labels of the only knowledge base; see `kbs.only_labels`.
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
    finding: tuple[tuple[str, bool | float], ...]
    spans_key: str
    gold_key: str
    only_labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> LinkerSettings:
        """The settings of a pipe as they are now.

        RAISES BioelError: [B270] on a value that is not a number, or out of its range, [B054],
            [B061] and [B065] on unknown mentions, unknown evidence and a negative coherence,
            [B273] on an unknown setting, [B321] on a value that is not a knowledge base, [B345]
            on another `set_ents`, [B465] on a value of another type.
        """
        if unknown := set(cfg) - _KNOWN:
            raise BioelError(Errors.B273.format(unknown=sorted(unknown), known=sorted(_KNOWN)))
        check_kb(cfg["kb"])
        check_kinds(cfg, _KINDS, pipe=PIPE)
        for name, kind in _INNER_KINDS.items():
            check_kinds(cfg[name], dict.fromkeys(cfg[name], kind), pipe=f"{PIPE}.{name}")
        if cfg.get("set_ents", True) not in SET_ENTS:
            raise BioelError(Errors.B345.format(found=cfg["set_ents"]))
        if cfg["mentions"] not in MENTIONS:
            raise BioelError(Errors.B054.format(mentions=cfg["mentions"]))
        if unknown := set(cfg["evidence"]) - set(SWITCHES):
            raise BioelError(Errors.B061.format(unknown=sorted(unknown), known=list(SWITCHES)))
        check_number(cfg, "search_names", 1, _MOST, kind=int, pipe=PIPE)
        check_number(cfg, "max_candidates", 1, _MOST, kind=int, pipe=PIPE)
        check_number(cfg, "nil_threshold", 0, 1, kind=float, pipe=PIPE)
        coherence = cfg["coherence"]
        if not (is_number(coherence, float) and 0 <= coherence < float("inf")):
            raise BioelError(Errors.B065.format(coherence=coherence))
        return cls(
            evidence=frozenset(name for name, used in cfg["evidence"].items() if used),
            label_types=tuple(
                (label, tuple(types)) for label, types in sorted(cfg["label_types"].items())
            ),
            search_names=cfg["search_names"],
            max_candidates=cfg["max_candidates"],
            nil_threshold=cfg["nil_threshold"],
            coherence=coherence,
            abbreviations=cfg["abbreviations"],
            shorthand=cfg.get("shorthand", True),  # pipelines were saved without
            composites=cfg["composites"],
            mentions=cfg["mentions"],
            finding=_finding(cfg),
            spans_key=cfg["spans_key"],
            gold_key=cfg["gold_key"],
            only_labels=only_labels(cfg["kb"]),
        )

    @property
    def by_kb(self) -> bool:
        """Whether mentions are found with the knowledge base, so that they have no labels."""
        return self.mentions in BY_KB

    def types_of(self, label: str) -> tuple[str, ...] | None:
        """Semantic types that a mention of this label may link to; None: all."""
        if self.only_labels and label and label not in self.only_labels:
            return ()
        return dict(self.label_types).get(label)


def _finding(cfg: Mapping[str, Any]) -> tuple[tuple[str, bool | float], ...]:
    """Switches and threshold. RAISES BioelError: [B311] on others, [B270] on a bad threshold."""
    finding = FINDING | dict(cfg.get("finding", {}))  # pipelines were saved without
    wrong = {
        name: value
        for name, value in finding.items()
        if name not in FINDING or (name != "threshold" and not isinstance(value, bool))
    }
    if wrong:
        raise BioelError(Errors.B311.format(found=wrong, expected=FINDING))
    check_number(finding, "threshold", 0, 1, kind=float, pipe=f"{PIPE}.finding")
    return tuple(finding.items())


# Beside those that candidates and links depend on.
_KNOWN = {*LinkerSettings.__dataclass_fields__, "kb", "include_kb", "set_ents", "training"}
_KNOWN.remove("only_labels")  # it follows from "kb"


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
            check_number(training, name, 1, None, kind=int, pipe=PIPE)
        for name in ("synonyms", "negatives", "seed"):
            check_number(training, name, 0, None, kind=int, pipe=PIPE)
        return cls(**training)


def check_number(
    cfg: Mapping[str, Any],
    name: str,
    least: float,
    most: float | None,
    *,
    kind: type[int] | type[float],
    pipe: str,
) -> None:
    """Refuse a setting that is no number of this kind, or out of its range.

    most (float | None): None: there is no limit.
    RAISES BioelError: [B270].
    """
    value = cfg[name]
    if not (is_number(value, kind) and value >= least and (most is None or value <= most)):
        expected = f"at least {least}" if most is None else f"from {least} to {most}"
        raise BioelError(Errors.B270.format(name=name, found=value, expected=expected, pipe=pipe))


def check_kinds(cfg: Mapping[str, Any], kinds: Mapping[str, Any], *, pipe: str) -> None:
    """Refuse settings of another type than a config may give them.

    kinds (Mapping): Name -> what `isinstance` takes.
    RAISES BioelError: [B465].
    """
    words = {bool: "true or false", str: "a string", dict: "a table"}
    for name, kind in kinds.items():
        if name in cfg and not isinstance(cfg[name], kind):
            expected = words.get(kind, "a list")
            raise BioelError(
                Errors.B465.format(name=name, found=cfg[name], expected=expected, pipe=pipe)
            )


def is_number(value: object, kind: type[int] | type[float]) -> bool:
    """Whether this is an integer, or any number for `float`; True and False are not numbers."""
    kinds = (int,) if kind is int else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool)

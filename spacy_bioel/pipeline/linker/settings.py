"""The settings of `bioel_linker`, checked and frozen; `kb` is a folder, several, or one a label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spacy.util import load_config

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.joined import JoinedKnowledgeBase
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.storage.atomic import replacing_file

SWITCHES = ("exact", "memory", "sparse", "dense", "prior", "context", "generated", "organism")
BY_KB = ("kb", "kb_exact")  # found with the knowledge base
SPANS_AND_KB = "spans_and_kb"
MENTIONS = ("auto", "spans", SPANS_AND_KB, "ents", *BY_KB, "read")
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
KbSetting = str | list[str] | dict[str, str]
INCLUDED = "kb"  # folder in a saved pipe


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


def _check_kb(value: object) -> None:
    if isinstance(value, str):
        return
    strings = [*value, *value.values()] if isinstance(value, dict) else value
    if not (isinstance(strings, list) and strings and all(isinstance(s, str) for s in strings)):
        raise BioelError(Errors.B321.format(found=value))


def map_folders(value: KbSetting, change: Callable[[str], str]) -> KbSetting:
    """The setting with other folders."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {label: change(folder) for label, folder in value.items()}
    return [change(folder) for folder in value]


def folders_of(value: KbSetting) -> list[str]:
    """Different folders, in the order of the parts of a joined knowledge base."""
    if isinstance(value, str):
        return [value]
    return list(dict.fromkeys(value.values() if isinstance(value, dict) else value))


def open_kbs(value: KbSetting, open: Callable[[str], KnowledgeBase]) -> KnowledgeBase:
    """Open the knowledge bases of the setting, several as a joined one.

    open (Callable): From a folder to its knowledge base.
    RAISES BioelError: [B321] on another value; those of `open`.
    """
    _check_kb(value)
    folders = folders_of(value)
    if len(folders) == 1:
        return open(folders[0])
    labels = value if isinstance(value, dict) else {}
    numbers = {label: folders.index(folder) for label, folder in labels.items()}
    return JoinedKnowledgeBase([open(folder) for folder in folders], labels=numbers)


def only_labels(value: KbSetting) -> tuple[str, ...]:
    """Labels of the mentions that may be linked, where all of them have the same folder; ():
    mentions of all labels may be.
    """
    return tuple(value) if isinstance(value, dict) and len(folders_of(value)) == 1 else ()


def setting_of(kb: KnowledgeBase, places: Sequence[str], *, before: KbSetting) -> KbSetting:
    """The setting that opens a knowledge base.

    places (Sequence[str]): Folder of each of its parts.
    before (KbSetting): The setting that it was opened by, for the labels of a single folder.
    """
    if isinstance(kb, JoinedKnowledgeBase):
        return {label: places[n] for label, n in kb.labels.items()} or list(places)
    return dict.fromkeys(only_labels(before), places[0]) or places[0]


def find_included(folder: Path, place: str) -> str:
    """Folder of a knowledge base that came with a pipe. RAISES BioelError: [B056] without it."""
    if not (folder / place).is_dir():
        raise BioelError(Errors.B056.format(path=folder / place))
    return str(folder / place)


def forget_folder(pipe: Path, kb: KbSetting) -> None:
    """Correct the config of a pipeline that includes its knowledge base, which spaCy has written
    beside the pipe, with the folder that the knowledge base was in on this machine.
    """
    path = pipe.parent / "config.cfg"
    if not path.is_file():
        return  # the pipe is saved alone
    config = load_config(path)
    if "kb" in (settings := config.get("components", {}).get(pipe.name, {})):
        settings["kb"] = kb
        with replacing_file(path) as temporary:
            config.to_disk(temporary, interpolate=False)


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
    words: dict[Any, str] = {bool: "true or false", str: "a string", dict: "a table"}
    words[bool, type(None)] = "true, false or null"
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

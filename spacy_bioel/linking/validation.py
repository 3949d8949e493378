"""Check a linker's settings against its model, the other pipes, and the knowledge base.

Also count how many of a corpus's gold ids a knowledge base has, and suggest a missing prefix.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.training import Example
from thinc.api import Model

from spacy_bioel.doc import gold_spans
from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.kb.bundled import KbSetting, folders_of
from spacy_bioel.kb.folder import has_columns
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.rescoring import rescorer_of
from spacy_bioel.pipe import StoredPipe
from spacy_bioel.settings import (
    BY_DICTIONARY,
    DETECTOR,
    LINKER,
    NAMES,
    SPANS_AND_DICTIONARY,
    EvidenceSettings,
    LinkerSettings,
)
from spacy_bioel.types import DBSNP

_DOC_ENTS, _DOC_SPANS = "doc.ents", "doc.spans"
_MAX_SHOWN = 5  # max. types or ids listed in a message
_MAX_IDS_TRIED = 1000  # max. gold ids to try a prefix on; max. concepts to take prefixes from


def check_order(nlp: Language, linker: StoredPipe[LinkerSettings]) -> None:
    """Check that a linker is compatible with the other pipes.

    Warns [W271] if all pipes that find mentions come after the linker, [W320] if earlier pipes
    write mentions where the linker does not look, [W321] if no pipe finds mentions with a label in
    the settings.

    linker (StoredPipe): The linker; if it is not in the pipeline, nothing is checked.
    RAISES BioelError: [B271] if another linker writes to the same span group.
    """
    names = [name for name, pipe in nlp.pipeline if pipe is linker]
    if not names:
        return
    key = linker.cfg["spans_key"]
    for name, pipe in nlp.pipeline:
        is_linker = nlp.get_pipe_meta(name).factory == LINKER
        if is_linker and pipe is not linker and pipe.cfg["spans_key"] == key:  # type: ignore[attr-defined]
            raise BioelError(Errors.B271.format(first=names[0], second=name, key=key))
    if linker.cfg["mentions"] in (BY_DICTIONARY, "model"):
        return
    index = nlp.pipe_names.index(names[0])
    before, after = dict(nlp.pipeline[:index]), dict(nlp.pipeline[index + 1 :])
    finders, late_finders = _finders(nlp, before), _finders(nlp, after)
    if finders:
        # Pipes with undeclared outputs may write mentions anywhere.
        if all(nlp.get_pipe_meta(name).assigns for name in before):
            _check_locations(names[0], linker.cfg, finders)
            rule_labels = linker.entities.labels  # type: ignore[attr-defined]
            _check_labels(linker.cfg, before, finders, rule_labels)
    elif late_finders:
        finder = next(iter(late_finders))
        warnings.warn(Warnings.W271.format(linker=names[0], finder=finder), stacklevel=2)


def _finders(nlp: Language, pipes: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the pipes that find mentions, with the locations they write to.

    A location is "doc.ents", a span group, or "doc.spans" if the group is unknown.
    """
    finders = {}
    for name, pipe in pipes.items():
        meta = nlp.get_pipe_meta(name)
        locations = {_DOC_ENTS, _DOC_SPANS} & set(meta.assigns)
        if not locations or meta.factory == LINKER:
            continue
        if meta.factory in (DETECTOR, NAMES):
            locations = {_group(pipe.cfg["spans_key"])}
            if pipe.cfg.get("set_ents"):
                locations.add(_DOC_ENTS)
        elif _DOC_SPANS in locations and isinstance(key := getattr(pipe, "key", None), str):
            locations = locations - {_DOC_SPANS} | {_group(key)}
        finders[name] = locations
    return finders


def _group(key: str) -> str:
    return f"{_DOC_SPANS}[{key!r}]"


def _check_locations(name: str, cfg: Mapping[str, Any], finders: Mapping[str, set[str]]) -> None:
    """Warn [W320] if the earlier pipes write mentions where the linker does not look."""
    spans = {_DOC_SPANS, _group(cfg["spans_key"])}
    locations = {"ents": {_DOC_ENTS}, "spans": spans, SPANS_AND_DICTIONARY: spans}
    wanted = locations.get(cfg["mentions"], {_DOC_ENTS, *spans})
    written = set().union(*finders.values())
    if wanted.isdisjoint(written):
        fields = {"linker": name, "mentions": cfg["mentions"], "finders": ", ".join(finders)}
        fields["wanted"] = " or ".join(sorted(wanted - {_DOC_SPANS}))
        fields["written"] = ", ".join(sorted(written))
        warnings.warn(Warnings.W320.format(**fields), stacklevel=3)


def _check_labels(
    cfg: Mapping[str, Any],
    pipes: Mapping[str, Any],
    finders: Mapping[str, object],
    rule_labels: set[str],
) -> None:
    """Warn [W321] about labels in the settings that no pipe or rule finds.

    There is no warning if a pipe does not declare its labels, or if the `kb` setting covers all
    labels that pipes find. With "spans+dictionary", the linker itself finds the labels in `kb`.
    """
    labels_of_finders = [set(getattr(pipes[name], "labels", ())) for name in finders]
    if not all(labels_of_finders):
        return
    known = set().union(*labels_of_finders)
    settings = {key: set(cfg[key]) for key in ("label_types", "kb") if isinstance(cfg[key], dict)}
    if known <= settings.get("kb", set()):
        return
    if cfg["mentions"] == SPANS_AND_DICTIONARY:
        rule_labels = rule_labels | settings.pop("kb", set())
    for setting, labels in settings.items():
        if unknown := sorted(labels - known - rule_labels):
            fields = {"finders": ", ".join(finders), "known": sorted(known)}
            message = Warnings.W321.format(setting=setting, unknown=unknown, **fields)
            warnings.warn(message, stacklevel=3)


def check_types(kb: KnowledgeBase, label_types: Mapping[str, Iterable[str]]) -> None:
    """Warn [W272] about semantic types in the settings that the knowledge base lacks."""
    known = set(kb.type_names)
    if not known:  # if the knowledge base has no types, the setting has no effect
        return
    for label, types in label_types.items():
        if unknown := sorted(set(types) - known):
            shown = sorted(known)[:_MAX_SHOWN]
            message = Warnings.W272.format(label=label, unknown=unknown, path=kb.where, known=shown)
            warnings.warn(message, stacklevel=2)


def check_folders(value: KbSetting) -> None:
    """Check that the folders in the `kb` setting exist. Raises the errors of `KnowledgeBase.open`.

    Folders in a saved pipe (kb, kb.0, kb.1, ...) are checked when the pipe is loaded.
    """
    for folder in folders_of(value):
        if not (re.fullmatch(r"|starter:.*|kb(\.\d+)?", folder) or has_columns(Path(folder))):
            KnowledgeBase.open(folder)


def check_saved_kb(kb: KnowledgeBase | None, linker: str, *, includes_kb: bool) -> None:
    """Refuse to save a pipe without a knowledge base that exists only in memory.

    RAISES BioelError: [B467] if saving would lose a knowledge base.
    """
    if kb is not None and not includes_kb and any(part.path is None for part in parts_of(kb)):
        raise BioelError(Errors.B467.format(name=linker))


def check_settings(cfg: Mapping[str, Any], model: Model[Any, Any]) -> LinkerSettings:
    """Validate and return a linker's settings.

    RAISES BioelError: [B270] if a setting is wrong, [B301] if the model is set to find mentions but
        cannot, [B066] if no evidence proposes candidates.
    """
    settings = LinkerSettings.of(cfg)
    rescorer = rescorer_of(model)
    if settings.mentions == "model" and not (rescorer and rescorer.finds_mentions):
        raise BioelError(Errors.B301.format(model=model.name))
    without_candidates = {"contextual", "generated"}
    if rescorer and rescorer.proposes:
        without_candidates.discard(rescorer.evidence)
    if not settings.evidence.names - without_candidates:
        raise BioelError(Errors.B066.format(known=list(EvidenceSettings.model_fields)))
    return settings


@dataclass(frozen=True, slots=True)
class KnownIds:
    """How many of a corpus's gold ids a knowledge base has, and how many it lacks.

    n, known (int): Number of gold ids, and number of known gold ids; repeated ids count each time.
    missing (tuple[str, ...]): Distinct ids that the knowledge base lacks, the most frequent first.
    """

    n: int
    known: int
    missing: tuple[str, ...]

    @classmethod
    def of(cls, kb: KnowledgeBase, counts: Mapping[str, int]) -> KnownIds:
        """Count gold ids. Ids that rules read from the text, such as rs numbers, count as known.

        counts (Mapping[str, int]): How often each id occurs in a corpus.
        """
        ids = sorted(counts, key=lambda id: (-counts[id], id))
        absent = [id for id, row in zip(ids, kb.find_all(ids).tolist(), strict=True) if row < 0]
        missing = tuple(id for id in absent if not id.startswith(DBSNP))
        n, n_missing = sum(counts.values()), sum(counts[id] for id in missing)
        return cls(n, n - n_missing, missing)

    @property
    def are_few(self) -> bool:
        """Whether the knowledge base has fewer than half of the gold ids."""
        return 2 * self.known < self.n

    def message(self, template: str, kb: KnowledgeBase, path: object) -> str:
        """Format error B077 or warning W340, including a hint on what to change."""
        first = ", ".join(f"{id:.40}" for id in self.missing[:_MAX_SHOWN])
        hint = "Correct the ids (--prefix adds a prefix), or choose another knowledge base (--kb)."
        if prefix := _likely_prefix(kb, self.missing):
            hint = f"They lack a prefix: try --prefix {prefix} (before training: in bioel convert)."
        about = {"known": self.known, "n": self.n, "absent": self.n - self.known, "first": first}
        return template.format(**about, path=path, hint=hint, example=kb.ids[0])


def warn_of_gold_ids(kb: KnowledgeBase, examples: Iterable[Example], *, key: str) -> None:
    """Warn [W340] if a knowledge base has fewer than half of the examples' gold ids."""
    ids = (id for x in examples for span in gold_spans(x, key=key) for id in span.ids)
    found = KnownIds.of(kb, Counter(ids))
    if found.are_few:
        warnings.warn(found.message(Warnings.W340, kb, "the gold documents"), stacklevel=3)


def _likely_prefix(kb: KnowledgeBase, missing: Iterable[str]) -> str:
    """Find a prefix that resolves at least half of the missing ids; return "" if none does."""
    bare = [id for id in missing if ":" not in id][:_MAX_IDS_TRIED]
    rows = np.linspace(0, len(kb) - 1, min(len(kb), _MAX_IDS_TRIED) if bare else 0).astype(int)
    prefixes = Counter(id.partition(":")[0] for id in kb.ids_of(rows) if ":" in id)
    for prefix, _ in prefixes.most_common():
        if 2 * (kb.find_all([f"{prefix}:{id}" for id in bare]) >= 0).sum() >= len(bare):
            return prefix
    return ""


def check_gold_ids(kb: KnowledgeBase, counts: Mapping[str, int], path: object) -> None:
    """Warn [W340] if a knowledge base has fewer than half of a corpus's gold ids.

    counts (Mapping[str, int]): How often each id occurs in the corpus.
    path (object): The corpus, for messages.
    RAISES BioelError: [B077] if the knowledge base has none of the gold ids.
    """
    found = KnownIds.of(kb, counts)
    if found.are_few and not found.known:
        raise BioelError(found.message(Errors.B077, kb, path))
    if found.are_few:
        LOGGER.warning(found.message(Warnings.W340, kb, path))

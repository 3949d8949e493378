"""What a linker has open beside what is assigned to it, and the tables that it is stored as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import srsly

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.contextual.weighing import READ_FEATURES
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
from spacy_bioel.pipeline.linker.evidence import FEATURES
from spacy_bioel.pipeline.linker.fusion import Fusion
from spacy_bioel.pipeline.linker.kbs import KbSetting
from spacy_bioel.pipeline.linker.names import FrozenEncoder
from spacy_bioel.pipeline.linker.settings import LinkerSettings
from spacy_bioel.pipeline.linker.statistics import MentionStatistics
from spacy_bioel.pipeline.linker.training import NameTraining
from spacy_bioel.pipeline.mentions.name_evidence import FEATURES as FINDING_FEATURES

if TYPE_CHECKING:
    from spacy_bioel.pipeline.linker.component import Linker

# Named as the first versions named it, so that their pipelines load.
_STATISTICS = "memory.json"
# What each of the weights of a linker are for.
_WEIGHTS = {"fusion": FEATURES, "reading": READ_FEATURES, "finding": FINDING_FEATURES}


@dataclass(frozen=True, eq=False)
class Resources:
    """What a linker has opened or made; a change replaces the whole value.

    kb (KnowledgeBase | None): None: it is not open yet.
    opened_as (KbSetting): The setting `kb` when it was opened.
    is_equipped (bool): Whether the package's components were added for it.
    settings (tuple | None): A copy of the setting values, and what they were checked to.
    frozen (tuple | None): A network, and the encoder that was frozen from it.
    dense (tuple | None): A knowledge base and an encoder, and whether names have vectors of it.
    generator (CandidateGenerator | None): Of the last state.
    training (NameTraining | None): None: there is none, or it has ended.
    """

    kb: KnowledgeBase | None = None
    opened_as: KbSetting = ""
    is_equipped: bool = False
    settings: tuple[dict[str, Any], LinkerSettings] | None = None
    frozen: tuple[Any, FrozenEncoder] | None = None
    dense: tuple[tuple[KnowledgeBase, FrozenEncoder], bool] | None = None
    generator: CandidateGenerator | None = None
    training: NameTraining | None = None

    def with_kb(self, kb: KnowledgeBase, setting: KbSetting) -> Resources:
        """Resources with another knowledge base; ends a training."""
        return Resources(kb, deepcopy(setting), frozen=self.frozen, dense=self.dense)


def write_tables(linker: Linker) -> dict[str, Callable[[], bytes]]:
    """Mention statistics and weights of a linker, by file name.

    RAISES BioelError: Those of `read_tables`: what could not be loaded is not saved.
    """
    tables: dict[str, Any] = {_STATISTICS: linker.statistics.counts, "fusion.json": None}
    for name, features in _WEIGHTS.items():
        if weights := getattr(linker, name):
            tables[f"{name}.json"] = weights.to_json(features)
    _check_tables(tables)
    return {name: partial(_to_json, table) for name, table in tables.items()}


def read_tables(parts: Mapping[str, bytes]) -> dict[str, Any]:
    """Mention statistics and weights, by the names that the linker has for them.

    RAISES BioelError: [B062], [B272] when they are damaged.
    """
    names = {_STATISTICS, *(f"{name}.json" for name in _WEIGHTS)} & parts.keys()
    return _check_tables({name: srsly.json_loads(parts[name]) for name in names})


def _check_tables(tables: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"statistics": MentionStatistics.from_json(tables[_STATISTICS])}
    for name, features in _WEIGHTS.items():
        table = tables.get(f"{name}.json")
        found[name] = None if table is None else Fusion.from_json(table, features)
    return found


def _to_json(table: object) -> bytes:
    text: str = srsly.json_dumps(table)
    return text.encode("utf8")

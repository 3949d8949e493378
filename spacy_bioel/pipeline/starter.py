"""The pipeline that comes with the package: diseases, chemicals, genes, organisms, cell lines and
variants are found, and all but the variants are linked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spacy.language import Language
from spacy.util import load_config, load_model_from_config
from thinc.api import Config

from spacy_bioel.pipeline.linker.starter import ASSETS, read_starter_encoder
from spacy_bioel.pipeline.linker.statistics import MentionStatistics
from spacy_bioel.pipeline.loading import DETECTOR, LINKER

_FOLDER = ASSETS / "starter"


def load_starter(
    *,
    disable: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
) -> Language:
    """Make the pipeline, offline; its knowledge bases are built when it links for the first time.

    disable, exclude, config: See `spacy_bioel.load`.
    RAISES BioelError: Those of reading its files, when the installation is damaged; those of the
        pipes on settings that cannot be.
    """
    meta = json.loads((_FOLDER / "meta.json").read_text(encoding="utf8"))
    changes = Config()
    for name, value in (config or {}).items():
        changes = changes.merge(_nested(name.split("."), value))
    whole = load_config(_FOLDER / "config.cfg").merge(changes)
    nlp = load_model_from_config(whole, meta=meta, auto_fill=True, disable=disable, exclude=exclude)
    pipes: dict[str, Any] = dict(nlp.components)
    if detector := pipes.get(DETECTOR):
        chosen = dict(detector.cfg)
        detector.from_disk(_FOLDER / DETECTOR)
        # Which has brought the settings that it was saved with.
        detector.cfg |= {key: chosen[key] for key in _changed(changes, DETECTOR) if key in chosen}
    if linker := pipes.get(LINKER):
        read_starter_encoder(linker.model)
        counts = json.loads((_FOLDER / "memory.json").read_text(encoding="utf8"))
        linker.statistics = MentionStatistics(counts)
    return nlp


def _nested(names: Sequence[str], value: Any) -> dict[str, Any]:
    """Sections round a setting: ["a", "b"], 1 to {"a": {"b": 1}}. spaCy's `dot_to_dict` would make
    the letters of labels small.
    """
    return {names[0]: _nested(names[1:], value) if names[1:] else value}


def _changed(changes: Mapping[str, Any], pipe: str) -> Iterable[str]:
    """Settings of a pipe that a caller has changed."""
    return changes.get("components", {}).get(pipe, {})

"""The pipeline that comes with the package: diseases, chemicals, genes, organisms, cell lines and
variants are found, and all but the variants are linked.
"""

from __future__ import annotations

import json
from typing import Any

from spacy.language import Language
from spacy.util import load_config, load_model_from_config

from spacy_bioel.pipeline.linker.starter import ASSETS, read_starter_encoder
from spacy_bioel.pipeline.linker.statistics import MentionStatistics
from spacy_bioel.pipeline.loading import DETECTOR, LINKER

_FOLDER = ASSETS / "starter"


def load_starter() -> Language:
    """Make the pipeline, offline; its knowledge bases are built when it links for the first time.

    RAISES BioelError: Those of reading its files, when the installation is damaged.
    """
    meta = json.loads((_FOLDER / "meta.json").read_text(encoding="utf8"))
    config = load_config(_FOLDER / "config.cfg")
    nlp = load_model_from_config(config, meta=meta, auto_fill=True)
    nlp.get_pipe(DETECTOR).from_disk(_FOLDER / DETECTOR)  # type: ignore[attr-defined]
    linker: Any = nlp.get_pipe(LINKER)
    read_starter_encoder(linker.model)
    counts = json.loads((_FOLDER / "memory.json").read_text(encoding="utf8"))
    linker.statistics = MentionStatistics(counts)
    return nlp

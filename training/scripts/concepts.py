"""Names of concepts, as the package's assets have them: JSON lines, packed by xz, and a file
beside them that says where they are from.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spacy_bioel.files import replacing_file
from spacy_bioel.types import Concept


def write_names(place: Path, concepts: Iterable[Concept], about: Mapping[str, str]) -> int:
    """Write `place`.jsonl.xz and `place`.json. RETURNS (int): The number of concepts."""
    lines = [json.dumps(record_of(concept), ensure_ascii=False) + "\n" for concept in concepts]
    with replacing_file(place.with_suffix(".jsonl.xz")) as path:
        path.write_bytes(lzma.compress("".join(lines).encode("utf8")))
    place.with_suffix(".jsonl.gz").unlink(missing_ok=True)  # as earlier versions had it
    with replacing_file(place.with_suffix(".json")) as path:
        path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf8")
    return len(lines)


def record_of(concept: Concept) -> dict[str, Any]:
    """A concept as JSON, without its hierarchy."""
    if concept.replaced_by:
        return {"id": concept.id, "replaced_by": concept.replaced_by}
    return {"id": concept.id, "names": concept.names, "types": concept.types}

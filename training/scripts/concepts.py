"""Write concepts as assets of the package: xz-packed JSON lines, and a file on their source."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spacy_bioel.files import replacing_file
from spacy_bioel.types import Concept


def write_names(
    stem: Path, concepts: Iterable[Concept], about: Mapping[str, str], *, xrefs: bool = False
) -> int:
    """Write `stem`.jsonl.xz and `stem`.json. RETURNS (int): The number of concepts.

    xrefs (bool): Also write cross-references.
    """
    records = (
        record_of(concept) | ({"xrefs": concept.xrefs} if xrefs and concept.xrefs else {})
        for concept in concepts
    )
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    with replacing_file(stem.with_suffix(".jsonl.xz")) as path:
        path.write_bytes(packed("".join(lines)))
    stem.with_suffix(".jsonl.gz").unlink(missing_ok=True)  # the format of earlier versions
    with replacing_file(stem.with_suffix(".json")) as path:
        path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf8")
    return len(lines)


def packed(text: str) -> bytes:
    """Return the xz-packed text, the same bytes each time."""
    return lzma.compress(text.encode("utf8"), preset=9 | lzma.PRESET_EXTREME)


def record_of(concept: Concept) -> dict[str, Any]:
    """Return a concept as a JSON record, without its parents."""
    if concept.replaced_by:
        return {"id": concept.id, "replaced_by": concept.replaced_by}
    return {"id": concept.id, "names": concept.names, "types": concept.types}

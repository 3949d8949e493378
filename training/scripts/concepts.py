"""Leave out bad records of a source, and write concepts as assets of the package: xz-packed JSON
lines, and a file on their source.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spacy_bioel.cli.console import count_of, show_note
from spacy_bioel.errors import BioelError
from spacy_bioel.files import replacing_file
from spacy_bioel.io.open import counting_kept, skipping_bad
from spacy_bioel.types import Concept

_RECORDS_PER_BAD_ONE = 10_000


def without_bad(concepts: Iterable[Concept]) -> Iterator[Concept]:
    """Yield the concepts of a source. At most one bad record in 10,000 is left out and reported.

    RAISES BioelError: The error of the first bad record, if there are more.
    """
    bad: list[str] = []
    with skipping_bad(lambda record: bad.append(record.message)) as skipped:
        yield from counting_kept(concepts)
    n = skipped.kept + len(bad)
    if len(bad) * _RECORDS_PER_BAD_ONE > n:
        raise BioelError(bad[0])
    if bad:
        show_note("\n".join([f"Left out {len(bad)} of {count_of(n, 'record')}:", *bad]))


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

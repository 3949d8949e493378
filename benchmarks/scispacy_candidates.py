"""The part of benchmarks.scispacy_linking that runs in scispaCy's own environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from scispacy.candidate_generation import CandidateGenerator, create_tfidf_ann_index
from scispacy.linking_utils import KnowledgeBase

_NAMES = 30  # nearest names that are looked at: scispaCy's default


def main(vocabulary: Path, queries: Path, out: Path) -> None:
    kb = KnowledgeBase(str(vocabulary))
    aliases, vectorizer, index = create_tfidf_ann_index(None, kb)
    generator = CandidateGenerator(index, vectorizer, aliases, kb)
    ranked = [
        sorted(
            ((found.concept_id, float(max(found.similarities))) for found in of_query),
            key=lambda pair: (-pair[1], pair[0]),
        )[:5]
        for of_query in generator(json.loads(queries.read_text("utf8")), _NAMES)
    ]
    out.write_text(json.dumps(ranked), encoding="utf8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

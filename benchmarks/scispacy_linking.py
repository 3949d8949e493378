"""How well does scispaCy's candidate generator link the same mentions, with the same names?

python -m benchmarks.scispacy_linking CORPUS --python VENV/bin/python, where that environment has
scispacy==0.6.2 and scipy<1.11, which it needs to build an index (Python 3.11, numpy 1). Mentions,
names and protocols are those of `benchmarks.linking`; ranked by the cosine of the best name.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.language import Language

from benchmarks import linking
from benchmarks.record import add, measurement
from spacy_bioel.kb.store import KnowledgeBase
from spacy_bioel.pipeline.memory import Memory
from spacy_bioel.pipeline.starter import ENCODER
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText, Candidate, Link

_CHILD = Path(__file__).with_name("scispacy_candidates.py")


def main(corpus: str, python: Annotated[Path, typer.Option(help="Of the environment.")]) -> None:
    rows: list[dict[str, Any]] = []
    for protocol in ("biosyn", "base"):
        nlp, linker = linking.make_pipeline(
            corpus,
            linking.System(("exact",)),
            encoder=str(ENCODER),
            uses_training=protocol == "biosyn",
        )
        texts = linking.known_texts(corpus, linker.kb)
        queries = mention_strings(nlp, linker, texts)
        ranked = candidates(linker.kb, linker.memory, sorted(set(queries.values())), python)
        links = [
            [
                Link(m.start, m.end, m.label, (), ranked[queries[number, m.start, m.end]])
                for m in text.mentions
                if (number, m.start, m.end) in queries
            ]
            for number, text in enumerate(texts)
        ]
        found = linking.metric_rows(texts, links, linker.kb)
        rows += [
            measurement(
                "linking", "scispacy", corpus=corpus, split="dev", protocol=protocol, subset="",
                seed=0, **row,
            )
            for row in found
        ]  # fmt: skip
    typer.echo(add("linking", rows, key=linking.KEY))


def mention_strings(
    nlp: Language, linker: Any, texts: list[AnnotatedText]
) -> dict[tuple[int, int, int], str]:
    """Normalised string of each mention, its abbreviations written out, by document and place."""
    strings = {}
    for number, doc in enumerate(linking.gold_docs(nlp, texts)):
        spans = list(doc.spans[linking.GOLD_KEY])
        for span, query in zip(spans, linker.queries(spans), strict=True):
            strings[number, span.start_char, span.end_char] = query.whole
    return strings


def candidates(
    kb: KnowledgeBase, memory: Memory, queries: list[str], python: Path
) -> dict[str, tuple[Candidate, ...]]:
    """What scispaCy finds in the names of a knowledge base and in training strings."""
    names = {
        id_: [normalize_name(name) for name in kb.names.take(kb.names_of(row))]
        for row, id_ in enumerate(kb.ids)
    }
    for string, ids in memory.counts.items():
        for id_ in ids:
            names.get(id_, []).append(string)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, asked, out = (Path(folder) / name for name in ("kb.jsonl", "q.json", "o.json"))
        with vocabulary.open("w", encoding="utf8") as file:
            for id_, (first, *aliases) in names.items():
                record = {"concept_id": id_, "canonical_name": first, "aliases": aliases}
                file.write(json.dumps(record | {"types": [], "definition": ""}) + "\n")
        asked.write_text(json.dumps(queries), encoding="utf8")
        subprocess.run(list(map(str, [python, _CHILD, vocabulary, asked, out])), check=True)
        found = json.loads(out.read_text("utf8"))
    return {
        query: tuple(Candidate(id_, score) for id_, score in ranked)
        for query, ranked in zip(queries, found, strict=True)
    }


if __name__ == "__main__":
    typer.run(main)

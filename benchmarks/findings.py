"""Count the lines of notes whose findings are right: `python -m benchmarks.run findings FILE ...`.

A line has a text; `ids`, the ids of stretches of it; and `never`, ids that nothing in it means.
benchmarks/finding_lines.jsonl was written before the rules that it measures, and is known to those
who wrote them. A stretch is right if mentions that overlap it have all its ids; a line, if all its
stretches are right and no mention has an id in `never`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.record import Row, question, rows_of
from spacy_bioel.doc import get_links
from spacy_bioel.loading import load_model
from spacy_bioel.types import Link


@question("findings", key=("system", "corpus", "subset", "metric"))
def findings(
    files: list[Path],
    kb: Annotated[Path, typer.Option(help="Knowledge base.")],
    system: Annotated[str, typer.Option(help="Name in the results.")] = "clinical",
    missed: Annotated[bool, typer.Option(help="Show what is wrong.")] = False,
) -> Iterator[Row]:
    nlp = load_model(str(kb), preset="clinical")
    for path in files:
        n, right = Counter[str](), Counter[str]()
        lines = [json.loads(line) for line in path.read_text("utf8").splitlines()]
        for line in lines:
            if not line.get("ids") and not line.get("never"):
                continue
            wrong = faults(line, get_links(nlp(line["text"])))
            for subset in {"", line.get("kind", "")}:
                n[subset] += 1
                right[subset] += not wrong
            if missed and wrong:
                typer.echo(f"{line['text']!r}: {'; '.join(wrong)}")
        for subset, of in n.items():
            values = {"right": float(right[subset])}
            yield from rows_of(system, values, corpus=path.stem, subset=subset, n=of)


def faults(line: dict[str, Any], links: Sequence[Link]) -> list[str]:
    """List the stretches of a line that lack ids, and the ids that it should not have."""
    wrong = []
    for stretch, ids in line.get("ids", {}).items():
        start = line["text"].index(stretch)
        near = [link for link in links if link.start < start + len(stretch) and start < link.end]
        found = {id for link in near for id in link.ids}
        if missing := {ids} - found if isinstance(ids, str) else set(ids) - found:
            wrong.append(f"{stretch!r} lacks {', '.join(sorted(missing))}")
    found = {id for link in links for id in link.ids}
    return wrong + [f"has {id}" for id in line.get("never", ()) if id in found]

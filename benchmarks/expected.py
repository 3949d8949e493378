"""Measure recall on names that any curator would expect to be found, in neutral sentences.

expected.tsv was written before anything was tuned for it: 100 drugs (12 of them brands), 60
diseases, 60 genes, 30 organisms, 30 variants and 20 cell lines, with their ids; among variants only
rs numbers have ids. `found`: a mention with these borders, of any type; `right`: with the right
type and id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.record import Row, question, rows_of
from spacy_bioel.loading import load_model

NAMES = Path(__file__).parent / "expected.tsv"
SENTENCES = (
    "This report is about {}.",
    "In all of them, {} was seen.",
    "We looked for {} and nothing else.",
)


@question("expected", key=("system", "subset", "metric"))
def expected(
    system: Annotated[str, typer.Option(help="Name in the results.")] = "ours",
    model: Annotated[str, typer.Argument(help='A pipeline, or "starter".')] = "starter",
    missed: Annotated[bool, typer.Option(help="Show the names that are not right.")] = False,
) -> Iterator[Row]:
    lines = NAMES.read_text(encoding="utf8").splitlines()[1:]
    wanted = [(s, *line.split("\t")) for line in lines for s in SENTENCES]
    docs = load_model(model).pipe(sentence.format(name) for sentence, _, name, _ in wanted)
    n, found, right = Counter[str](), Counter[str](), Counter[str]()
    for doc, (sentence, label, name, id) in zip(docs, wanted, strict=True):
        start = sentence.index("{")
        offsets = start, start + len(name)
        spans = [s for s in doc.spans["bioel"] if (s.start_char, s.end_char) == offsets]
        is_right = any(s.label_ == label and (s._.cui or "") == id for s in spans)
        for subset in ("", label):
            n[subset] += 1
            found[subset] += bool(spans)
            right[subset] += is_right
        if missed and not is_right:
            typer.echo(f"{doc.text} {[(s.text, s.label_, s._.cui) for s in doc.spans['bioel']]}")
    for subset in n:
        values = {"found": found[subset], "right": right[subset]}
        shares = {metric: 100 * count / n[subset] for metric, count in values.items()}
        yield from rows_of(system, shares, subset=subset, n=n[subset])

"""Measure lists of names and of texts that look like names, written before any rule for them.

All texts are our own, in the style of abstracts (form: tests/test_benchmark_texts.py).
expected_more.tsv has names in a sentence of their own, with ids of MeSH, or of OMIM or MONDO where
MeSH lacks the disease. organism_abstracts.jsonl annotates genes of the organism, unless they have a
general name ("histone H4"); a gene without ids is in no table. own_names.jsonl has written forms of
the names in own_names.csv, by `group`; no_false_friends.jsonl and definitions.jsonl have texts that
look like names, genomic coordinates, and short forms with their definitions.

`--symbols` adds a table of short names with the human symbols that are meant (symbol|symbol), each
in the sentences below. Of the mentions with ids, percent `right` (a mention that overlaps the gold
mention has its ids, or one of the symbols), `wrong` (otherwise, such a mention has an id) and
`missed`. Of texts that are not names, percent `wrong`: a mention that overlaps the text has one of
the labels that it must not have. Of genomic coordinates, a mention is right if its HGVS form is.
`own names` are measured with a dictionary of own_names.csv only. mixed_papers.jsonl has genes of
people and animals, written by five authors who had seen neither rules nor tests.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.tokens import Span

from benchmarks.record import Row, question, rows_of
from spacy_bioel.entities.species import HUMAN
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.bundled import starter_kb
from spacy_bioel.loading import load_model
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import GENE

FOLDER = Path(__file__).parent
SYMBOL_SENTENCES = (
    "Expression of {} was increased in the patients.",
    "Knockdown of {} in human cells reduced proliferation, and serum {} was measured.",
)
LISTS = ("organism_abstracts", "no_false_friends", "definitions", "mixed_papers")
NEVER = "not a name"
OWN = "own_names"
Text = tuple[str, dict[str, Any]]  # subset, and a record as in the lists


@question("names", key=("system", "subset", "metric"))
def names(
    system: Annotated[str, typer.Option(help="Name in the results.")] = "ours",
    model: Annotated[str, typer.Argument(help='A pipeline, or "starter".')] = "starter",
    symbols: Annotated[Path | None, typer.Option(help="Table of short names.")] = None,
    show: Annotated[list[str] | None, typer.Option(help="Subsets whose errors to show.")] = None,
) -> Iterator[Row]:
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    pairs = ((load_model(model), list(records(symbols))), (own_pipeline(), list(own_records())))
    for nlp, of_nlp in pairs:
        docs = nlp.pipe(record["text"] for _, record in of_nlp)
        for doc, (subset, record) in zip(docs, of_nlp, strict=True):
            for name, outcome, seen in outcomes(subset, record, list(doc.spans["bioel"])):
                counted[name][outcome] += 1
                if outcome != "right" and name in (show or ()):
                    typer.echo(f"{name}, {outcome}: {seen} in {doc.text!r}")
    for subset, counts in counted.items():
        n = counts.total()
        metrics = ("wrong",) if subset.endswith(NEVER) else ("right", "wrong", "missed")
        shares = {metric: 100 * counts[metric] / n for metric in metrics}
        yield from rows_of(system, shares, subset=subset, n=n)


def records(symbols: Path | None) -> Iterator[Text]:
    """Yield the texts of all lists for the starter, and those of a table of short names."""
    yield from _symbols(symbols)
    yield from _expected()
    for name in LISTS:
        yield from _list(name)


def own_records() -> Iterator[Text]:
    yield from _list(OWN)


def outcomes(
    subset: str, record: dict[str, Any], spans: list[Span]
) -> Iterator[tuple[str, str, str]]:
    """Yield a subset, an outcome and what was found for each mention and text that is not one."""

    def near(start: int, end: int) -> list[Span]:
        return [s for s in spans if s.start_char < end and start < s.end_char]

    def shown(text: str, found: Iterable[Span]) -> str:
        return f"{text} {[(s.text, s.label_, s._.cuis, s._.hgvs) for s in found]}"

    for start, end, text, label, ids, *form in record["mentions"]:
        found = near(start, end)
        same = [s for s in found if label in (s.label_, OWN)]
        if label == GENE and not ids:
            linked = any(s._.cuis for s in same)
            yield f"{subset}: {NEVER}", "wrong" if linked else "right", shown(text, found)
            continue
        right = [s for s in same if _is_right(s, ids, form)]
        wrong = any(s._.cuis or (form and s._.hgvs) for s in found)
        outcome = "right" if right else "wrong" if wrong else "missed"
        yield subset, outcome, shown(text, found)
    for start, end, text, labels in record.get("never", ()):
        found = [s for s in near(start, end) if not labels or s.label_ in labels]
        yield f"{subset}: {NEVER}", "wrong" if found else "right", shown(text, found)


def _is_right(span: Span, ids: list[str], form: list[str]) -> bool:
    """Whether a mention has the HGVS form, or only these ids; some variants have neither."""
    if form or not ids:
        return not form or form == [span._.hgvs]
    return bool(span._.cuis) and {*span._.cuis} <= {*ids}


def _list(name: str) -> Iterator[Text]:
    for line in (FOLDER / f"{name}.jsonl").read_text("utf8").splitlines():
        record = json.loads(line)
        group = record.get("group") or record["id"].partition("-")[0]
        subset = {OWN: "own names", "organism_abstracts": "genes in abstracts"}.get(name, name)
        if name != "definitions":
            subset += f", {group if group in ('issue', 'genomic') or name != OWN else 'others'}"
        yield subset.replace("_", " "), record


def _expected() -> Iterator[Text]:
    for line in (FOLDER / "expected_more.tsv").read_text("utf8").splitlines()[1:]:
        label, name, id, sentence = line.split("\t")
        mention = _mention(sentence, name, label, [id] if id else [])
        for subset in ("expected", f"expected, {label}"):
            yield subset, {"text": sentence.format(name), "mentions": [mention]}


def _mention(pattern: str, name: str, label: str, ids: list[str]) -> list[Any]:
    start = pattern.index("{")
    return [start, start + len(name), name, label, ids]


def _symbols(path: Path | None) -> Iterator[Text]:
    """Yield the sentences of a table of short names, with the ids of the human symbols."""
    kb = starter_kb("starter:genes")
    for line in path.read_text("utf8").splitlines() if path else ():
        name, wanted = line.split("\t")
        ids = []
        for symbol in wanted.split("|"):
            row_of_name = kb.lookup_names([normalize_name(symbol)])
            _, concepts, is_symbol = kb.concepts_of_names(row_of_name)
            rows = concepts[is_symbol].tolist()
            ids += [kb.ids_of([row])[0] for row in rows if HUMAN in kb.types_of(row)]
        for sentence in SYMBOL_SENTENCES:
            mention = _mention(sentence, name, GENE, ids)
            yield "short names", {"text": sentence.format(name, name), "mentions": [mention]}


def own_pipeline() -> Any:
    """Return a pipeline that finds the names of own_names.csv, and nothing else."""
    folder = Path(tempfile.mkdtemp()) / OWN
    columns = {"id": "Code", "name": "Label"}
    build_kb(read_ontology(FOLDER / f"{OWN}.csv", prefix="OWN", columns=columns), folder)
    return load_model(str(folder))

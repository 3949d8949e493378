"""Measure the dictionary with an ontology only, without training on annotated texts.

python -m benchmarks.run no_labels CORPUS FILE --kb FOLDER evaluates on development documents:

hpo_dev         lines with id, text and mentions (start, end, id); the branch HP:0000118 of the
                Human Phenotype Ontology (HPO)
bc5cdr          a PubTator file; a knowledge base of MeSH
clinical        benchmarks/clinical.jsonl: sentences of clinical notes with typos, shorthand and lay
                words; the same branch of HPO
case_reports    lines with id, text, and ids of the patient; documents only
notes           benchmarks/notes.jsonl: hard-wrapped clinical notes
notes_affirmed  the same, only findings that the patient has
note_lines      benchmarks/note_lines.jsonl: single lines of notes
craft_uberon, craft_cl, craft_so    full texts of CRAFT and the ontology of the annotations; FILE is
                the folder of articles.jsonl.gz, UBERON.jsonl.gz, ...

Labels are ignored, retired ids are mapped, and each id of a composite counts separately, on both
sides. All protocols are micro-averaged F1, over all documents:

mention     borders and id equal those of a gold mention (bc5cdr: borders only)
end_to_end  borders and id (bc5cdr)
overlap     the id is that of a gold mention that shares a character with the span (clinical)
document    the set of ids of each document

The system `clinical` is --preset clinical, with shorthand and measurements.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import srsly
import typer

from benchmarks.record import Row, question
from spacy_bioel.doc import get_links
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.evaluation.evaluate import evaluate_links
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.loading import find_linker, load_model
from spacy_bioel.plugins.clinical.notes import Notes
from spacy_bioel.plugins.clinical.presets import add_context
from spacy_bioel.types import AnnotatedText, Link, Mention

AFFIRMED = "affirmed"  # only what the patient has, had or may have
_AFFIRMED = ("present", "historical", "possible")
_NOTES = {"entities": {"notes": Notes(clinical=True, measurements=True)}}
# System -> changes to the settings of the linker and to its entity rules.
SYSTEMS: dict[str, dict[str, Any]] = {
    "ours": {},
    AFFIRMED: {},
    "clinical": _NOTES,
    "clinical_without_measurements": {"entities": {"notes": Notes(clinical=True)}},
    f"clinical_{AFFIRMED}": _NOTES,
    "nested": {"dictionary": {"nested": True}},
    "without_typos": {"dictionary": {"typos": False}},
    "without_variants": {"dictionary": {"variants": False}},
    "without_abbreviations": {"abbreviations": False},
    "without_shorthand": {"entities": {"notes": None}},
}
NOTES = ("notes", "notes_affirmed", "note_lines")
PHENOTYPES = ("hpo_dev", "clinical", "case_reports", *NOTES)  # JSON lines with HPO ids
Spans = set[tuple[int, int, str]]  # start, end, id


@question("no_labels", key=("corpus", "system", "protocol", "metric"))
def no_labels(
    corpus: str,
    path: Path,
    kb: Annotated[Path, typer.Option(help="Knowledge base.")],
    system: Annotated[list[str] | None, typer.Option(help="One of SYSTEMS; default: all.")] = None,
) -> Iterator[Row]:
    nlp = load_model(str(kb))
    add_context(nlp)
    linker = find_linker(nlp)
    gold = list(_read(corpus, path))
    texts = [text for text, _ in gold]
    canonical = linker.kb.canonical
    gold_spans = [{(start, end, canonical(id)) for start, end, id in spans} for _, spans in gold]
    before, rules = dict(linker.cfg), linker.entities.rules

    def find(texts: list[str], *, affirmed: bool = False) -> list[Spans]:
        found = []
        for doc in nlp.pipe(texts, batch_size=64):
            links = get_links(doc)
            if affirmed:
                links = [link for link in links if link.facts["context"]["assertion"] in _AFFIRMED]
            found.append({(link.start, link.end, id) for link in links for id in link.ids})
        return found

    for name in system or SYSTEMS:
        settings = dict(SYSTEMS[name])
        system_rules = rules | settings.pop("entities", {})
        linker.cfg = before | settings
        linker.entities = RuleSet({k: rule for k, rule in system_rules.items() if rule is not None})
        found = find(texts, affirmed=name.endswith(AFFIRMED))
        about = {"system": name, "corpus": corpus, "seed": 0, "split": "dev"}
        for protocol, value in scores_of(corpus, gold_spans, found):
            yield {**about, "protocol": protocol, "metric": "f1", **value}


def _read(corpus: str, path: Path) -> Iterator[tuple[str, Spans]]:
    if corpus in PHENOTYPES:
        for line in path.read_text("utf8").splitlines():
            record = json.loads(line)
            spans = [
                (m["start"], m["end"], m["id"])
                for m in record["mentions"]
                if corpus != "notes_affirmed" or m["is"] == AFFIRMED
            ]
            if corpus == "case_reports":  # ids do not have offsets
                spans = [(0, 0, id) for id in record["ids"]]
            yield record["text"], set(spans)
        return
    if corpus.startswith("craft_"):
        name = corpus.removeprefix("craft_").upper()
        articles = srsly.read_gzip_jsonl(path / "articles.jsonl.gz")
        texts = {article["id"]: article["text"] for article in articles}
        for record in srsly.read_gzip_jsonl(path / f"{name}.jsonl.gz"):
            spans = {(m["start"], m["end"], m["id"]) for m in record["mentions"]}
            yield texts[record["id"]], spans
        return
    for text in read_pubtator(path, prefix="MESH"):
        yield text.text, {(m.start, m.end, id) for m in text.mentions for id in m.ids or ("",)}


def scores_of(corpus: str, gold: list[Spans], found: list[Spans]) -> Iterator[tuple[str, Row]]:
    """Yield the protocols of a corpus with their figures, measured as `bioel evaluate` does."""
    protocols = {"document": "document"}
    if corpus == "bc5cdr":
        protocols |= {"mention": "mention_unlabelled", "end_to_end": "end_to_end"}
    elif corpus != "case_reports":
        protocols["mention"] = "end_to_end"
    for name, protocol in protocols.items():
        yield name, _measured(gold, found, protocol)
    if corpus == "clinical":
        moved = [_at_gold(*pair) for pair in zip(gold, found, strict=True)]
        yield "overlap", _measured(gold, moved, "end_to_end")


def _measured(gold: list[Spans], found: list[Spans], protocol: str) -> Row:
    """Return the figures of a protocol; each id of a composite counts separately."""
    texts = [AnnotatedText("", "", tuple(Mention(*x[:2], "", x[2:]) for x in one)) for one in gold]
    links = [[Link(*x[:2], "", x[2:]) for x in one] for one in found]
    figures = evaluate_links(texts, links, protocols=[protocol], per_label=False, n_resamples=1)
    values = {row.metric: round(row.value, 2) for row in figures}
    return {"value": values.pop("f1", 0.0), **values, "n": figures[0].n if figures else 0}


def _at_gold(gold: Spans, found: Spans) -> Spans:
    """Return the found spans; those that overlap a gold mention of their id get its borders."""
    moved = set()
    for start, end, id in found:
        near = [g for g in sorted(gold) if g[2] == id and g[0] < end and start < g[1]]
        moved.add(near[0] if near else (start, end, id))
    return moved

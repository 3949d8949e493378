"""Accuracy of names found with an ontology alone, without training on annotated texts.

python -m benchmarks.run no_labels CORPUS FILE --kb FOLDER measures on development documents: of
hpo_dev, lines with id, text and mentions (start, end, id), against the branch HP:0000118 of the
Human Phenotype Ontology; of bc5cdr, against a knowledge base of MeSH; of clinical,
benchmarks/clinical.jsonl, sentences as in clinical notes, with typos, shorthand and lay words,
against the same branch; of case_reports, lines with id, text and ids, those of the patient,
documents alone; of notes, benchmarks/notes.jsonl, hard-wrapped clinical notes, and of
notes_affirmed, what the patient has in them; of note_lines, benchmarks/note_lines.jsonl, single
lines of notes; of craft_uberon, craft_cl and craft_so, full texts of CRAFT (FILE is the folder of
articles.jsonl.gz, UBERON.jsonl.gz, ...), against the ontologies of their annotation.
clinical: as --preset clinical finds them, with shorthand and measurements of notes.
Labels are ignored, and retired ids are mapped, on both sides. Protocols, all of them
micro-averaged F1, over documents without mentions too:

mention: borders and id are those of a gold mention (bc5cdr: borders only).
overlap (clinical): the id is that of a gold mention that shares a character with the span.
document: the set of ids of each document.

refitted: what `bioel tune` makes of the documents of the other folds, by turns; not measured by
default. FastHPOCR (--python, --index) reads hp.obo; its FOLDER/hp.index is made when it is not
there.
end_to_end: as mention, with the id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import srsly
import typer

from benchmarks.record import Row, question
from benchmarks.rivals import THEIRS, run, write_json
from spacy_bioel.doc import get_links
from spacy_bioel.entities.notes.shorthand import Notes
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.evaluation.fit import document_folds
from spacy_bioel.evaluation.tune import tune_dictionary
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.loading import add_context, find_linker, load_model
from spacy_bioel.types import AnnotatedText, Mention

AFFIRMED = "affirmed"  # without what bioel_context says is negated, conditional or another's
_NOTES = {"entities": {"notes": Notes(clinical=True, measurements=True)}}
# Settings of the linker, and rules, that make a system of another one.
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
REFITTED = "refitted"
Found = set[tuple[int, int, str]]


@question("no_labels", key=("corpus", "system", "protocol", "metric"))
def no_labels(
    corpus: str,
    path: Path,
    kb: Annotated[Path, typer.Option(help="Knowledge base.")],
    system: Annotated[list[str] | None, typer.Option(help="Of SYSTEMS; all by default.")] = None,
    python: Annotated[
        Path | None, typer.Option(help="Of an environment with FastHPOCR, which is measured alone.")
    ] = None,
    index: Annotated[Path, typer.Option(help="Folder of its hp.index, or of hp.obo.")] = Path(),
) -> Iterator[Row]:
    nlp = load_model(str(kb))
    add_context(nlp)
    linker = find_linker(nlp)
    gold = list(_read(corpus, path))
    texts = [text for text, _ in gold]
    canonical = linker.kb.canonical
    wanted = [{(start, end, canonical(id)) for start, end, id in of} for _, of in gold]
    before, rules = dict(linker.cfg), linker.entities.rules

    def find(texts: list[str], *, affirmed: bool = False) -> list[Found]:
        links = [get_links(doc) for doc in nlp.pipe(texts, batch_size=64)]
        kept = [
            [link for link in of if not affirmed or (link.context and link.context.is_affirmed)]
            for of in links
        ]
        return [{(link.start, link.end, id) for link in of for id in link.ids} for of in kept]

    for name in ["fasthpocr"] if python else system or SYSTEMS:
        settings = dict(SYSTEMS.get(name, {}))
        own = rules | settings.pop("entities", {})
        linker.cfg = before | settings
        linker.entities = RuleSet({key: one for key, one in own.items() if one is not None})
        if python:
            write_json(index / "texts.json", texts)
            run(python, *THEIRS, "fasthpocr", index)
            read = json.loads((index / "out.json").read_text("utf8"))["found"]
            found = [{(start, end, id) for start, end, id in of_text} for of_text in read]
        elif name == REFITTED:
            found = [set() for _ in texts]
            for fold in document_folds(len(texts)):
                fitting = [_annotated(*gold[i]) for i in fold.fitting.tolist()]
                tune_dictionary(nlp, fitting, folds=document_folds(len(fitting)))
                held_out = fold.held_out.tolist()
                for i, of_text in zip(held_out, find([texts[i] for i in held_out]), strict=True):
                    found[i] = of_text
                linker.cfg = dict(before)
        else:
            found = find(texts, affirmed=name.endswith(AFFIRMED))
        about = {"system": name, "corpus": corpus, "seed": 0, "split": "dev"}
        for protocol, value in _scores(corpus, wanted, found).items():
            yield {**about, "protocol": protocol, "metric": "f1", **value}


def _read(corpus: str, path: Path) -> Iterator[tuple[str, Found]]:
    if corpus in PHENOTYPES:
        for line in path.read_text("utf8").splitlines():
            record = json.loads(line)
            places = [
                (m["start"], m["end"], m["id"])
                for m in record["mentions"]
                if corpus != "notes_affirmed" or m["is"] == AFFIRMED
            ]
            if corpus == "case_reports":  # not all ids have a place
                places = [(0, 0, id) for id in record["ids"]]
            yield record["text"], set(places)
        return
    if corpus.startswith("craft_"):
        name = corpus.removeprefix("craft_").upper()
        articles = srsly.read_gzip_jsonl(path / "articles.jsonl.gz")
        texts = {article["id"]: article["text"] for article in articles}
        for of in srsly.read_gzip_jsonl(path / f"{name}.jsonl.gz"):
            yield texts[of["id"]], {(m["start"], m["end"], m["id"]) for m in of["mentions"]}
        return
    for text in read_pubtator(path, prefix="MESH"):
        found = {(m.start, m.end, id) for m in text.mentions for id in m.ids or ("",)}
        yield text.text, found


def _annotated(text: str, found: Found) -> AnnotatedText:
    ids: dict[tuple[int, int], list[str]] = {}
    for start, end, id in sorted(found):
        ids.setdefault((start, end), []).append(id)
    mentions = [Mention(*place, "", tuple(filter(None, of))) for place, of in ids.items()]
    return AnnotatedText("", text, tuple(mentions))


def _scores(corpus: str, gold: list[Found], found: list[Found]) -> dict[str, Row]:
    ids = [[{id for *_, id in one} for one in of] for of in (gold, found)]
    scores = {"document": _f1(*ids)}
    if corpus == "bc5cdr":
        borders = [[{(start, end) for start, end, _ in one} for one in of] for of in (gold, found)]
        scores |= {"mention": _f1(*borders), "end_to_end": _f1(gold, found)}
    elif corpus != "case_reports":
        scores["mention"] = _f1(gold, found)
    if corpus == "clinical":
        scores["overlap"] = _f1(gold, [_at_gold(*pair) for pair in zip(gold, found, strict=True)])
    return scores


def _at_gold(gold: Found, found: Found) -> Found:
    """Spans that were found, those that overlap a gold mention of their id with its borders."""
    moved = set()
    for start, end, id in found:
        near = [g for g in sorted(gold) if g[2] == id and g[0] < end and start < g[1]]
        moved.add(near[0] if near else (start, end, id))
    return moved


def _f1(gold: list[Any], found: list[Any]) -> Row:
    right = sum(len(a & b) for a, b in zip(gold, found, strict=True))
    n, n_found = sum(map(len, gold)), sum(map(len, found))
    precision, recall = right / max(n_found, 1), right / max(n, 1)
    f1 = 2 * right / max(n + n_found, 1)
    figures = {"value": f1, "precision": precision, "recall": recall}
    return {name: round(100 * figure, 2) for name, figure in figures.items()} | {"n": n}

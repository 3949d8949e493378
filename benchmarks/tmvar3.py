"""Evaluate variants and genes on tmVar 3, and compare genes with other tools.

python -m benchmarks.run variants_forms FILE... measures for how many gold variants the component
form, the gene and the rs number are right, in the training part of tmVar 3, and in other documents
(BioRED) that it does not contain. Forms are compared as strings, except for letter case and empty
fields at the end. `others` are the documents the grammar was developed on; errors in the `last
quarter`, chosen by a hash of the id, were only read at the end.

python -m benchmarks.run peers FOLDER measures genes end to end, as the authors of HunFlair2 do
(Sänger et al. 2024, https://doi.org/10.1093/bioinformatics/btae564): one id of several is enough,
and borders may be one character off. FOLDER has the documents with gold mentions and predictions of
three tools (tmvar3_goldstandard.txt.gz, ...), from the repository hu-ner/hunflair2-experiments.
`not seen` are the documents that the training corpora of the pipeline (`--seen`) do not contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from benchmarks.record import NoteOption, Row, figures, question
from benchmarks.starter import script
from benchmarks.texts import KEY
from spacy_bioel.entities.variant_grammar import read_variant
from spacy_bioel.entities.variants import VariantGenes, rs_numbers
from spacy_bioel.io.open import open_text
from spacy_bioel.loading import find_linker, load_model
from spacy_bioel.plugins.evaluation.evaluate import evaluate_links
from spacy_bioel.plugins.evaluation.run import link_bare_texts
from spacy_bioel.types import GENE, AnnotatedText, Link, Mention

TOOLS = ("pubtator", "hunflair2", "bern")
_NUMBER = re.compile(r"(?<![-\d])\d+")


class Annotation(NamedTuple):
    """An annotation of a PubTator file; `info` is the last column."""

    start: int
    end: int
    label: str
    info: str


class Document(NamedTuple):
    id: str
    text: str
    annotations: list[Annotation]


def documents(path: Path) -> Iterator[Document]:
    """Yield the documents of a PubTator file, which may lack texts."""
    with open_text(path) as file:
        blocks = [block.strip("\n").split("\n") for block in file.read().split("\n\n")]
    for lines in blocks:
        texts = [line.split("|", 2)[2] for line in lines if re.match(r"\d+\|[ta]\|", line)]
        columns = [line.split("\t") for line in lines if line.count("\t") > 3]
        found = [Annotation(int(c[1]), int(c[2]), c[4], "".join(c[5:6])) for c in columns]
        if texts or found:
            yield Document(re.split(r"[|\t]", lines[0])[0], " ".join(texts), found)


def _genes(annotations: Sequence[Annotation]) -> tuple[Mention, ...]:
    """Return genes with NCBI ids, in any notation of these."""
    found = (
        Mention(a.start, a.end, GENE, tuple(f"NCBIGene:{id}" for id in _NUMBER.findall(a.info)))
        for a in annotations
        if a.label.lower() == "gene"
    )
    return tuple(mention for mention in found if mention.ids)


@question("variants", key=KEY)
def variants_forms(
    files: Annotated[list[Path], typer.Argument(help="tmVar 3, then other PubTator files.")],
    model: Annotated[str, typer.Option(help="Pipeline that finds the genes.")] = "starter",
    note: NoteOption = "",
) -> Iterator[Row]:
    nlp = load_model(model)
    known: set[str] = set()
    for path in files:
        texts = [document for document in documents(path) if document.id not in known]
        known |= {document.id for document in texts}
        links = link_bare_texts(nlp, find_linker(nlp), [AnnotatedText(d.id, d.text) for d in texts])
        right: dict[tuple[str, str, str], list[bool]] = {}
        for document, found in zip(texts, links, strict=True):
            for protocol, metric, is_right in judged(document, found):
                for subset in ("", "last quarter" if is_unread(document) else "others"):
                    right.setdefault((subset, protocol, metric), []).append(is_right)
        about = {"corpus": path.name.split(".")[0], "system": "ours", "seed": 0, "note": note}
        for (subset, protocol, metric), values in right.items():
            yield about | {
                "subset": subset,
                "protocol": protocol,
                "metric": metric,
                "value": round(100 * sum(values) / len(values), 2),
                "n": len(values),
            }


def is_unread(document: Document) -> bool:
    """Whether errors in a document were only read when the grammar was complete."""
    return blake2b(document.id.encode(), digest_size=8).digest()[-1] % 4 == 3


def judged(document: Document, links: Sequence[Link]) -> Iterator[tuple[str, str, bool]]:
    """Yield protocol, metric and whether our value is right, for each gold fact on variants."""
    text = document.text
    variants = [a for a in document.annotations if re.search(r"\|\w|^rs\d|RS#", a.info)]
    genes = [Link(m.start, m.end, GENE, m.ids) for m in _genes(document.annotations)]
    numbers = rs_numbers(text, [(a.start, a.end) for a in variants])
    for (start, end, _, info), number in zip(variants, numbers, strict=True):
        form, *others = info.split(";")
        if "|" in form:
            found = read_variant(text, start, end)
            is_right = _folded(found.component if found else "") == _folded(form)
            yield "gold mentions", "component", is_right
        numbers_of_genes = [_NUMBER.findall(other) for other in others if other.startswith("Gene:")]
        if ids := {f"NCBIGene:{id}" for id in (numbers_of_genes or [[]])[0]}:
            yield "gold genes", "gene", VariantGenes(text, genes).of(start, end) in ids
            yield "found genes", "gene", VariantGenes(text, links).of(start, end) in ids
        if rs := re.search(r"(?:^rs|RS#:)(\d+)", info):
            yield "gold mentions", "rs", number == f"rs{rs[1]}"
            if f"rs{rs[1]}" in text:
                yield "said by the text", "rs", number == f"rs{rs[1]}"


def _folded(form: str) -> str:
    return form.upper().rstrip("|")


@question("peers", key=KEY)
def peers(
    folder: Path,
    model: Annotated[str, typer.Option(help="A pipeline.")] = "starter",
    seen: Annotated[
        list[Path] | None, typer.Option(help="A training corpus of the pipeline.")
    ] = None,
    note: NoteOption = "",
) -> Iterator[Row]:
    beginning = script("mixtures").beginning
    gold = [
        AnnotatedText(d.id, d.text, _genes(d.annotations), (GENE,))
        for d in documents(folder / "tmvar3_goldstandard.txt.gz")
    ]
    nlp = load_model(model)
    found = {"ours": list(link_bare_texts(nlp, find_linker(nlp), gold))}
    for tool in TOOLS:
        annotations = {d.id: d.annotations for d in documents(folder / f"tmvar3_{tool}.txt.gz")}
        genes = [_genes(annotations.get(text.id, ())) for text in gold]
        found[tool] = [[Link(m.start, m.end, GENE, m.ids) for m in of_text] for of_text in genes]
    trained = {beginning(AnnotatedText(d.id, d.text)) for p in seen or () for d in documents(p)}
    new = [i for i, text in enumerate(gold) if beginning(text) not in trained]
    for system, links in found.items():
        for subset, chosen in {"": range(len(gold)), **({"not seen": new} if seen else {})}.items():
            texts = [gold[i] for i in chosen]
            near = [[_snapped(link, gold[i].mentions) for link in links[i]] for i in chosen]
            for row in evaluate_links(texts, near, protocols=["end_to_end_any"], per_label=False):
                yield {
                    "system": system,
                    "corpus": "tmvar3",
                    "protocol": "hunflair2",
                    "subset": subset,
                    "seed": 0,
                    "documents": len(texts),
                    "note": note if system == "ours" else "",
                    **figures(row),
                }


def _snapped(link: Link, gold: Sequence[Mention]) -> Link:
    """Return a link with the borders of a gold mention of its id at most one character off."""
    near = (
        m
        for m in gold
        if max(abs(m.start - link.start), abs(m.end - link.end)) <= 1 and {*m.ids} & {*link.ids}
    )
    right = next(near, link)
    return replace(link, start=right.start, end=right.end)

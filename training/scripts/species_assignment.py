"""Fit the weights of species assignment: spacy_bioel/assets/species_assignment.json.

The weights are fitted on training documents of corpora that the project has fetched, with the
bundled genes, the organisms and cell lines that the starter finds, and an alias table from other
documents. Few documents of corpora have genes of several organisms, so paragraphs that were written
for this project, training/assets/mixed_organisms.jsonl, count several times.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from documents import FIFTHS, fifth_of
from mixtures import beginning
from spacy.tokens import Doc, Span
from spacy.training import Example
from specs import find_split

import spacy_bioel
from spacy_bioel.corpus import read_texts
from spacy_bioel.doc import add_gold
from spacy_bioel.entities.genes import genes_and_organisms
from spacy_bioel.entities.species import SPECIES_FEATURES
from spacy_bioel.evaluation.fit import Development, fit_fusion, merge_development
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.linking.link import rank_candidates
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.types import GENE, ORGANISM, AnnotatedText

ASSETS = Path("spacy_bioel") / "assets"
MIXED = Path("training") / "assets" / "mixed_organisms.jsonl"
_MIXED_COUNT = 3  # how often each of its mentions counts
_N_HIDDEN, _L2 = 8, 0.005


def fit(
    corpora: list[str],
    output: Annotated[Path, typer.Option()] = ASSETS / "species_assignment.json",
) -> None:
    """Fit on the documents of these corpora, and on the paragraphs."""
    nlp = spacy_bioel.load()
    texts = {
        beginning(text): text
        for corpus in corpora
        for split in ("train", "dev")
        for text in read_texts(find_split(corpus, split), prefix="")
    }
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.cfg["mentions"] = "spans"
    starter_counts = linker.alias_table.counts
    parts = []
    for fifth in range(FIFTHS):
        # The alias table must not contain the gold genes of the fifth that is measured.
        linker.alias_table = AliasTable(_without_genes(starter_counts))
        others = (_gold(nlp, text) for text in texts.values() if fifth_of(text.id) != fifth)
        linker.count_mentions(Example(doc, doc) for doc in others)
        held_out = [text for text in texts.values() if fifth_of(text.id) == fifth]
        parts.append(_development(nlp, linker, held_out))
    mixed = _development(nlp, linker, list(read_texts(MIXED, prefix="")))
    parts += [mixed] * _MIXED_COUNT
    development = merge_development([*parts, *map(_of_human_genes, [*parts[:2], mixed])])
    fitted = fit_fusion(development, n_hidden=_N_HIDDEN, l2=_L2)
    output.write_text(json.dumps(fitted.to_json(SPECIES_FEATURES)) + "\n", encoding="utf8")


def _without_genes(counts: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    kept = {
        string: {id: n for id, n in ids.items() if not id.startswith("NCBIGene:")}
        for string, ids in counts.items()
    }
    return {string: ids for string, ids in kept.items() if ids}


def _gold(nlp: Any, text: AnnotatedText) -> Doc:
    doc = nlp.make_doc(text.text)
    add_gold(doc, text, widen=True, key=GOLD_KEY)
    doc.spans[GOLD_KEY] = [span for span in doc.spans[GOLD_KEY] if span.label_ == GENE]
    return doc


def _development(nlp: Any, linker: Any, texts: Sequence[AnnotatedText]) -> Development:
    """Return candidate species of gold genes; other mentions are those of the detector."""
    docs = []
    for doc, text in zip(
        nlp.pipe((t.text for t in texts), disable=[linker.name]), texts, strict=True
    ):
        detected = [span for span in doc.spans["bioel"] if span.label_ != GENE]
        with_gold = _gold(nlp, text)
        gold = {(s.start, s.end): s.kb_id for s in with_gold.spans[GOLD_KEY]}
        marked = [Span(doc, *offsets, GENE, kb_id=id) for offsets, id in gold.items()]
        doc.spans["bioel"] = [*detected, *marked]
        docs.append(doc)
    generator = linker.generator
    batch = rank_candidates(linker.find(docs), generator)
    batch = replace(batch, nil_threshold=linker.cfg["nil_threshold"])
    _, table = genes_and_organisms(batch, generator)
    rows: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(table.mention.tolist()):
        rows[number].append(row)
    right = dict(_right(linker.kb, batch, table.organisms, rows))
    return Development(
        table.features,
        [np.array(rows[number]) for number in right],
        list(right.values()),
        [batch.strings[number] for number in right],
        [batch.owners[number] for number in right],
    )


def _of_human_genes(development: Development) -> Development:
    """Return the evidence that a knowledge base with human genes alone would give."""
    features = development.features.copy()
    columns = [SPECIES_FEATURES.index(name) for name in ("named", "homolog", "spelled")]
    is_other = features[:, SPECIES_FEATURES.index("human")] == 0
    features[np.ix_(is_other, columns)] = 0
    return replace(development, features=features)


def _right(
    kb: Any, batch: Any, organisms: Sequence[str], rows: dict[int, list[int]]
) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Yield mention number and gold mask over its candidate species.

    For a gene that the KB lacks, species without any genes in the KB count as right.
    """
    known = {name for name in kb.type_names if name.startswith(ORGANISM)}
    for number, span in enumerate(batch.spans[: batch.n_wholes]):
        if number not in rows or not span.kb_id_ or "|" in span.kb_id_:
            continue
        concept, candidates = kb.find(span.kb_id_), [organisms[row] for row in rows[number]]
        gold = {t for t in kb.types_of(concept) if t in known} if concept >= 0 else set()
        gold |= {span.kb_id_} & {*candidates}  # the paragraphs have organisms instead of genes
        right = np.array([o in gold if gold else o not in known for o in candidates])
        if right.any() or not gold:
            yield number, right


if __name__ == "__main__":
    typer.run(fit)

"""Fit the weights of species assignment: spacy_bioel/assets/species_assignment.json.

The weights are fitted on training documents of corpora that the project has fetched, with the
bundled genes, the organisms and cell lines that the starter finds, and an alias table from other
documents.
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
from spacy_bioel.entities.genes import genes_by_organism
from spacy_bioel.entities.species import SPECIES_FEATURES, organism_places, organism_table
from spacy_bioel.evaluation.fit import Development, fit_fusion, merge_development
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.linking.link import rank_candidates
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.types import GENE, ORGANISM, AnnotatedText

ASSETS = Path("spacy_bioel") / "assets"
_MAX_MENTIONS = 400  # human genes, and other genes, of a fifth of a corpus
_MAX_HUMAN_SHARE, _MIN_OTHERS = 0.7, 15
_L2 = 0.0005


def fit(
    corpora: list[str],
    beside: Annotated[
        list[str] | None,
        typer.Option(help="More corpora whose development documents are left out."),
    ] = None,
    output: Annotated[Path, typer.Option()] = ASSETS / "species_assignment.json",
) -> None:
    """Fit on the training documents of these corpora; leave one out to measure on it."""
    nlp = spacy_bioel.load()
    left_out = {beginning(text) for c in (*corpora, *(beside or ())) for text in _read(c, "dev")}
    texts: dict[str, list[AnnotatedText]] = {}
    for corpus in corpora:
        texts[corpus] = [t for t in _read(corpus, "train") if beginning(t) not in left_out]
        left_out |= set(map(beginning, texts[corpus]))
    all_texts = [text for corpus_texts in texts.values() for text in corpus_texts]
    linker: Any = nlp.get_pipe("bioel_linker")
    starter_counts = linker.alias_table.counts
    parts = []
    for fifth in range(FIFTHS):
        # The alias table must not contain the gold genes of the fifth that is measured.
        linker.alias_table = AliasTable(_without_genes(starter_counts))
        others = (_gold(nlp, text) for text in all_texts if fifth_of(text.id) != fifth)
        linker.count_mentions(Example(doc, doc) for doc in others)
        for corpus_texts in texts.values():
            held_out = [text for text in corpus_texts if fifth_of(text.id) == fifth]
            if held_out:
                parts.append(_sample(_development(nlp, linker, held_out)))
    fitted = fit_fusion(merge_development(parts), n_hidden=0, l2=_L2)
    output.write_text(json.dumps(fitted.to_json(SPECIES_FEATURES)) + "\n", encoding="utf8")


def _read(corpus: str, split: str) -> list[AnnotatedText]:
    return list(read_texts(find_split(corpus, split), prefix=""))


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
        genes = [Span(doc, *offsets, GENE, kb_id=id) for offsets, id in gold.items()]
        doc.spans["bioel"] = [*detected, *genes]
        docs.append(doc)
    generator = linker.generator
    batch = rank_candidates(linker.find(docs), generator)
    batch = replace(batch, nil_threshold=linker.cfg["nil_threshold"])
    genes, places = genes_by_organism(batch, generator), organism_places(batch, range(len(docs)))
    table = organism_table(batch, genes, places, generator.kb)
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
        concept = kb.find(span.kb_id_)
        gold = {t for t in kb.types_of(concept) if t in known} if concept >= 0 else set()
        candidates = [organisms[row] for row in rows[number]]
        right = np.array([o in gold if gold else o not in known for o in candidates])
        if right.any() or not gold:
            yield number, right


def _sample(development: Development) -> Development:
    """Sample mentions, and limit the share of human genes: some corpora have hardly any others."""
    order = np.random.default_rng(0).permutation(len(development)).tolist()
    is_human = [
        bool((development.features[rows, 0].astype(bool) & right).any())
        for rows, right in zip(development.rows, development.right, strict=True)
    ]
    others = [i for i in order if not is_human[i]][:_MAX_MENTIONS]
    n_human = int(max(len(others), _MIN_OTHERS) * _MAX_HUMAN_SHARE / (1 - _MAX_HUMAN_SHARE))
    human = [i for i in order if is_human[i]][: min(n_human, _MAX_MENTIONS)]
    return development.take([*others, *human])


if __name__ == "__main__":
    typer.run(fit)

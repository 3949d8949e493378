"""Fit the weights of the evidence for the organism of a gene: spacy_bioel/assets/species_assignment.json.

On the training documents of corpora that the project has fetched, with the genes of the package,
the organisms and cell lines that its detector finds, and mention statistics of other documents.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
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
from spacy_bioel.entities import Candidates
from spacy_bioel.entities.genes import genes_by_organism
from spacy_bioel.entities.species import SPECIES_FEATURES, organism_table
from spacy_bioel.evaluation.fit import Development, fit_fusion, pool
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.types import GENE, ORGANISM, AnnotatedText

ASSETS = Path("spacy_bioel") / "assets"
_MENTIONS = 400  # of a fifth of a corpus, human and others
_HUMAN, _FEWEST = 0.7, 15
_L2 = 0.0005


def fit(
    corpora: list[str],
    beside: Annotated[
        list[str] | None,
        typer.Option(help="Corpora whose development documents are left out, too."),
    ] = None,
    output: Annotated[Path, typer.Option()] = ASSETS / "species_assignment.json",
) -> None:
    """Fit on the training documents of these corpora; leave one out to measure on it."""
    nlp = spacy_bioel.load()
    left_out = {beginning(t) for c in (*corpora, *(beside or ())) for t in _read(c, "dev")}
    texts: dict[str, list[AnnotatedText]] = {}
    for corpus in corpora:
        texts[corpus] = [t for t in _read(corpus, "train") if beginning(t) not in left_out]
        left_out |= set(map(beginning, texts[corpus]))
    every = [text for of_corpus in texts.values() for text in of_corpus]
    linker: Any = nlp.get_pipe("bioel_linker")
    starter = linker.alias_table.counts
    parts = []
    for fifth in range(FIFTHS):
        # What a string was where it stands, they know nothing of.
        linker.alias_table = AliasTable(_without_genes(starter))
        others = (_gold(nlp, text) for text in every if fifth_of(text.id) != fifth)
        linker.count_mentions(Example(doc, doc) for doc in others)
        for of_corpus in texts.values():
            own = [text for text in of_corpus if fifth_of(text.id) == fifth]
            if own:
                parts.append(_sample(_development(nlp, linker, own)))
    fitted = fit_fusion(pool(parts), n_hidden=0, l2=_L2)
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
    """The organisms of gold genes; what else a document has is what the detector finds."""
    docs = []
    for doc, text in zip(
        nlp.pipe((t.text for t in texts), disable=[linker.name]), texts, strict=True
    ):
        found = [span for span in doc.spans["bioel"] if span.label_ != GENE]
        with_gold = _gold(nlp, text)
        gold = {(s.start, s.end): s.kb_id for s in with_gold.spans[GOLD_KEY]}
        genes = [Span(doc, *place, GENE, kb_id=id) for place, id in gold.items()]
        doc.spans["bioel"] = [*found, *genes]
        docs.append(doc)
    ranking = linker.ranking(docs)
    generator, asked = ranking.generator, ranking.asked
    candidates = Candidates(ranking.candidates, linker.cfg["nil_threshold"], generator.rank)
    genes = genes_by_organism(asked, candidates, generator)
    table = organism_table(asked, candidates, genes, generator.kb)
    rows: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(table.mention.tolist()):
        rows[number].append(row)
    right = dict(_right(linker.kb, ranking.mentions, table.organisms, rows))
    return Development(
        table.features,
        [np.array(rows[number]) for number in right],
        list(right.values()),
        [asked.strings[number] for number in right],
        [asked.owners[number] for number in right],
    )


def _right(
    kb: Any, mentions: Any, organisms: Sequence[str], rows: dict[int, list[int]]
) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Which of the organisms of each gene is the gold one; of a gene that the knowledge base lacks,
    those whose genes it lacks."""
    known = {name for name in kb.type_names if name.startswith(ORGANISM)}
    for number, span in enumerate(mentions.spans):
        if number not in rows or not span.kb_id_ or "|" in span.kb_id_:
            continue
        found = kb.find(span.kb_id_)
        wanted = {t for t in kb.types_of(found) if t in known} if found >= 0 else set()
        own = [organisms[row] for row in rows[number]]
        right = np.array([o in wanted if wanted else o not in known for o in own])
        if right.any() or not wanted:
            yield number, right


def _sample(development: Development) -> Development:
    """A part of a fifth, in which genes of man are no more than their share: in some corpora nearly
    all are."""
    order = np.random.default_rng(0).permutation(len(development)).tolist()
    is_human = [
        bool((development.features[rows, 0].astype(bool) & right).any())
        for rows, right in zip(development.rows, development.right, strict=True)
    ]
    others = [i for i in order if not is_human[i]][:_MENTIONS]
    most = int(max(len(others), _FEWEST) * _HUMAN / (1 - _HUMAN))
    return development.take([*others, *[i for i in order if is_human[i]][: min(most, _MENTIONS)]])


if __name__ == "__main__":
    typer.run(fit)

"""Fit the weights of genes: species_assignment.json, organism_context.json.gz and homonyms.json.

The weights for the organism of a gene, for words beside genes of an organism, and for genes of one
organism that share a name, are fitted on documents of corpora that the project has fetched, with
the bundled genes, the organisms and cell lines that the starter finds, and an alias table from
other documents. Few documents of corpora have genes of several organisms, so paragraphs that were
written for this project, training/assets/mixed_organisms.jsonl, are added.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import srsly
import typer
from documents import FIFTHS, fifth_of
from mixtures import beginning
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from spacy.tokens import Doc, Span
from spacy.training import Example
from specs import find_split

import spacy_bioel
from spacy_bioel.batch import Batch
from spacy_bioel.corpus import read_texts
from spacy_bioel.doc import add_gold, text_of
from spacy_bioel.entities.genes import genes_and_organisms, long_form_of, mention_spellings
from spacy_bioel.entities.homonyms import (
    HOMONYM_FEATURES,
    GeneMention,
    HomonymResolver,
    WordsOfDocument,
    gene_features,
)
from spacy_bioel.entities.organism_genes import organism_of_gene
from spacy_bioel.entities.organisms import (
    LETTERS,
    OTHER,
    WordWeights,
    organism_names,
    organism_words,
)
from spacy_bioel.entities.species import (
    ORGANISM_PREFIX,
    SPECIES_FEATURES,
    OrganismTable,
    SpeciesCandidates,
    score_species,
)
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.linking.link import rank_candidates
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.plugins.evaluation.fit import Development, fit_fusion, merge_development
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.text.sentences import sentence_borders
from spacy_bioel.types import GENE, HUMAN, ORGANISM, AnnotatedText

ASSETS = Path("spacy_bioel") / "assets"
MIXED = Path("training") / "assets" / "mixed_organisms.jsonl"
_SENTENCE_SHARE = 3  # of every third document, the sentences count as texts as well
_ORGANISMS = {"n_hidden": 24, "l2": 0.002}
_WORDS = {"C": 1.0, "max_iter": 300}
_MIN_DOCUMENTS, _MIN_EXAMPLES = 4, 30  # of a word; of an organism that is not one of the others
_N_NETWORKS = 4  # for organisms; a single one differs by 2 % of genes from seed to seed
_HOMONYMS = {"n_hidden": 4, "l2": 0.002}


def fit(
    corpora: list[str],
    output: Annotated[Path, typer.Option(help="A folder.")] = ASSETS,
) -> None:
    """Fit on the documents of these corpora, and on the paragraphs."""
    output.mkdir(parents=True, exist_ok=True)
    nlp = spacy_bioel.load()
    texts = {
        beginning(text): text
        for corpus in corpora
        for split in ("train", "dev")
        for text in read_texts(find_split(corpus, split), prefix="")
    }
    paragraphs = list(read_texts(MIXED, prefix=""))
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.cfg["mentions"] = "spans"
    starter_counts = linker.alias_table.counts
    parts, held_out = list[Development](), list[_Ranked]()
    for fifth in range(FIFTHS):
        # The alias table and the words must not contain the gold genes of the measured fifth.
        linker.alias_table = AliasTable(_without_genes(starter_counts))
        others = [text for text in texts.values() if fifth_of(text.id) != fifth]
        linker.count_mentions(Example(doc, doc) for doc in (_gold(nlp, text) for text in others))
        others += [text for text in paragraphs if fifth_of(text.id) != fifth]
        words = _fit_words(linker.kb, others)
        own = [text for text in texts.values() if fifth_of(text.id) == fifth]
        held_out.append(_ranked(nlp, linker, own, words))
        of_fifth = [text for text in paragraphs if fifth_of(text.id) == fifth]
        sentences = _telling_sentences(linker.kb, [*own[::_SENTENCE_SHARE], *of_fifth])
        ranked = [_ranked(nlp, linker, texts, words) for texts in (of_fifth, sentences)]
        parts += [_organisms(linker.kb, one) for one in (held_out[-1], *ranked)]
    evidence = merge_development([*parts, *map(_of_human_genes, parts)])
    organisms = _average(
        [fit_fusion(evidence, **_ORGANISMS, seed=seed) for seed in range(_N_NETWORKS)]
    )
    homonyms = [_homonyms(linker.kb, ranked, organisms) for ranked in held_out]
    genes = fit_fusion(merge_development(homonyms), **_HOMONYMS)
    all_words = _fit_words(linker.kb, [*texts.values(), *paragraphs])
    table = {"": list(all_words.organisms)}
    rounded = np.round(all_words.weights.astype(float), 2).tolist()
    table |= dict(zip(all_words.row_of, rounded, strict=True))
    srsly.write_gzip_json(output / "organism_context.json.gz", table)
    for name, fitted, features in (
        ("species_assignment.json", organisms, SPECIES_FEATURES),
        ("homonyms.json", genes, HOMONYM_FEATURES),
    ):
        weights = json.dumps(fitted.to_json(features))
        (output / name).write_text(weights + "\n", encoding="utf8")


def _fit_words(kb: KnowledgeBase, texts: Sequence[AnnotatedText]) -> WordWeights:
    """Fit word weights on documents and sentences whose genes have known organisms."""
    n_documents, strings, organisms, shares = Counter[str](), [], [], list[float]()
    for text in texts:
        n_documents.update({*LETTERS.findall(text.text.lower())})
        for part in (text, *_sentences(text)):
            genes = [m.ids[0] for m in part.mentions if m.label == GENE and m.ids]
            found = Counter(_organism_of(kb, id) for id in genes)
            strings += [part.text] * len(found)
            organisms += found
            shares += [n / found.total() for n in found.values()]
    known = {o for o, n in Counter(organisms).items() if o and n >= _MIN_EXAMPLES}
    organisms = [organism if organism in known else OTHER for organism in organisms]
    words = sorted(word for word, n in n_documents.items() if n >= _MIN_DOCUMENTS)
    row_of = {word: row for row, word in enumerate(words)}
    found_in = ({*LETTERS.findall(string.lower())} & row_of.keys() for string in strings)
    rows = [[row_of[word] for word in found] for found in found_in]
    values = [1 / np.sqrt(len(of_string) + 1) for of_string in rows for _ in of_string]
    indptr, columns = np.cumsum([0, *map(len, rows)]), list(chain.from_iterable(rows))
    matrix = csr_matrix((values, columns, indptr), (len(rows), len(words)))
    model = LogisticRegression(**_WORDS).fit(matrix, organisms, sample_weight=shares)
    return WordWeights(list(model.classes_), row_of, model.coef_.T.astype(np.float32))


def _organism_of(kb: KnowledgeBase, id: str) -> str:
    """Return the organism of a gene, "" for one that the knowledge base lacks; the paragraphs have
    organisms instead of genes."""
    return id if id.startswith(ORGANISM) else organism_of_gene(kb, id)


def _average(networks: Sequence[Fusion]) -> Fusion:
    """Return one network whose scores are the mean of those of networks fitted on the same data."""
    n, first = len(networks), networks[0]
    return Fusion(
        first.mean,
        first.scale,
        np.concatenate([network.hidden for network in networks], axis=1),
        np.concatenate([network.hidden_bias for network in networks]),
        np.concatenate([network.output / n for network in networks]),
        np.mean([network.direct for network in networks], axis=0),
        sum(network.bias for network in networks) / n,
    )


def _sentences(text: AnnotatedText) -> Iterator[AnnotatedText]:
    """Yield the sentences with genes as texts: people also link single sentences."""
    for start, end in pairwise([0, *sentence_borders(text.text), len(text.text)]):
        genes = tuple(
            replace(m, start=m.start - start, end=m.end - start)
            for m in text.mentions
            if m.label == GENE and start <= m.start and m.end <= end
        )
        if genes:
            yield replace(text, text=text.text[start:end], mentions=genes)


def _telling_sentences(kb: KnowledgeBase, texts: Iterable[AnnotatedText]) -> list[AnnotatedText]:
    return [s for s in chain.from_iterable(map(_sentences, texts)) if _tells_organisms(kb, s)]


def _tells_organisms(kb: KnowledgeBase, text: AnnotatedText) -> bool:
    """Whether a sentence alone shows the organism of each gene: the sentence names it, or the gene
    has a prefix ("hTERT") or is written as its symbol ("Trp53"). If a sentence names no organism,
    its genes count as human."""
    named = {id for *_, id in (*organism_words(text.text), *organism_names(text.text))} or {HUMAN}
    return all(
        _organism_of(kb, m.ids[0]) in named
        or ORGANISM_PREFIX.match(name := text.text[m.start : m.end])
        or ((row := kb.find(m.ids[0])) >= 0 and kb.preferred_name(row) == name)
        for m in text.mentions
        if m.ids
    )


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


class _Ranked(NamedTuple):
    """Documents with gold genes, the candidates of these by organism, and the evidence for each."""

    batch: Batch
    genes_of: dict[int, SpeciesCandidates]
    table: OrganismTable


def _ranked(nlp: Any, linker: Any, texts: Sequence[AnnotatedText], words: WordWeights) -> _Ranked:
    """Rank the candidates of gold genes; the detector finds the other mentions."""
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
    batch = rank_candidates(linker.find(docs), linker.generator)
    batch = replace(batch, nil_threshold=linker.cfg["nil_threshold"])
    return _Ranked(batch, *genes_and_organisms(batch, linker.generator, words=words))


def _organisms(kb: Any, ranked: _Ranked) -> Development:
    """Return the candidate organisms of gold genes."""
    batch, _, table = ranked
    rows: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(table.mention.tolist()):
        rows[number].append(row)
    right = dict(_right(kb, batch, table.organisms, rows))
    return Development(
        table.features,
        [np.array(rows[number]) for number in right],
        list(right.values()),
        [batch.strings[number] for number in right],
        [batch.owners[number] for number in right],
    )


def _homonyms(kb: Any, ranked: _Ranked, weights: Fusion) -> Development:
    """Return the candidates of gold genes from the right organism.

    If the knowledge base lacks a gene, its candidates are those of the most probable organism, and
    none of them is right.

    weights (Fusion): Weights for organisms.
    """
    resolver, (batch, genes_of, table) = HomonymResolver(kb), ranked
    spellings_of = mention_spellings(batch, list(genes_of))
    features, right, numbers = list[Any](), list[Any](), list[int]()
    for number, organisms in score_species(table, weights):
        span, owner = batch.spans[number], batch.owners[number]
        ids = span.kb_id_.split("|")
        if number >= batch.n_wholes or not span.kb_id_:
            continue
        if (concept := kb.find(ids[0])) >= 0:
            likely = [t for t in kb.types_of(concept) if t.startswith(ORGANISM)]
        else:
            likely = [o for o, _ in sorted(organisms, key=itemgetter(1), reverse=True)]
        found = genes_of[number].genes
        genes = next((found[organism] for organism in likely if found.get(organism)), ())
        names = resolver.names_of(c.id for c in genes)
        if not genes or genes[0].id not in names:
            continue
        document = WordsOfDocument(text_of(batch.docs[owner]))
        long_form = long_form_of(batch.docs[owner], span)
        mention = GeneMention(span.text, spellings_of[number], long_form, document)
        features += [gene_features(c, names, mention) for c in genes]
        right.append(np.array([c.id in ids for c in genes]))
        numbers.append(number)
    first = np.cumsum([0, *map(len, right)])
    return Development(
        np.array(features, np.float32),
        list(map(np.arange, first, first[1:])),
        right,
        [batch.strings[number] for number in numbers],
        [batch.owners[number] for number in numbers],
    )


def _of_human_genes(development: Development) -> Development:
    """Return the evidence that a knowledge base with human genes alone would give."""
    features = development.features.copy()
    columns = [SPECIES_FEATURES.index(name) for name in ("named", "homolog", "spelled", "covered")]
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

"""Rules for genes: drop everyday words, assign the species, and resolve homonyms."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from itertools import chain

from spacy.tokens import Doc, Span

from spacy_bioel.batch import Batch, Query
from spacy_bioel.dictionary.unambiguous import annotation_counts, common_words, why_not_name
from spacy_bioel.doc import long_forms, text_of, texts_of
from spacy_bioel.entities import EntityRules, LinkerKnowledge, organism_genes
from spacy_bioel.entities.homonyms import (
    GeneEvidence,
    GeneMention,
    HomonymResolver,
    WordsOfDocument,
    gene_features,
    other_name,
    resolve_homonyms,
)
from spacy_bioel.entities.organisms import NamedPlace, WordWeights, organism_places, word_weights
from spacy_bioel.entities.patterns import find_words
from spacy_bioel.entities.species import (
    ORGANISM_PREFIX,
    OrganismTable,
    SpeciesCandidates,
    default_weights,
    organism_table,
    score_species,
)
from spacy_bioel.entities.usual_names import add_proteins, add_usual_names, usual_queries
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.types import GENE, HUMAN, ORGANISM, Candidate, Link, ScoredSpan, best_first

# A string is a gene, not an everyday word, if at least this share of its occurrences is annotated
# as a gene: "Pten" reaches this share, "met" does not.
_MIN_ANNOTATION_RATE = 0.9
_EVERYDAY_WORD = "an everyday word, in a text that does not mention genes"
_MIN_ORGANISM_PROBABILITY = 0.01  # homonyms in less probable organisms are not resolved


class Genes(EntityRules):
    """Link gene mentions to genes of the organism that the document refers to.

    Everyday words that are gene names are dropped in texts that do not mention genes. The document
    decides between organisms whose genes share a name (see `entities.species`), and between genes
    of one organism that share a name (see `HomonymResolver`).

    usual_names (bool): Give short gene names their usual meanings (see `entities.usual_names`).
    other_organisms (bool): Find names that are genes only in texts that name flies, worms, yeasts
        or the like, and link genes of the organisms in `entities.organism_genes`.
    """

    outside_ids = True

    def __init__(self, *, usual_names: bool = True, other_organisms: bool = True) -> None:
        self.usual_names, self.other_organisms = usual_names, other_organisms

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> None:
        if self.knowledge is None or GENE not in self.knowledge.vocabularies:
            return
        kb = self.knowledge.vocabularies[GENE].kb
        for doc, of_doc in zip(docs, spans, strict=True):
            of_doc.drop(self._everyday_words(doc, of_doc.spans), _EVERYDAY_WORD)
            if self.usual_names and HUMAN in kb.type_names:
                add_usual_names(doc, of_doc)
            add_proteins(doc, of_doc, kb)
            if self.other_organisms:
                organism_genes.add_organism_genes(doc, of_doc, kb)

    def _everyday_words(self, doc: Doc, spans: list[ScoredSpan]) -> list[ScoredSpan]:
        """Return all genes if each is an everyday word and the text does not mention genetics."""
        genes = [s for s in spans if s[2] == GENE and s[3] < 1]  # 1 means set by the user
        are_words = genes and all(map(self._is_everyday_word, texts_of(doc, genes)))
        return genes if are_words and not find_words("genetics", text_of(doc)) else []

    def _is_everyday_word(self, text: str) -> bool:
        """Whether a string is probably an everyday word rather than the gene with this name."""
        if not text.isalpha() or not (text.islower() or text.istitle() or text.isupper()):
            return False
        assert self.knowledge is not None
        kb = self.knowledge.vocabularies[GENE].kb
        row = int(kb.lookup_names([normalize_name(text)])[0])
        if row < 0 or kb.is_added[row]:
            return False
        n_annotated, n = annotation_counts(text.lower(), GENE)
        if text.isupper():  # "AIR" is never annotated as a gene in the training texts
            return n > 1 and not n_annotated and text.lower() in common_words()
        if n and n_annotated >= _MIN_ANNOTATION_RATE * n:
            return False
        return bool(why_not_name(text, kb.name(row), in_capitals=False, preferred=False))

    def prepare(self, batch: Batch) -> Sequence[Query]:
        assert self.knowledge is not None
        if self.usual_names:
            batch = replace(batch, queries=usual_queries(batch, self.knowledge))
        return queries_of_genes(batch, self.knowledge)

    def rescore(self, batch: Batch) -> list[tuple[Candidate, ...]]:
        """Multiply each gene's score by the probability of its organism."""
        assert self.knowledge is not None
        genes_of, table = genes_and_organisms(batch, self.knowledge, orthologs=self.other_organisms)
        groups = list[tuple[int, float, Sequence[Candidate], bool]]()
        features = list[GeneEvidence]()
        words = cache(lambda owner: WordsOfDocument(text_of(batch.docs[owner])))
        species = list(score_species(table, default_weights()))
        spellings_of = mention_spellings(batch, [index for index, _ in species])
        kb_of, ids_of = self.knowledge.kb_of, defaultdict[KnowledgeBase, list[str]](list)
        for index, organisms in species:
            likely = [organism for organism, p in organisms if p > _MIN_ORGANISM_PROBABILITY]
            found = chain.from_iterable(genes_of[index].genes.get(o, ()) for o in likely)
            ids_of[kb_of(batch.spans[index].label_)] += [c.id for c in found]
        names_of = {kb: self._resolver_of(kb).names_of(ids) for kb, ids in ids_of.items()}
        for index, organisms in species:
            span, owner = batch.spans[index], batch.owners[index]
            names = names_of[kb_of(span.label_)]
            mention = GeneMention(
                span.text, spellings_of[index], long_form_of(batch.docs[owner], span), words(owner)
            )
            for organism, p in organisms:
                genes: Sequence[Candidate] = genes_of[index].genes.get(organism, ())
                is_known = bool(genes) and genes[0].id in names
                is_compared = is_known and p > _MIN_ORGANISM_PROBABILITY
                groups.append((index, p, genes, is_compared))
                features += [gene_features(c, names, mention) for c in genes if is_compared]
        resolved = iter(resolve_homonyms([genes for *_, genes, yes in groups if yes], features))
        rescored = {index: list(genes_of[index].others) for index, *_ in groups}
        for index, p, genes, is_compared in groups:
            compared = next(resolved) if is_compared else genes
            rescored[index] += [replace(c, score=round(c.score * p, 4)) for c in compared]
        results = list(batch.candidates)
        for index, ranked in zip(rescored, best_first(rescored.values()), strict=True):
            results[index] = ranked
        return results

    @cached_property
    def _resolver_of(self) -> Callable[[KnowledgeBase], HomonymResolver]:
        return cache(HomonymResolver)

    def explain(self, batch: Batch) -> list[str]:
        assert self.knowledge is not None
        texts = [text_of(doc) for doc in batch.docs]
        organisms = defaultdict[int, dict[str, list[str]]](dict)
        for owner, places in organism_places(batch, range(len(texts))).items():
            for start, end, id in places:
                organisms[owner].setdefault(id, []).append(texts[owner][start:end])
        sentences = []
        for span, link, owner in zip(batch.spans, batch.links, batch.owners, strict=True):
            kb = self.knowledge.kb_of(span.label_)
            sentence = self._species_sentence(link, organisms[owner], kb)
            if sentence and link.ids and organism_genes.organism_of_gene(kb, link.ids[0]):
                names = self._resolver_of(kb).names_of([link.ids[0]])[link.ids[0]]
                other = other_name(names, span.text, WordsOfDocument(texts[owner]))
                if other and other not in span.text:
                    sentence += f' The document also calls it "{other}".'
            sentences.append(sentence)
        return sentences

    def _species_sentence(
        self, link: Link, organisms: dict[str, list[str]], kb: KnowledgeBase
    ) -> str:
        """Explain how the organisms that a document names affected a link's best candidate."""
        id = link.candidates[0].id if link.candidates else ""
        organism = organism_genes.organism_of_gene(kb, id)
        if id.startswith("NCBIGene:") and kb.find(id) < 0:
            organism = organism_genes.organism_of_ortholog(id)
        if not organism:
            return ""
        if not organisms:
            return "The document names no organism."
        counted = [
            " or ".join([*dict.fromkeys(words)][:3]) + f" ({len(words)} times)" * (len(words) > 1)
            for words in organisms.values()
        ]
        sentence = f"The document names {', '.join(counted)}; "
        type_name = link.label.lower() or "concept"
        if organism in organisms and link.ids:
            return f'{sentence}"{organisms[organism][0]}" tells the organism of this {type_name}.'
        missing = [w[0] for id, w in organisms.items() if id not in {organism, *kb.type_names}]
        if missing and not link.ids:
            of_these = f"{type_name} of {', '.join(missing)}"
            return f"{sentence}the knowledge base has no {of_these} with this name."
        which = "this organism" if {*organisms} == {organism} else "none of these"
        return f"{sentence}this {type_name} belongs to {which}."


def create_genes_v1(*, usual_names: bool = True, other_organisms: bool = True) -> Genes:
    """Registered as `spacy-bioel.Genes.v1`; takes the same arguments as `Genes`."""
    # This is a function because a class's argument types would not be checked.
    return Genes(usual_names=usual_names, other_organisms=other_organisms)


# Words before and after a gene name: "human TERT gene", "p-AKT".
_BEFORE_GENE = re.compile(
    r"(?:(?:human|mouse|murine|rat|bovine|yeast|zebrafish|drosophila|wild[- ]type|mutant|mutated|"
    r"recombinant|phosphorylated|phospho|phosphor|endogenous|soluble|anti|p|pro)[- ])+",
    re.IGNORECASE,
)
_AFTER_GENE = re.compile(
    r"(?:[- ](?:genes?|proteins?|mrnas?|transcripts?|products?|polypeptides?|molecules?|null))"
    r"{1,9}$|(?<=^(?-i:[A-Z][a-z][a-z])\d)p$|(?<=^(?-i:[A-Z][a-z][a-z])\d\d)p$"  # yeast: Gdt1p
    r"|[Δ∆]$|(?<=^(?-i:[a-z]{3})\d)-\d{1,3}$|(?<=^(?-i:[a-z]{3})\d\d)-\d{1,3}$",  # cln3Δ, cdc28-13
    re.IGNORECASE,
)
_MAX_JOINED_WORDS = 4


def other_spellings(name: str) -> list[str]:
    """Return normalised spellings of a gene name, most similar first: stripped of surrounding
    words such as "human" and "gene", and with words joined ("il2" for "IL-2").
    """
    names = [name]
    for find in (_AFTER_GENE.search, _BEFORE_GENE.match, ORGANISM_PREFIX.match):
        match = find(names[-1])
        if match and len(match.group()) < len(names[-1]):
            names.append(names[-1][: match.start()] + names[-1][match.end() :])
    spellings: list[str] = []
    for normalized in normalize_names(names):
        words = normalized.split()
        spellings.append(normalized)
        if 1 < len(words) <= _MAX_JOINED_WORDS:
            spellings.append("".join(words))
            for i in range(1, len(words)):
                joined = words[i - 1] + words[i]
                spellings.append(" ".join([*words[: i - 1], joined, *words[i + 1 :]]))
    return [spelling for spelling in dict.fromkeys(spellings) if len(spelling) > 1]


def long_form_of(doc: Doc, span: Span) -> str:
    """Return a span's long form, or its own text if that is already a long form, else ""."""
    forms, text = long_forms(doc), span.text
    return forms.at(span.start_char, text) or text * (text in forms.values())


def queries_of_genes(batch: Batch, knowledge: LinkerKnowledge) -> list[Query]:
    """Extend the queries of gene mentions with the strings that `genes_by_organism` will look up:
    other spellings of each name, and the symbols of genes with these names."""
    queries = list(batch.queries)
    for kb, indices in _genes_by_kb(batch, knowledge).items():
        spellings_of = mention_spellings(batch, indices)
        spellings = list(dict.fromkeys(chain.from_iterable(spellings_of.values())))
        rows = kb.lookup_names(spellings)
        indptr, concepts, _ = kb.concepts_of_names(rows)
        symbols = normalize_names(kb.names.take(kb.preferred_rows(concepts)))
        strings_of: dict[str, tuple[str, ...]] = {}
        for i, spelling in enumerate(spellings):
            if rows[i] >= 0:
                strings_of[spelling] = (spelling, *symbols[indptr[i] : indptr[i + 1]])
        for index, of_mention in spellings_of.items():
            others = dict.fromkeys(chain.from_iterable(strings_of.get(s, ()) for s in of_mention))
            queries[index] = replace(queries[index], others=tuple(others), parts_agree=True)
    return queries


def genes_and_organisms(
    batch: Batch,
    knowledge: LinkerKnowledge,
    *,
    orthologs: bool = True,
    words: WordWeights | None = None,
) -> tuple[dict[int, SpeciesCandidates], OrganismTable]:
    """Group gene mentions' candidates by organism, and collect the evidence for each organism.

    orthologs (bool): Add the orthologs in `entities.organism_genes`.
    words (WordWeights | None): Weights of the words in a document; None: the fitted weights.
    """
    genes_of = genes_by_organism(batch, knowledge)
    indices = chain.from_iterable(_genes_by_kb(batch, knowledge).values())
    places = organism_places(batch, {batch.owners[index] for index in indices})
    if orthologs:
        genes_of |= _orthologs_in(batch, genes_of, places, knowledge)
        genes_of = dict(sorted(genes_of.items()))
    words = words or word_weights()
    return genes_of, organism_table(batch, genes_of, places, knowledge.kb, words)


def genes_by_organism(batch: Batch, knowledge: LinkerKnowledge) -> dict[int, SpeciesCandidates]:
    """Group candidates by organism for mentions whose knowledge base has organism types."""
    genes_of: dict[int, SpeciesCandidates] = {}
    for kb, indices in _genes_by_kb(batch, knowledge).items():
        genes_of |= _species_candidates_in(kb, batch, indices, knowledge)
    return dict(sorted(genes_of.items()))


def _orthologs_in(
    batch: Batch,
    genes_of: dict[int, SpeciesCandidates],
    places: Mapping[int, list[NamedPlace]],
    knowledge: LinkerKnowledge,
) -> dict[int, SpeciesCandidates]:
    """Extend each mention's candidates with orthologs from the organisms in its document."""
    result, organisms = {}, dict[int, frozenset[str]]()
    for owner, of_doc in places.items():
        if ids := organism_genes.ORTHOLOG_ORGANISMS.intersection(id for *_, id in of_doc):
            organisms[owner] = ids
    for kb, indices in _genes_by_kb(batch, knowledge).items():
        in_documents = [i for i in indices if batch.owners[i] in organisms]
        for index, spellings in mention_spellings(batch, in_documents).items():
            others = list(batch.candidates[index])
            found = genes_of.get(index) or SpeciesCandidates(always=[HUMAN], others=others)
            tables = organism_genes.orthologs_of(kb, organisms[batch.owners[index]])
            if (found := organism_genes.with_orthologs(found, tables, spellings, kb)).genes:
                result[index] = found
    return result


def _genes_by_kb(batch: Batch, knowledge: LinkerKnowledge) -> dict[KnowledgeBase, list[int]]:
    """Map each knowledge base with organism types to the indices of its mentions."""
    linked = knowledge.linked_kbs(set(batch.labels)).items()
    kbs = {label: kb for label, kb in linked if any(t.startswith(ORGANISM) for t in kb.type_names)}
    indices: dict[KnowledgeBase, list[int]] = {}
    for index, label in enumerate(batch.labels):
        if label in kbs:
            indices.setdefault(kbs[label], []).append(index)
    return indices


# Mentions with the same spellings, label and candidates share their species candidates.
_MentionKey = tuple[tuple[str, ...], str, int]


def _species_candidates_in(
    kb: KnowledgeBase, batch: Batch, indices: Sequence[int], knowledge: LinkerKnowledge
) -> dict[int, SpeciesCandidates]:
    """Group candidates by organism for mentions that may be genes in a knowledge base."""
    spellings_of = mention_spellings(batch, indices)
    spellings = list(dict.fromkeys(chain.from_iterable(spellings_of.values())))
    rows = kb.lookup_names(spellings).tolist()
    known = {spelling for spelling, row in zip(spellings, rows, strict=True) if row >= 0}
    wanted = {
        (spelling, batch.labels[index]): None
        for index, of_mention in spellings_of.items()
        for spelling in of_mention
        if spelling in known
    }
    ranked = knowledge.rank(list(wanted))
    of_mentions = batch.candidates
    organism_of = organism_genes.organisms_of(
        kb, [*(of_mentions[i] for i in indices), *ranked.values()]
    )
    always = [HUMAN] if HUMAN in kb.type_names else []
    made: dict[_MentionKey, SpeciesCandidates] = {}
    genes_of: dict[int, SpeciesCandidates] = {}
    for index, of_mention in spellings_of.items():
        label, of_string = batch.labels[index], of_mentions[index]
        key = of_mention, label, id(of_string)
        if key not in made:
            is_whole = bool(of_mention) and of_mention[0] in known
            species_candidates = SpeciesCandidates(is_whole=is_whole, always=always)
            species_candidates.others = [c for c in of_string if c.id not in organism_of]
            species_candidates.add(of_string, organism_of)
            if species_candidates.genes or not species_candidates.others:
                for spelling in of_mention:
                    if spelling in known:
                        species_candidates.add(ranked[spelling, label], organism_of)
            made[key] = species_candidates
        if made[key].genes:
            genes_of[index] = made[key]
    with_named = {key: genes for key, genes in made.items() if genes.named}
    _add_genes_by_symbol(kb, knowledge, with_named)
    return genes_of


def _add_genes_by_symbol(
    kb: KnowledgeBase,
    knowledge: LinkerKnowledge,
    candidates_of: dict[_MentionKey, SpeciesCandidates],
) -> None:
    """Add other organisms' genes that share a symbol with a gene found by name."""
    best_ids = {
        key: [found.genes[organism][0].id for organism in sorted(found.named)]
        for key, found in candidates_of.items()
    }
    symbol_of = organism_genes.symbols_of(kb, chain.from_iterable(best_ids.values()))
    wanted = {(symbol_of[id], key[1]): None for key, ids in best_ids.items() for id in ids}
    ranked = knowledge.rank(list(wanted))
    organism_of = organism_genes.organisms_of(kb, ranked.values())
    ranked_symbol_of = organism_genes.symbols_of(kb, organism_of)
    for key, ids in best_ids.items():
        # Add the most frequent symbol first, because `add` never replaces an organism's gene.
        for symbol, _ in Counter(symbol_of[id] for id in ids).most_common():
            same = [c for c in ranked[symbol, key[1]] if ranked_symbol_of.get(c.id) == symbol]
            candidates_of[key].add(same, organism_of, by_symbol=True)


def mention_spellings(batch: Batch, indices: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return the normalised spellings to look up for each of these mentions, best first."""
    shorts: dict[tuple[int, str], dict[str, None]] = defaultdict(dict)
    for owner in {batch.owners[index] for index in indices}:
        for short, long in long_forms(batch.docs[owner]).pairs():
            shorts[owner, long.lower()][short] = None
    spellings = {}
    for index in indices:
        texts: Iterable[str] = ()
        if index < batch.n_wholes:
            text = batch.spans[index].text
            texts = text, *shorts.get((batch.owners[index], text.lower()), ())
        spellings[index] = _spellings_of(batch.queries[index].whole, *texts)
    return spellings


@lru_cache(maxsize=1 << 14)
def _spellings_of(query: str, *texts: str) -> tuple[str, ...]:
    spellings = [query, *normalize_names(texts)]
    for text in (*texts, query):
        spellings += other_spellings(text)
    return tuple(dict.fromkeys(filter(None, spellings)))

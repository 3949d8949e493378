"""Genes: which words are not genes, whose gene a name is, and which of several is meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property

from spacy.tokens import Doc, Span

from spacy_bioel.dictionary.unambiguous import common_words, is_other, places_marked
from spacy_bioel.doc import text_of, texts_of
from spacy_bioel.entities import Candidates, EntityRules, Mentions, Query
from spacy_bioel.entities.homonyms import Namesakes, WordsOfDocument
from spacy_bioel.entities.species import (
    is_means,
    is_microbe,
    organism_table,
    organism_words,
    score_species,
)
from spacy_bioel.entities.species_candidates import (
    has_organisms,
    organism_in,
    strings_of_genes,
)
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.trace import Trace
from spacy_bioel.types import GENE, ORGANISM, Candidate, Link, ScoredSpan, best_first

# Without any of them, and without other genes, a word is a word: "The cat had the flu."
_OF_GENES = re.compile(
    r"\b(?:gen(?:e|etic|om)|express|mrna|transcri|mutat|mutant|variant|protein|receptor|kinase|allele"
    r"|polymorphi|knock|loc(?:i|us)\b|enzym|signal|pathway|antibod|encod|promoter|deficien|inhibit)",
    re.IGNORECASE,
)
_GENE_ALONE = 0.9  # marked so often, a string is no word: "Pten", but not "met"
_BUT_A_WORD = "a word, in a text that says nothing of genes"


class Genes(EntityRules):
    """Link genes to those of the organism that the document means.

    In texts that say nothing of genes, words that are names of genes are dropped. Genes of several
    organisms share names: the organism is chosen by the document, see `entities.species`. Genes of
    one organism that share a name are told apart by their other names, see `entities.homonyms`.
    """

    def find(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        traces: Sequence[Trace] | None,
    ) -> list[list[ScoredSpan]]:
        if self.knowledge is None or GENE not in self.knowledge.vocabularies:
            return list(spans)
        found = [self._without_words(*pair) for pair in zip(docs, spans, strict=True)]
        for trace, before, after in zip(traces or (), spans, found, strict=False):
            trace.changed(before, after, _BUT_A_WORD)
        return found

    def _without_words(self, doc: Doc, spans: list[ScoredSpan]) -> list[ScoredSpan]:
        """Drop genes that are but words, from the mentions of a text that says nothing of genes."""
        genes = [s for s in spans if s[2] == GENE and s[3] < 1]  # others were forced
        if not genes or not all(map(self._is_but_a_word, texts_of(doc, genes))):
            return spans
        return spans if _OF_GENES.search(text_of(doc)) else [s for s in spans if s not in genes]

    def _is_but_a_word(self, text: str) -> bool:
        """Whether a gene has a name of such letters, in capitals, and the text has a word."""
        if not text.isalpha() or not (text.islower() or text.istitle() or text.isupper()):
            return False
        assert self.knowledge is not None
        kb = self.knowledge.vocabularies[GENE].kb
        row = int(kb.lookup_names([normalize_name(text)])[0])
        if row < 0 or kb.is_added[row]:
            return False
        marked, n = places_marked(text.lower(), GENE)
        if text.isupper():  # "AIR", which no training text has as a gene
            return n > 1 and not marked and text.lower() in common_words()
        if n and marked >= _GENE_ALONE * n:
            return False
        return bool(is_other(text, kb.name(row), in_capitals=False, preferred=False))

    def queries(self, mentions: Mentions) -> Sequence[Query]:
        return strings_of_genes(mentions, self.knowledge) if self.knowledge else mentions.queries

    def wants_all(self, kb: KnowledgeBase) -> bool:
        return has_organisms(kb)

    def rescore(self, mentions: Mentions, candidates: Candidates) -> list[tuple[Candidate, ...]]:
        """Candidates with the probability that the document means their organism; those of concepts
        that are of no organism stay as they are."""
        assert self.knowledge is not None
        found, moved = list(candidates.of_mentions), dict[int, list[Candidate]]()
        table = organism_table(mentions, candidates, self.knowledge)
        words = cache(lambda owner: WordsOfDocument(text_of(mentions.docs[owner])))
        for number, organisms in score_species(table):
            homologs, span = table.genes[number], mentions.spans[number]
            weighed = []
            for organism, probability in organisms:
                genes = homologs.genes.get(organism, ())
                if len(genes) > 1:
                    kb = self.knowledge.kb_of(span.label_)
                    document = words(mentions.owners[number])
                    genes = self._namesakes(kb).tell_apart(genes, span.text, document)
                weighed += [replace(c, score=round(c.score * probability, 4)) for c in genes]
            moved[number] = [*weighed, *homologs.others]
        for number, of_mention in zip(moved, best_first(moved.values()), strict=True):
            found[number] = of_mention
        return found

    @cached_property
    def _made(self) -> dict[KnowledgeBase, Namesakes]:
        return {}

    def _namesakes(self, kb: KnowledgeBase) -> Namesakes:
        return self._made.setdefault(kb, Namesakes(kb))

    def explain(self, mentions: Mentions, links: Sequence[Link]) -> list[str]:
        assert self.knowledge is not None
        texts = [text_of(doc) for doc in mentions.docs]
        named = [
            _named_organisms(
                [
                    (span, link)
                    for span, link, of in zip(mentions.spans, links, mentions.owners, strict=False)
                    if of == owner
                ],
                text,
            )
            for owner, text in enumerate(texts)
        ]
        said = []
        for span, link, owner in zip(mentions.spans, links, mentions.owners, strict=False):
            kb = self.knowledge.kb_of(span.label_)
            sentence = self._of_document(link, named[owner], kb)
            if sentence and link.ids and _organism_of(kb, link.ids[0]):
                words = WordsOfDocument(texts[owner])
                other = self._namesakes(kb).other_name(link.ids[0], span.text, words)
                if other and other not in span.text:
                    sentence += f' The document calls it "{other}", too.'
            said.append(sentence)
        return said

    def _of_document(self, link: Link, organisms: dict[str, list[str]], kb: KnowledgeBase) -> str:
        """Sentence on what the document says of the organism of the best candidate."""
        own = _organism_of(kb, link.candidates[0].id) if link.candidates else ""
        if not own or self.knowledge is None:
            return ""
        if not organisms:
            return "The document names no organism."
        named = (
            f"{of[0]} ({len(of)} times)" if len(of) > 1 else of[0] for of in organisms.values()
        )
        sentence = f"The document names {', '.join(named)}; "
        if own in organisms and link.ids:
            return f'{sentence}it is of the organism of "{organisms[own][0]}".'
        genes, whole = f"{link.label.lower() or 'concept'}s", self.knowledge.kb
        others = {
            id: of[0] for id, of in organisms.items() if id != own and not is_microbe(whole, id)
        }
        if not others and own not in organisms:
            return f"{sentence}{genes} beside microbes are mostly those of people."
        absent = [word for id, word in others.items() if id not in kb.type_names]
        if absent and not link.ids:
            return f"{sentence}{genes} of {', '.join(absent)} are not in this knowledge base."
        return f"{sentence}it is of {'another' if others else 'this'} organism."


def create_genes_v1() -> Genes:
    """Registered as `spacy-bioel.Genes.v1`."""
    return Genes()


def _named_organisms(links: Sequence[tuple[Span, Link]], text: str) -> dict[str, list[str]]:
    """Organisms that a document names, by their ids, with the words that it uses."""
    organisms: dict[str, list[str]] = {}
    ends = set()
    for span, link in links:
        for id in link.ids:
            if id.startswith(ORGANISM) and not is_means(span):
                organisms.setdefault(id, []).append(span.text)
                ends.add(span.end_char)
    for start, end, id in organism_words(text):
        if end not in ends:
            organisms.setdefault(id, []).append(text[start:end])
    return organisms


def _organism_of(kb: KnowledgeBase, id: str) -> str:
    """The organism that a gene is of; "" for other concepts."""
    row = kb.find(id)
    return organism_in(kb.types_of(row)) if row >= 0 else ""

"""Genes: which words are not genes, whose gene a name is, and which of several is meant.

Genes of one organism that share a name are told apart by what else the document calls them. "Sag"
is the symbol of one mouse gene and a synonym of another; "Sag/Rbx2 E3 ligase" is the other, which
is called Rbx2 too. So curators decide, and so did GNAT (Hakenberg et al. 2008,
https://doi.org/10.1093/bioinformatics/btn299). Names of homologs count, which have the same symbol.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import chain, pairwise
from math import exp, log1p

from spacy.tokens import Doc, Span

from spacy_bioel.dictionary.unambiguous import (
    annotation_counts,
    common_words,
    everyday_words,
    why_not_name,
)
from spacy_bioel.doc import long_forms, text_of, texts_of
from spacy_bioel.entities import Candidates, EntityRules, Knowledge, Mentions, Query, Rank
from spacy_bioel.entities.species import (
    PREFIX,
    SpeciesCandidates,
    is_experimental_system,
    is_microbe,
    organism_table,
    organism_words,
    score_species,
)
from spacy_bioel.explanation import Trace
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name, normalize_names
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
    one organism that share a name are told apart by their other names, see `HomonymResolver`.
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
        marked, n = annotation_counts(text.lower(), GENE)
        if text.isupper():  # "AIR", which no training text has as a gene
            return n > 1 and not marked and text.lower() in common_words()
        if n and marked >= _GENE_ALONE * n:
            return False
        return bool(why_not_name(text, kb.name(row), in_capitals=False, preferred=False))

    def queries(self, mentions: Mentions) -> Sequence[Query]:
        return strings_of_genes(mentions, self.knowledge) if self.knowledge else mentions.queries

    def wants_all(self, kb: KnowledgeBase) -> bool:
        return has_organisms(kb)

    def rescore(self, mentions: Mentions, candidates: Candidates) -> list[tuple[Candidate, ...]]:
        """Candidates with the probability that the document means their organism; those of concepts
        that are of no organism stay as they are."""
        assert self.knowledge is not None
        found, moved = list(candidates.of_mentions), dict[int, list[Candidate]]()
        of_mentions = genes_by_organism(mentions, candidates, self.knowledge)
        table = organism_table(mentions, candidates, of_mentions, self.knowledge.kb)
        words = cache(lambda owner: WordsOfDocument(text_of(mentions.docs[owner])))
        for number, organisms in score_species(table):
            homologs, span = of_mentions[number], mentions.spans[number]
            weighed = []
            for organism, probability in organisms:
                genes = homologs.genes.get(organism, ())
                if len(genes) > 1:
                    kb = self.knowledge.kb_of(span.label_)
                    document = words(mentions.owners[number])
                    genes = self._homonyms(kb).resolve(genes, span.text, document)
                weighed += [replace(c, score=round(c.score * probability, 4)) for c in genes]
            moved[number] = [*weighed, *homologs.others]
        for number, of_mention in zip(moved, best_first(moved.values()), strict=True):
            found[number] = of_mention
        return found

    @cached_property
    def _made(self) -> dict[KnowledgeBase, HomonymResolver]:
        return {}

    def _homonyms(self, kb: KnowledgeBase) -> HomonymResolver:
        return self._made.setdefault(kb, HomonymResolver(kb))

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
                other = self._homonyms(kb).other_name(link.ids[0], span.text, words)
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
            if id.startswith(ORGANISM) and not is_experimental_system(span):
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


# What a name may have around it: "human TERT gene", "p-AKT", "hTERT".
_BEFORE = re.compile(
    r"(?:(?:human|mouse|murine|rat|bovine|yeast|zebrafish|drosophila|wild[- ]type|mutant|mutated|"
    r"recombinant|phosphorylated|phospho|phosphor|endogenous|soluble|anti|p|pro)[- ])+",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"(?:[- ](?:genes?|proteins?|mrnas?|transcripts?|products?|polypeptides?|molecules?|null))+$"
    r"|(?<=^(?-i:[A-Z][a-z][a-z])\d)p$|(?<=^(?-i:[A-Z][a-z][a-z])\d\d)p$",  # Gdt1p, of yeast
    re.IGNORECASE,
)
_JOINT = re.compile(r"(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])")
_MOST = 4  # words that are written together


def other_spellings(name: str) -> list[str]:
    """Normalised, the nearest first: without what is around it, together ("IL-2", "IL2"), and
    apart ("p 53")."""
    forms = [name]
    for pattern in (_AFTER, _BEFORE, PREFIX):
        found = pattern.search(forms[-1]) if pattern is _AFTER else pattern.match(forms[-1])
        if found and len(found.group()) < len(forms[-1]):
            forms.append(forms[-1][: found.start()] + forms[-1][found.end() :])
    spelled: dict[str, None] = {}
    for form in normalize_names(forms):
        words = form.split()
        spelled[form] = None
        if 1 < len(words) <= _MOST:
            spelled["".join(words)] = None
            for i in range(1, len(words)):
                spelled[" ".join([*words[: i - 1], words[i - 1] + words[i], *words[i + 1 :]])] = (
                    None
                )
        spelled[_JOINT.sub(" ", form)] = None
    return [form for form in spelled if len(form) > 1]


def has_organisms(kb: KnowledgeBase) -> bool:
    """Whether documents choose among the organisms of the concepts of a knowledge base."""
    return any(name.startswith(ORGANISM) for name in kb.type_names)


def strings_of_genes(mentions: Mentions, knowledge: Knowledge) -> list[Query]:
    """Queries of mentions, with all that `genes_by_organism` will ask for."""
    queries = list(mentions.queries)
    for kb, numbers in _by_kb(mentions, knowledge).items():
        forms_of = _forms(mentions, numbers)
        forms = list(dict.fromkeys(chain.from_iterable(forms_of.values())))
        rows = kb.lookup_names(forms)
        indptr, concepts, _ = kb.concepts_of_names(rows)
        symbols = normalize_names(kb.names.take(kb.preferred_rows(concepts)))
        asked = {
            form: (form, *symbols[start:end])
            for form, row, (start, end) in zip(
                forms, rows.tolist(), pairwise(indptr.tolist()), strict=True
            )
            if row >= 0
        }
        for i, of_mention in forms_of.items():
            others = dict.fromkeys(chain.from_iterable(asked.get(f, ()) for f in of_mention))
            queries[i] = replace(queries[i], others=tuple(others), parts_agree=True)
    return queries


def genes_by_organism(
    mentions: Mentions, candidates: Candidates, knowledge: Knowledge
) -> dict[int, SpeciesCandidates]:
    """Candidates by organism, of the mentions whose knowledge base has organisms."""
    found: dict[int, SpeciesCandidates] = {}
    for kb, numbers in _by_kb(mentions, knowledge).items():
        found |= _of_kb(kb, mentions, candidates, numbers)
    return dict(sorted(found.items()))


def _by_kb(mentions: Mentions, knowledge: Knowledge) -> dict[KnowledgeBase, list[int]]:
    """Numbers of the mentions by their knowledge base, of those that have organisms."""
    kbs = knowledge.linked_kbs(set(mentions.labels))
    kbs = {label: kb for label, kb in kbs.items() if has_organisms(kb)}
    found: dict[KnowledgeBase, list[int]] = {}
    for number, label in enumerate(mentions.labels):
        if label in kbs:
            found.setdefault(kbs[label], []).append(number)
    return found


def _of_kb(
    kb: KnowledgeBase, mentions: Mentions, candidates: Candidates, numbers: Sequence[int]
) -> dict[int, SpeciesCandidates]:
    given = candidates.of_mentions
    # The same for mentions of the same strings.
    keys = {i: (own, mentions.labels[i]) for i, own in _forms(mentions, numbers).items()}
    forms = list(dict.fromkeys(form for of, _ in keys.values() for form in of))
    rows = kb.lookup_names(forms).tolist()
    known = {form for form, row in zip(forms, rows, strict=True) if row >= 0}
    wanted = {(form, label): None for of, label in keys.values() for form in of if form in known}
    ranked = candidates.rank(list(wanted))
    organism_of = _organisms(kb, [*(given[i] for i in numbers), *ranked.values()])
    always = [human for human in (f"{ORGANISM}9606",) if human in kb.type_names]
    made: dict[tuple[tuple[str, ...], str, int], SpeciesCandidates] = {}
    found: dict[int, SpeciesCandidates] = {}
    for i, (own, label) in keys.items():
        key = own, label, id(given[i])
        if key not in made:
            made[key] = homologs = SpeciesCandidates(
                is_whole=bool(own) and own[0] in known, always=always
            )
            homologs.others = [c for c in given[i] if c.id not in organism_of]
            homologs.add(given[i], organism_of)
            if homologs.genes or not homologs.others:
                for form in own:
                    if form in known:
                        homologs.add(ranked[form, label], organism_of)
        if made[key].genes:
            found[i] = made[key]
    _add_symbols(kb, candidates.rank, {key: of for key, of in made.items() if of.named})
    return found


def _add_symbols(
    kb: KnowledgeBase, rank: Rank, made: dict[tuple[tuple[str, ...], str, int], SpeciesCandidates]
) -> None:
    """Add the genes that have the symbol of one that was found."""
    best = {key: [of.genes[o][0].id for o in sorted(of.named)] for key, of in made.items()}
    symbol_of = _symbols(kb, [id for ids in best.values() for id in ids])
    strings = {(symbol_of[id], key[1]): None for key, ids in best.items() for id in ids}
    ranked = rank(list(strings))
    organism_of = _organisms(kb, ranked.values())
    of_found = _symbols(kb, organism_of)
    same = {
        (symbol, label): tuple(c for c in found if of_found.get(c.id) == symbol)
        for (symbol, label), found in ranked.items()
    }
    for key, ids in best.items():
        # The symbol of most organisms first: few have another gene of that name.
        for symbol, _ in Counter(symbol_of[id] for id in ids).most_common():
            made[key].add(same[symbol, key[1]], organism_of, by_symbol=True)


def _forms(mentions: Mentions, numbers: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Normalised strings for each of some mentions, the nearest first."""
    defined = {i: long_forms(mentions.docs[i]) for i in {mentions.owners[n] for n in numbers}}
    found = {}
    for number in numbers:
        written = []
        if number < mentions.n_wholes:
            text, forms = mentions.spans[number].text, defined[mentions.owners[number]]
            written = [text, *(s for s, long in forms.items() if long.lower() == text.lower())]
        found[number] = _spelled(mentions.queries[number].whole, *written)
    return found


@lru_cache(maxsize=1 << 14)
def _spelled(whole: str, *written: str) -> tuple[str, ...]:
    strings = [whole, *normalize_names(written)]
    for text in (*written, whole):
        strings += other_spellings(text)
    return tuple(dict.fromkeys(filter(None, strings)))


def _symbols(kb: KnowledgeBase, ids: Iterable[str]) -> dict[str, str]:
    """The preferred names of concepts, normalised."""
    ids = list(dict.fromkeys(ids))
    rows = kb.preferred_rows(kb.find_all(ids))
    return dict(zip(ids, normalize_names(kb.names.take(rows)), strict=True))


def _organisms(kb: KnowledgeBase, candidates: Iterable[Sequence[Candidate]]) -> dict[str, str]:
    """The organism of each candidate that is of one."""
    known = sorted({c.id for found in candidates for c in found})
    of_rows = kb.types_of_all(kb.find_all(known))
    organisms = map(organism_in, of_rows)
    return {id: organism for id, organism in zip(known, organisms, strict=True) if organism}


def organism_in(types: Iterable[str]) -> str:
    """The organism among the types of a concept; "" for none."""
    return next((t for t in types if t.startswith(ORGANISM)), "")


# What each evidence adds to the log odds, chosen on training documents of BioRED, NLM-Gene and
# GNormPlus: another name of one word is in the document; of the best long name, the share of its
# words that are; a homolog has the name of the mention, too.
_NAME, _WORDS, _HOMOLOG = 2.5, 2.0, 1.5
_FEWEST = 3  # characters of another name
_MOST_KEPT = 1 << 14  # genes
_WORD = re.compile(r"[a-z0-9]+")
_PIECE = re.compile(r"[^\s/()\[\],;]+")
_NOT_WRITTEN = re.compile(r"[\W_]")  # "IL-2" is "IL2"
_EMPTY = frozenset({"of", "and", "the", "in"})


@dataclass(frozen=True)
class _Called:
    """All that a gene and its homologs are called.

    short (frozenset): Names of one word. long (tuple): Of the others, words with their weights.
    homologs (frozenset): Names of the homologs.
    """

    short: frozenset[str]
    long: tuple[dict[str, float], ...]
    homologs: frozenset[str]


class WordsOfDocument:
    """The words of a document, and what may be a short name."""

    def __init__(self, text: str) -> None:
        self.words = set(_words_of(text))
        self.short = {_together(piece): piece for piece in [*text.split(), *_PIECE.findall(text)]}


class HomonymResolver:
    """Tells apart the genes of a knowledge base; may be shared by threads."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb = kb
        self._called = lru_cache(maxsize=_MOST_KEPT)(self._read)

    def resolve(
        self, candidates: Sequence[Candidate], mention: str, document: WordsOfDocument
    ) -> list[Candidate]:
        """Weigh candidates that are of one organism; together they stay as likely as they were."""
        own, words = _together(mention), document.words.difference(_words_of(mention))
        odds = [c.score * exp(self._weight(c.id, own, words, document)) for c in candidates]
        part = sum(c.score for c in candidates) / (sum(odds) or 1.0)
        return [replace(c, score=part * o) for c, o in zip(candidates, odds, strict=True)]

    def other_name(self, id: str, mention: str, document: WordsOfDocument) -> str:
        """Another name of one word that the document has of a gene; "" for none."""
        others = (self._called(id).short - {_together(mention)}) & document.short.keys()
        return document.short[min(others)] if others else ""

    def _weight(self, id: str, own: str, words: set[str], document: WordsOfDocument) -> float:
        called = self._called(id)
        covered = (
            sum(w for word, w in of.items() if word in words) / sum(of.values())
            for of in called.long
        )
        return (
            _NAME * bool((called.short - {own}) & document.short.keys())
            + _WORDS * max(covered, default=0.0)
            + _HOMOLOG * (own in called.homologs)
        )

    def _read(self, id: str) -> _Called:
        kb, row = self.kb, self.kb.find(id)
        own = kb.names.take(kb.names_of(row))
        _, concepts, is_preferred = kb.concepts_of_names(kb.lookup_names([normalize_name(own[0])]))
        same = concepts[is_preferred & (concepts != row)].tolist()
        others = [name for other in same for name in kb.names.take(kb.names_of(other))]
        names = dict.fromkeys([*own, *others])
        short = {_together(name) for name in names if " " not in name}
        return _Called(
            frozenset(s for s in short - everyday_words() if len(s) >= _FEWEST and not s.isdigit()),
            tuple(filter(None, (_weights(name) for name in names if " " in name))),
            frozenset(map(_together, others)),
        )


def _weights(name: str) -> dict[str, float]:
    """The words of a name; rare ones say more."""
    common = common_words()
    words = (word for word in _words_of(name) if word not in _EMPTY)
    return {word: log1p(1e6 / (1 + common.get(word, 0.0))) for word in words}


def _words_of(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _together(name: str) -> str:
    return _NOT_WRITTEN.sub("", name).lower()

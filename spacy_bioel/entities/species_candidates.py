"""The genes that a mention may be, of each organism: by all that the gene is called.

A short form is a name as the long one is: "endothelin receptor type B (EDNRB)". Names of genes are
spelled in many ways ("IL-2", "IL2"), and a synonym that the knowledge base has of one organism
("PTHrP" of Pthlh) is that of the genes with the same symbol too (PTHLH).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, pairwise

from spacy_bioel.doc import long_forms
from spacy_bioel.entities import Candidates, Knowledge, Mentions, Query, Rank
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import ORGANISM, Candidate

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
PREFIX = re.compile(r"[hmr](?=[A-Z][A-Za-z]*[A-Z0-9])")
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


_LEAST = 1e-9


@dataclass
class Homologs:
    """Candidates of a mention by organism: the scores of each are those that they have if the
    organism is meant.

    named, by_symbol (set): Organisms with a gene of a name of the mention; of the same symbol.
    is_whole (bool): The mention as it is written is a name.
    always (Sequence[str]): Organisms that may be meant, whether the document names them or not.
    others (list): Candidates that are of no organism.
    """

    genes: dict[str, list[Candidate]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    by_symbol: set[str] = field(default_factory=set)
    is_whole: bool = False
    always: Sequence[str] = ()
    others: list[Candidate] = field(default_factory=list)

    @cached_property
    def shares(self) -> dict[str, float]:
        named = self.named or self.genes
        return {organism: 1 / len(named) for organism in named}

    def add(
        self, found: Sequence[Candidate], organism_of: dict[str, str], *, by_symbol: bool = False
    ) -> None:
        """Add the candidates of another form, of organisms that have none of that name so far."""
        groups: dict[str, list[Candidate]] = {}
        for c in found:
            if c.id in organism_of:
                groups.setdefault(organism_of[c.id], []).append(c)
        named = {o for o, own in groups.items() if any(map(is_named, own))}
        total = sum(c.score for o in named for c in groups[o])
        for o, own in groups.items():
            if o in named and o not in self.named | self.by_symbol:
                # Shares are rounded: what training texts mean rarely may have none.
                part = total / sum(c.score + _LEAST for c in own)
                self.genes[o] = [replace(c, score=(c.score + _LEAST) * part) for c in own]
                (self.by_symbol if by_symbol else self.named).add(o)
            else:
                self.genes.setdefault(o, own)


def is_named(candidate: Candidate) -> bool:
    """Whether the mention is a name of the concept, and not only like one: for a name, nobody
    searches by spelling."""
    sources = candidate.evidence.split("+")
    return "exact" in sources or ("memory" in sources and "sparse" not in sources)


def has_organisms(kb: KnowledgeBase) -> bool:
    """Whether documents choose among the organisms of the concepts of a knowledge base."""
    return any(name.startswith(ORGANISM) for name in kb.type_names)


def strings_of_genes(mentions: Mentions, knowledge: Knowledge) -> list[Query]:
    """Queries of mentions, with all that `genes_by_organism` will ask for."""
    queries = list(mentions.queries)
    for kb, numbers in _by_kb(mentions, knowledge).items():
        forms_of = {i: _forms(mentions, i) for i in numbers}
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
) -> dict[int, Homologs]:
    """Candidates by organism, of the mentions whose knowledge base has organisms."""
    found: dict[int, Homologs] = {}
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
) -> dict[int, Homologs]:
    given = candidates.of_mentions
    # The same for mentions of the same strings.
    keys = {i: (_forms(mentions, i), mentions.spans[i].label_) for i in numbers}
    forms = list(dict.fromkeys(form for of, _ in keys.values() for form in of))
    rows = kb.lookup_names(forms).tolist()
    known = {form for form, row in zip(forms, rows, strict=True) if row >= 0}
    wanted = {(form, label): None for of, label in keys.values() for form in of if form in known}
    ranked = candidates.rank(list(wanted))
    organism_of = _organisms(kb, [*(given[i] for i in numbers), *ranked.values()])
    always = [human for human in (f"{ORGANISM}9606",) if human in kb.type_names]
    made: dict[tuple[tuple[str, ...], str, int], Homologs] = {}
    found: dict[int, Homologs] = {}
    for i, (own, label) in keys.items():
        key = own, label, id(given[i])
        if key not in made:
            made[key] = homologs = Homologs(is_whole=bool(own) and own[0] in known, always=always)
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
    kb: KnowledgeBase, rank: Rank, made: dict[tuple[tuple[str, ...], str, int], Homologs]
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


def _forms(mentions: Mentions, number: int) -> tuple[str, ...]:
    """Normalised strings for a mention, the nearest first."""
    whole, span = mentions.queries[number].whole, mentions.spans[number]
    if number >= mentions.n_wholes:
        return _spelled(whole)
    text = span.text
    forms = long_forms(span.doc)
    short = [s for s, long in forms.items() if long.lower() == text.lower()] if forms else []
    return _spelled(whole, text, *short)


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

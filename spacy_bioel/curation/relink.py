"""Find the texts whose links a new release of a knowledge base can change.

A name is found by its words. A new or changed name can therefore be found only in a text with all
of its words, or with words that the dictionary takes for them: misspelt, abbreviated or replaced by
a substitute. A name that is gone or changed is in the links of the old release.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_bioel.dictionary.lookup import PROBABILITIES, TYPO_FACTOR, DictionaryLookup
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.export.rows import Document, JsonRow, link_texts, to_row
from spacy_bioel.kb.knowledge_base import KnowledgeBase, word_key
from spacy_bioel.loading import find_linker
from spacy_bioel.settings import BY_DICTIONARY
from spacy_bioel.text.normalize import (
    LINKING_WORDS,
    amount_of,
    is_amount,
    normalize_name,
    stem_of,
    words_of,
)
from spacy_bioel.text.sentences import broken_words

if TYPE_CHECKING:
    from spacy_bioel.linking.candidates import CandidateGenerator

_Stems = frozenset[str]


class ReleaseChanges:
    """The changes between two releases that matter for links found by the dictionary.

    old, new (CandidateGenerator): Generators of pipelines made from the two knowledge bases.
    """

    def __init__(self, old: CandidateGenerator, new: CandidateGenerator) -> None:
        self._sides = old, new
        self._lookups = old.dictionary, new.dictionary
        before, after = map(_described_names, self._lookups)
        self._names = {n for n in before.keys() | after.keys() if before.get(n) != after.get(n)}
        shares, others = map(_shares_of_substitutes, self._lookups)
        self._substitutes: dict[int, list[str]] = defaultdict(list)  # by the key of a word
        self._rescored: set[str] = set()  # stems of names that substitutes match less or better
        changed: dict[str, list[str]] = defaultdict(list)  # marks of pairs that match or no longer
        for key, by in shares.keys() | others.keys():
            pair = shares.get((key, by), 0.0), others.get((key, by), 0.0)
            kept, now = (_are_kept(p, g) for p, g in zip(pair, self._sides, strict=True))
            self._substitutes[key] += [by, f"{key} {by}"] if kept != now else [by] * any(now)
            if kept != now:
                changed[by].append(f"{key} {by}")
            elif any(now) and pair[0] != pair[1]:
                self._rescored.add(by)
        # What a text has to contain, by one of the stems or marks in it.
        self._required: dict[str, set[_Stems]] = defaultdict(set)
        for stems in map(_stems_of_name, self._names):
            self._require(stems)
        for stems in map(_stems_of_name, before.keys() | after.keys() if changed else ()):
            for by in stems & changed.keys() if len(stems) > 1 else ():
                for mark in changed[by]:
                    self._require(stems - {by} | {mark}, mark)
        self._stems_of_word = cache(self._stems)
        self._has_moved = cache(self._moved)

    def _require(self, stems: _Stems, by: str = "") -> None:
        if stems:
            self._required[by or max(stems, key=lambda stem: (len(stem), stem))].add(stems)

    def can_change(self, text: str, links: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether the mentions, ids or scores of a text can change.

        links (Sequence): Its links of the old release, as JSON values.
        """
        if self._lookups[0].ignores_capitals != self._lookups[1].ignores_capitals:
            return True
        candidates = [c for link in links for c in link["candidates"]]
        if any(c["name"] in self._names for c in candidates):
            return True
        for link in links:
            for stems in map(_stems_of_name, {c["name"] for c in link["candidates"]}):
                if stems & self._rescored - _stems_of_name(link["text"]):
                    return True
        # Parents break ties.
        has_tie = any(len(link["candidates"]) > 1 for link in links)
        if has_tie and any(self._has_moved(c["id"]) for c in candidates):
            return True
        doc = Doc(Vocab(), [text], [False])  # one token: only the text matters
        forms, others = (
            {
                k: v
                for _, r in g.rules.overriding("short_forms")
                for k, v in r.short_forms(doc).items()
            }
            for g in self._sides
        )
        whole = " ".join([text, *forms.values(), *(word for *_, word in broken_words(text))])
        stems: set[str] = set()
        for word in set(words_of(normalize_name(whole))):
            stems |= self._stems_of_word(word)
        return (
            forms != others
            or "" in stems
            or any(req <= stems for stem in stems for req in self._required.get(stem, ()))
        )

    def _stems(self, word: str) -> _Stems:
        """Return the stems and marks that a word of a text stands for; "" if that has changed."""
        old, new = (lookup.corrected_word(word) for lookup in self._lookups)
        by = self._substitutes.get(word_key(stem_of(new)), ())
        return frozenset({stem_of(word), stem_of(new), *by} if old == new else {""})

    def _moved(self, id: str) -> bool:
        """Return whether the ancestors of a concept have changed."""
        old, new = (_ancestors(lookup.kb, id) for lookup in self._lookups)
        return old != new


def relinked(
    earlier: Iterable[tuple[Any, ...]],
    documents: Iterable[Document],
    old: Language,
    new: Language,
    *,
    where: str,
) -> Iterator[tuple[JsonRow, bool]]:
    """Yield the links of each document, as JSON values, and whether it was linked again.

    earlier (Iterable): Links of the old release: text, id, links and error, in the same order.
    documents (Iterable): A stream of (text, id); those without earlier links are linked.
    old, new (Language): Pipelines made from the two knowledge bases.
    where (str): File of the earlier links, for error messages.
    RAISES BioelError: [B635] for links to unknown ids, [B636] for links that the dictionary did not
        make, [B637] for links of other documents.
    """
    old_generator, new_generator = (_generator_of(nlp, where) for nlp in (old, new))
    old_kb, new_kb = old_generator.kb, new_generator.kb
    changes = ReleaseChanges(old_generator, new_generator)
    records, kept = iter(earlier), deque[JsonRow | None]()

    def to_link() -> Iterator[Document]:
        record = next(records, None)
        for text, id in documents:
            links = error = None
            if record is not None and record[:2] == (text, id):
                _, _, links, error = record
                _check_links(links, id, old_kb, where)
                record = next(records, None)
            if links is None or error or changes.can_change(text, links):
                kept.append(None)
                yield text, id
            else:
                label = {old_kb.title: new_kb.title}  # of concepts without types
                links = [
                    link | {"label": label.get(link["label"], link["label"])} for link in links
                ]
                kept.append({"id": id, "text": text, "links": links, "error": None})
        if record is not None:
            raise BioelError(Errors.B637.format(path=where, id=record[1]))

    for linked in link_texts(new, to_link()):
        while row := kept.popleft():
            yield row, False
        yield to_row(linked), True
    yield from ((row, False) for row in kept if row)


def _generator_of(nlp: Language, where: str) -> CandidateGenerator:
    linker = find_linker(nlp)
    if linker is None or linker.cfg["mentions"] != BY_DICTIONARY or linker.alias_table.counts:
        raise BioelError(Errors.B636.format(path=where, found="a pipeline, not a knowledge base"))
    return linker.generator


def _check_links(
    links: Sequence[Mapping[str, Any]], id: str, kb: KnowledgeBase, where: str
) -> None:
    """Check that links were made by the dictionary, with a knowledge base."""
    for link in links:
        others = {c["evidence"] for c in link["candidates"]} - {"exact"}
        if others or "context" in link:
            found = f"{', '.join(others) or 'context'} (document {id!r:.40})"
            raise BioelError(Errors.B636.format(path=where, found=found))
        for linked in link["ids"]:
            if kb.find(linked) < 0:
                raise BioelError(Errors.B635.format(path=where, id=linked, old=kb.where))


def _described_names(lookup: DictionaryLookup) -> dict[str, object]:
    """Map each name to everything that decides about its links."""
    kb = lookup.kb
    starts, concepts, is_preferred = kb.concepts_of_names(np.arange(kb.n_names))
    columns = (is_preferred.tolist(), lookup.too_general[concepts].tolist())
    owners = list(zip(kb.ids_of(concepts), *columns, kb.types_of_all(concepts), strict=True))
    xrefs = kb.xrefs_of_all(concepts)  # of concepts with the same name: they may be equivalent
    return {
        name: (added, owners[a:b], xrefs[a:b] if b - a > 1 else None)
        for name, added, (a, b) in zip(
            kb.names, kb.is_added.tolist(), pairwise(starts.tolist()), strict=True
        )
    }


def _are_kept(share: float, generator: CandidateGenerator) -> list[bool]:
    """Return whether a match with a substitute is likely enough, for each difference and error."""
    threshold = generator.state.settings.dictionary.threshold
    best = PROBABILITIES * share**0.5
    return [p * TYPO_FACTOR**n >= threshold for p in best.tolist() for n in range(3)]


def _shares_of_substitutes(lookup: DictionaryLookup) -> dict[tuple[int, str], float]:
    """Return the share of each pair of a word in a text, by its key, and a stem in a name."""
    table = lookup.bags_of_words.substitutes
    columns = table.word.tolist(), table.by.tolist(), table.stem, table.share.tolist()
    return {
        (word, stem if word_key(stem) == by else stem_of(stem)): share
        for word, by, stem, share in zip(*columns, strict=True)
    }


def _stems_of_name(name: str) -> _Stems:
    """Return the stems that a text with a name has to contain."""
    words = words_of(normalize_name(name))
    if words and is_amount(words) and (substance := amount_of(words)[1]):
        return frozenset(substance)
    content = [word for word in words if word not in LINKING_WORDS] or words
    return frozenset(map(stem_of, content))


def _ancestors(kb: KnowledgeBase, id: str) -> set[str]:
    rows, new = set[int](), {kb.find(id)} - {-1}
    while new := new - rows:
        rows |= new
        new = {parent for row in new for parent in kb.parents_of(row).tolist()}
    return set(kb.ids_of(sorted(rows)))

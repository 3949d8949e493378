"""Update links to a new release of a knowledge base by linking only texts whose links can change.

The dictionary finds a name by its words. A name that is new, changed or gone therefore matters only
for a text with all of the name's words, or misspellings, short forms or substitutes of them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_bioel.dictionary.lookup import PROBABILITIES, TYPO_FACTOR
from spacy_bioel.errors import BioelError
from spacy_bioel.export.rows import Document, JsonRow, link_texts, to_row
from spacy_bioel.kb.gazetteer import phrases_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase, word_key
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.loading import find_linker
from spacy_bioel.plugins.curation.errors import CurationErrors
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

_Links = Sequence[Mapping[str, Any]]


def relinked(
    earlier: Iterable[tuple[Any, ...]],
    documents: Iterable[Document],
    old: Language,
    new: Language,
    *,
    where: str,
) -> Iterator[tuple[JsonRow, bool]]:
    """Yield each document's links as JSON values, and whether its text was linked again.

    earlier (Iterable): Links of the old release: text, id, links and error, in the same order.
    documents (Iterable): A stream of (text, id); texts without earlier links are linked.
    old, new (Language): Pipelines made from the two knowledge bases.
    where (str): File of the earlier links, for error messages.
    RAISES BioelError: [B635] for links to unknown ids, [B636] if the dictionary did not make them.
    """
    generators = []
    for side, pipeline in (("OLD", old), ("NEW", new)):
        linker = find_linker(pipeline)
        if linker is None or linker.cfg["mentions"] != BY_DICTIONARY:
            raise BioelError(CurationErrors.B636.format(path=where, found=f"{side} is a pipeline"))
        generators.append(linker.generator)
    before, after = generators
    can_change, label_of = text_filter(before, after), {before.kb.title: after.kb.title}
    records, kept = iter(earlier), deque[JsonRow | None]()

    def to_link() -> Iterator[Document]:
        record: tuple[Any, ...] = next(records, ())
        for text, id in documents:
            row: JsonRow | None = None
            if text is not None and record[1:2] == (id,):
                earlier_text, _, links, error = record
                record = next(records, ())
                _check_links(links, before.kb, after.kb, where)
                if earlier_text == text and not error and not can_change(text, links):
                    for link in links:  # without types, the label is the folder name
                        link["label"] = label_of.get(link["label"], link["label"])
                    row = {"id": id, "text": text, "links": links, "error": None}
            kept.append(row)
            if row is None:
                yield text, id

    for linked in link_texts(new, to_link()):
        while row := kept.popleft():
            yield row, False
        yield to_row(linked), True
    yield from ((row, False) for row in kept if row)


def _check_links(links: Any, old: KnowledgeBase, new: KnowledgeBase, where: str) -> None:
    """Check that links were made using only the old release and written with default options."""
    others, ids = set[str](), list[str]()
    try:
        for link in links:
            keys = link.keys() | {key for candidate in link["candidates"] for key in candidate}
            others |= keys & {"context", "xrefs"}
            others |= {candidate["evidence"] for candidate in link["candidates"]} - {"exact"}
            ids += link["ids"]
    except (KeyError, TypeError):
        others = {"no links"}
    if others:
        raise BioelError(CurationErrors.B636.format(path=where, found=", ".join(sorted(others))))
    for i in np.flatnonzero(old.find_all(ids) < 0)[:1].tolist():
        hint = ", but NEW has it: perhaps they are swapped" if ids[i] in new else ""
        about = {"path": where, "id": ids[i], "old": old.where, "hint": hint}
        raise BioelError(CurationErrors.B635.format(**about))


def text_filter(old: CandidateGenerator, new: CandidateGenerator) -> Callable[[str, _Links], bool]:
    """Return a function that tells whether a linked text's mentions, ids or scores can change."""
    sides = old, new
    before, after = map(_described_names, sides)
    changed = [n for n in before.keys() | after.keys() if before.get(n) != after.get(n)]
    wanted = set(map(_stems_of_name, changed))
    for name in changed:  # in the name phrase "tibial plateau", "tibial" does not match "tibia"
        phrases = phrases_of(words_of(normalize_name(name)))
        wanted.update(frozenset(map(stem_of, phrase)) for phrase in phrases)
    substitutes: dict[int, set[str]] = defaultdict(set)  # stems in names, by word key
    marks: dict[str, set[str]] = defaultdict(set)  # by stem: substitutes that match in one release
    rescored: set[str] = set()  # stems whose substitutes match slightly better or worse in NEW
    likely = PROBABILITIES[:, None] * TYPO_FACTOR ** np.arange(3)
    tables = [side.dictionary.bags_of_words.substitutes for side in sides]
    shares = [  # keyed by (key of a word in a text, word in a name)
        dict(zip(zip(t.word.tolist(), t.replacement, strict=True), t.share.tolist(), strict=True))
        for t in tables
    ]
    for key, word in shares[0].keys() | shares[1].keys():
        share = np.array([of_side.get((key, word), 0.0) for of_side in shares])[:, None, None]
        by = stem_of(word)
        matches = likely * share**0.5 >= new.state.settings.dictionary.threshold
        substitutes[key] |= {by} if matches.any() else set()
        if (matches[0] != matches[1]).any():
            marks[by].add(f"{key} {word}")
            substitutes[key].add(f"{key} {word}")
        elif matches.any() and share[0] != share[1]:
            rescored.add(by)
    for stems in map(_stems_of_name, before.keys() | after.keys() if marks else ()):
        if len(stems) > 1:
            wanted |= {stems - {by} | {mark} for by in stems & marks.keys() for mark in marks[by]}
    required: dict[str, list[frozenset[str]]] = defaultdict(list)
    for stems in filter(None, wanted):
        required[max(stems, key=len)].append(stems)
    flags = {(side.dictionary.ignores_capitals, side.dictionary.has_codes) for side in sides}

    @lru_cache(maxsize=1 << 17)
    def stems_of(word: str) -> set[str]:
        was, now = (side.dictionary.corrected_word(word) for side in sides)
        stem = stem_of(now)
        return {stem_of(word), stem, *substitutes.get(word_key(stem), ())} if was == now else {""}

    def can_change(text: str, links: _Links) -> bool:
        doc = Doc(Vocab(), [text], [False])  # only the text of `doc` matters
        forms, others = (
            side.dictionary.written_forms.find(text)
            | side.rules.forms_of(doc, settings=side.state.settings)
            for side in sides
        )
        words = [whole for *_, whole in broken_words(text)]
        words += forms.values()
        words = words_of(normalize_name(" ".join([text, *words])))
        stems = set[str]().union(*map(stems_of, set(words)))
        named = [(link, c) for link in links for c in link["candidates"]]
        return (
            len(flags) > 1
            or forms != others
            or "" in stems  # the releases correct a word differently
            or any(needed <= stems for stem in stems & required.keys() for needed in required[stem])
            or any(
                rescored & _stems_of_name(c["name"]) - _stems_of_name(link["text"])
                for link, c in named
            )
        )

    return can_change


def _described_names(side: CandidateGenerator) -> dict[str, object]:
    """Map each name to everything that affects links made through it."""
    kb = side.kb
    starts, concepts, is_preferred = kb.concepts_of_names(np.arange(kb.n_names))
    flags = is_preferred.tolist(), side.dictionary.too_general[concepts].tolist()
    owners = list(zip(kb.ids_of(concepts), *flags, kb.types_of_all(concepts), strict=True))
    xrefs = kb.xrefs_of_all(concepts)  # these show which concepts with the same name are identical
    bags, names = side.dictionary.bags_of_words, [*kb.names, ""]
    later = np.delete(np.arange(len(bags.rows)), bags.offsets[:-1])
    preferred = np.full(len(names), -1)  # row of the preferred name with the same words
    preferred[bags.rows[later]] = bags.rows[later - 1]
    rows = zip(kb.is_added.tolist(), pairwise(starts.tolist()), preferred.tolist(), strict=False)
    return {
        names[i]: (added, owners[a:b], xrefs[a:b] if b - a > 1 else None, names[before])
        for i, (added, (a, b), before) in enumerate(rows)
    }


@lru_cache(maxsize=1 << 17)
def _stems_of_name(name: str) -> frozenset[str]:
    """Return the stems that a text must contain to mention a name."""
    words = words_of(normalize_name(name))
    if words and is_amount(words) and (substance := amount_of(words)[1]):
        return frozenset(substance)
    return frozenset(stem_of(w) for w in words if w not in LINKING_WORDS) or frozenset(words)

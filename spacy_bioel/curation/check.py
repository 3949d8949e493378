"""Decide whether an id means what its name says, using the knowledge base with its prefix."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path

import numpy as np

from spacy_bioel.curation.ids import id_pattern, prefix_key, split_id
from spacy_bioel.curation.pairs import Anchor, CheckedId, IdVerdict, Meaning, Pair, Reading
from spacy_bioel.curation.tables import text_pairs
from spacy_bioel.errors import LOGGER, Warnings
from spacy_bioel.io.open import Place
from spacy_bioel.kb.bundled import list_bundled, open_setting
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase, search_names
from spacy_bioel.kb.spelling import is_one_error_apart
from spacy_bioel.text.normalize import (
    LINKING_WORDS,
    normalize_name,
    normalize_names,
    respellings,
    singular_of,
    stem_of,
)

_MAX_WORDS_OF_NAME = 12  # words before or after an id that are looked up as a name
_MAX_SEARCHED = 200  # characters; no concept has a longer name that a search would find
_N_PROPOSALS = 3
_MIN_LETTERS = 5  # in a word that may have a typing error; shorter words are other words
_MAX_ERRORS = 2  # words of a name with a typing error
_N_SAMPLED = 5000  # ids that show the forms of a vocabulary's ids
_MIN_LENGTHS = 3  # numbers of this many lengths are counted, not padded
_MIN_SHARE = 0.1  # of a knowledge base, for its ids with a prefix to be complete
_N_SIMILAR = 16  # names that are read to find out whether a word is one of theirs
_NOT_SPACES = re.compile(r"\S+")
_NOWHERE = Place("")
_Own = list[tuple[KnowledgeBase, int]]


@dataclass(frozen=True)
class IdVocabulary:
    """The ids of a knowledge base that have the same prefix.

    prefix (str): With its separator, such as "HP:"; "" for UMLS.
    share (float): Share of the ids of the knowledge base.
    """

    kb: KnowledgeBase
    prefix: str
    start: int
    end: int

    @property
    def is_complete(self) -> bool:
        """Whether an id that is missing does not exist; else the other ids are imports."""
        return self.end - self.start >= _MIN_SHARE * len(self.kb)

    def is_malformed(self, local: str) -> bool:
        """Return whether no id of the vocabulary looks like an id."""
        forms = self._forms.get(_letters_of(local))
        return forms is None or (len(forms) < _MIN_LENGTHS and len(local) not in forms)

    @cached_property
    def _forms(self) -> dict[str, set[int]]:
        """The lengths of ids, by their letters."""
        n = min(self.end - self.start, _N_SAMPLED)
        rows = np.linspace(self.start, self.end - 1, n).astype(np.int64)
        forms: dict[str, set[int]] = defaultdict(set)
        for id in self.kb.ids_of(rows):
            local = id[len(self.prefix) :]
            forms[_letters_of(local)].add(len(local))
        return forms


def _letters_of(local: str) -> str:
    return re.sub(r"\d+", "0", local)


def vocabularies_of(kb: KnowledgeBase) -> Iterator[IdVocabulary]:
    """Yield the vocabularies in a knowledge base, whose ids are sorted."""
    start = 0
    while start < len(kb):
        id = kb.ids[start]
        prefix = (
            "".join(id.partition(":" if ":" in id else "_")[:2]) if re.search("[:_]", id) else ""
        )
        low, end = start, len(kb)
        while low < end:
            middle = (low + end) // 2
            same = kb.ids[middle].startswith(prefix) if prefix else ":" not in kb.ids[middle]
            low, end = (middle + 1, end) if same else (low, middle)
        yield IdVocabulary(kb, prefix, start, end)
        start = end


def check(
    text: str, kb: KnowledgeBase | str | Path | Sequence[KnowledgeBase | str | Path] = "starter"
) -> list[CheckedId]:
    """Check that the ids in a text exist, and mean what the names next to them say.

    text (str): Text or Markdown, such as an answer of a language model.
    kb: A knowledge base, its folder, or a name such as "starter:mesh"; or several of these, for ids
        with different prefixes. "starter": all bundled ones.
    RETURNS (list[CheckedId]): For each id, `verdict`, `name`, `id`, `found` (the concept with this
        id) and `proposals` (concepts that the name may mean).
    RAISES BioelError: The same errors as `kb.bundled.open_setting`.
    """
    kbs = [kb] if isinstance(kb, KnowledgeBase | str | Path) else kb
    return Checker(kbs).check_text(text)


class Checker:
    """Checks pairs against knowledge bases, each of which knows the ids with its prefixes.

    kbs (Iterable): Open knowledge bases, folders, or names such as "starter:mesh". If several have
        ids with the same prefix, the first that knows an id decides, and a warning is logged
        [W401].
    RAISES BioelError: The same errors as `kb.bundled.open_setting`.
    """

    def __init__(self, kbs: Iterable[KnowledgeBase | str | Path]) -> None:
        opened = chain.from_iterable(map(_opened_kbs, kbs))
        self.kbs = tuple(part for kb in opened for part in parts_of(kb))
        self._vocabularies: dict[str, list[IdVocabulary]] = defaultdict(list)
        for vocabulary in (v for kb in self.kbs for v in vocabularies_of(kb)):
            same = self._vocabularies[prefix_key(vocabulary.prefix.rstrip(":_") or "UMLS")]
            if any(v.is_complete for v in same) and vocabulary.is_complete:
                about = {"first": same[0].kb.where, "second": vocabulary.kb.where}
                LOGGER.warning(Warnings.W401.format(prefix=vocabulary.prefix.rstrip(":_"), **about))
            same.append(vocabulary)
        for same in self._vocabularies.values():  # imports of another vocabulary come last
            same.sort(key=lambda v: not v.is_complete)
        prefixes = (v.prefix.rstrip(":_") for same in self._vocabularies.values() for v in same)
        self.ids = id_pattern(prefixes)
        self._judge = lru_cache(maxsize=1 << 16)(self._judged)

    def check(self, pair: Pair) -> CheckedId:
        """Return the finding on a pair."""
        words = tuple(replace(reading, at=-1, line=0) for reading in pair.readings)
        return replace(self._judge(pair.id, words), pair=pair)

    def unchecked_prefix(self, finding: CheckedId) -> str:
        """Return the prefix of an id that was not checked; "" for other findings."""
        parts = split_id(finding.id) if finding.verdict is IdVerdict.NOT_CHECKED else None
        return parts[0] if parts else ""

    def check_text(self, text: str) -> list[CheckedId]:
        """Check the ids in a text, such as an answer of a language model."""
        lines = enumerate(text.split("\n"), start=1)
        return list(
            map(self.check, text_pairs(((Place("", n), line) for n, line in lines), self.ids))
        )

    def _judged(self, raw: str, readings: tuple[Reading, ...]) -> CheckedId:
        prefix, local = split_id(raw) or ("", "")
        vocabularies = self._vocabularies.get(prefix_key(prefix), [])
        id, own = self._find(vocabularies, local)
        if prefix and not vocabularies:
            id, own = raw, self._find_xref(prefix, local)
        kbs = list(dict.fromkeys(kb for kb, _ in own)) or [v.kb for v in vocabularies]
        if prefix and not kbs:
            return CheckedId(Pair(raw, _NOWHERE), IdVerdict.NOT_CHECKED, raw, _firm_name(readings))
        names = _OwnNames(own)
        name, likeness = self._choose_name(readings, names, kbs or list(self.kbs))
        finding = partial(CheckedId, Pair(raw, _NOWHERE), id=id, name=name)
        if not own:
            verdict, proposals = self._judge_missing(vocabularies, id, local)
            if not proposals and verdict is not IdVerdict.NOT_CHECKED:
                proposals = _meanings_of(name, kbs or self.kbs)
            return finding(verdict, proposals=proposals)
        kb, row = own[0]
        found = Meaning(kb.ids[row], kb.preferred_name(row), round(likeness, 4))
        proposals = () if likeness or not name else _meanings_of(name, kbs)
        if vocabularies and found.id != id:
            fits = likeness > 0 or not name
            return finding(IdVerdict.RETIRED, found=found, proposals=proposals, is_certain=fits)
        if not name or normalize_name(name) in names.preferred:
            verdict = IdVerdict.AGREES
        elif likeness:
            verdict = IdVerdict.SYNONYM if normalize_name(name) in names.all else IdVerdict.CLOSE
        else:
            verdict = IdVerdict.OTHER
        return finding(verdict, found=found, proposals=proposals)

    def _find(self, vocabularies: Iterable[IdVocabulary], local: str) -> tuple[str, _Own]:
        """Return an id in the spelling of the knowledge base, and the concept; none if unknown."""
        id = ""
        for vocabulary in vocabularies:
            for form in (local, local.upper()):
                id = id or vocabulary.prefix + local
                if (row := vocabulary.kb.find(vocabulary.prefix + form)) >= 0:
                    return vocabulary.prefix + form, [(vocabulary.kb, row)]
        return id or local, []

    def _find_xref(self, prefix: str, local: str) -> _Own:
        """Return the concepts with a cross-reference to an id of another vocabulary."""
        return self._xrefs.get((prefix_key(prefix), local), [])

    @cached_property
    def _xrefs(self) -> dict[tuple[str, str], _Own]:
        xrefs: dict[tuple[str, str], _Own] = defaultdict(list)
        for kb in self.kbs:
            for row, values in enumerate(kb.xrefs_of_all(np.arange(len(kb)))):
                for parts in filter(None, map(split_id, values)):
                    xrefs[prefix_key(parts[0]), parts[1]].append((kb, row))
        return dict(xrefs)

    def _judge_missing(
        self, vocabularies: Sequence[IdVocabulary], id: str, local: str
    ) -> tuple[IdVerdict, tuple[Meaning, ...]]:
        """Judge an id that is not in the knowledge bases."""
        for vocabulary in vocabularies:
            others = vocabulary.kb.withdrawn.get(id)
            if others is not None:
                kb = vocabulary.kb
                known = [(other, kb.find(other)) for other in others]
                found = (Meaning(i, kb.preferred_name(row), 0.0) for i, row in known if row >= 0)
                return IdVerdict.RETIRED, tuple(found)
        if not vocabularies or all(v.is_malformed(local) for v in vocabularies):
            return IdVerdict.MALFORMED, ()
        return (IdVerdict.UNKNOWN if vocabularies[0].is_complete else IdVerdict.NOT_CHECKED), ()

    def _choose_name(
        self, readings: Sequence[Reading], own: _OwnNames, kbs: Sequence[KnowledgeBase]
    ) -> tuple[str, float]:
        """Choose the name among the words around an id.

        The longest name counts, whether of the concept with the id or of another.

        RETURNS (tuple): The name, "" if the id stands alone, and its likeness to a name of the
            concept with the id, 0 if it is another name.
        """
        others = []
        for reading in readings:
            for name in _candidates(reading):
                normalized = normalize_name(name).removeprefix("obsolete ")
                if not normalized:
                    continue
                is_cut = reading.anchor is not Anchor.WHOLE and _is_open(normalized)
                if likeness := 0.0 if is_cut else self._likeness(normalized, own, kbs):
                    return name, likeness
                is_long = reading.is_firm or len(normalized) >= _MIN_LETTERS
                if is_long and any(kb.lookup_names([normalized])[0] >= 0 for kb in kbs):
                    others.append(name)
                    break
        return next(iter(others), _firm_name(readings)), 0.0

    def _likeness(self, name: str, own: _OwnNames, kbs: Sequence[KnowledgeBase]) -> float:
        """Return the likeness of a normalised name to a name of a concept, 0 if it is another.

        Names may differ in typing errors, in the order of words, and in endings such as plurals. A
        name that another concept has is another name.
        """
        if name in own.all:
            return 1.0
        if any(kb.lookup_names([name])[0] >= 0 for kb in kbs):
            return 0.0
        likeness, errors = max((_compare(name, other) for other in own.all), default=(0.0, ()))
        if errors and any((kb.lookup_names(respellings(name)) >= 0).any() for kb in kbs):
            return 0.0
        return 0.0 if any(_is_known_word(error, kb) for error in errors for kb in kbs) else likeness


def _opened_kbs(kb: KnowledgeBase | str | Path) -> list[KnowledgeBase]:
    if isinstance(kb, KnowledgeBase):
        return [kb]
    places = [str(kb)]
    if kb == "starter":
        places = [str(about["name"]) for about in list_bundled()]
    return list(map(open_setting, places))


class _OwnNames:
    """Normalised names of the concepts with an id."""

    def __init__(self, own: _Own) -> None:
        names = [normalize_names(kb.names.take(kb.names_of(row))) for kb, row in own]
        self.preferred = {first for first, *_ in names}
        self.all = dict.fromkeys(chain.from_iterable(names))


def _candidates(reading: Reading) -> Iterator[str]:
    """Yield the strings that may be the name in a reading, the longest first."""
    words = [match.span() for match in _NOT_SPACES.finditer(reading.words)]
    if reading.anchor is Anchor.WHOLE:
        yield reading.words
    elif reading.anchor is Anchor.END:
        for start, _ in words[-_MAX_WORDS_OF_NAME:]:
            yield reading.words[start:].lstrip("*_`\"'([{")
    else:
        for _, end in reversed(words[:_MAX_WORDS_OF_NAME]):
            yield reading.words[:end].rstrip(".,;:")


def _firm_name(readings: Iterable[Reading]) -> str:
    """Return the longest string that may be the name, where there must be one; else ""."""
    firm = (reading for reading in readings if reading.is_firm)
    return next(chain.from_iterable(map(_candidates, firm)), "")


def _is_open(name: str) -> bool:
    """Return whether a name begins or ends with a linking word, which belongs to the sentence."""
    words = name.split()
    return words[0] in LINKING_WORDS or words[-1] in LINKING_WORDS


def _compare(name: str, other: str) -> tuple[float, tuple[str, ...]]:
    """Compare two normalised names.

    RETURNS (tuple): Their likeness, 0 if they differ in more than typing errors, order and endings
        of words; and the words of `name` with typing errors.
    """
    words, others = (
        [word for word in string.split() if word not in LINKING_WORDS] for string in (name, other)
    )
    extra, missing = _without(words, others), _without(others, words)
    if len(extra) != len(missing):  # perhaps a space too many or too few
        if "".join(extra) != "".join(missing):
            return 0.0, ()
        extra = missing = []
    pairs = list(zip(extra, missing, strict=True))
    if len(pairs) > _MAX_ERRORS or not all(_is_misspelt(a, b) for a, b in pairs):
        return 0.0, ()
    strings = " ".join(sorted(words)), " ".join(sorted(others))
    return SequenceMatcher(None, *strings, autojunk=False).ratio(), tuple(extra)


def _without(words: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the words whose stems are not among the stems of others."""
    left, kept = Counter(map(stem_of, others)), []
    for word in words:
        left[stem := stem_of(word)] -= 1
        kept += [word] * (left[stem] < 0)
    return kept


def _is_misspelt(word: str, other: str) -> bool:
    if len(word) + len(other) < 2 * _MIN_LETTERS - 1 or not (word + other).isalpha():
        return False
    return is_one_error_apart(word, other) or is_one_error_apart(
        singular_of(word), singular_of(other)
    )


@lru_cache(maxsize=1 << 14)
def _is_known_word(word: str, kb: KnowledgeBase) -> bool:
    """Return whether names of a knowledge base contain a word, so that it is not misspelt."""
    [rows], _ = kb.ngrams.search([word], _N_SIMILAR)
    names = normalize_names(kb.names.take(rows[rows >= 0]))
    return any(word in name.split() for name in names)


def _meanings_of(name: str, kbs: Iterable[KnowledgeBase]) -> tuple[Meaning, ...]:
    """Return the concepts with a name, or else with similar names, best first."""
    name = name[:_MAX_SEARCHED]
    if not name:
        return ()
    meanings = []
    for kb in kbs:
        _, concepts, is_preferred = kb.concepts_of_names(kb.lookup_names([normalize_name(name)]))
        for row in concepts[np.argsort(~is_preferred, kind="stable")].tolist():
            meanings.append(Meaning(kb.ids[row], kb.preferred_name(row)))
    if not meanings:
        hits = chain.from_iterable(search_names(kb, name, _N_PROPOSALS) for kb in kbs)
        best = sorted(hits, key=lambda hit: -hit.score)
        meanings = [Meaning(hit.concept.id, hit.concept.names[0], hit.score) for hit in best]
    return tuple(meanings[:_N_PROPOSALS])

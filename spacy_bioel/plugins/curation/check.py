"""Check that an id and its name mean the same concept in the knowledge base for the id's prefix."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache, cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spacy_bioel.dictionary.unambiguous import common_words
from spacy_bioel.errors import LOGGER
from spacy_bioel.io.open import Place
from spacy_bioel.kb.bundled import bundled_name, list_bundled, open_setting
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.spelling import is_one_error_apart
from spacy_bioel.plugins.curation.errors import CurationWarnings
from spacy_bioel.plugins.curation.ids import id_pattern, prefix_key, split_id
from spacy_bioel.plugins.curation.name_places import AGREES, NAMES
from spacy_bioel.plugins.curation.pairs import Cell, CheckedId, IdVerdict, Meaning, Pair
from spacy_bioel.plugins.curation.tables import text_pairs
from spacy_bioel.text.normalize import (
    LINKING_WORDS,
    PREPOSITIONS,
    normalize_name,
    normalize_names,
    respellings,
    singular_of,
    stem_of,
)
from spacy_bioel.types import ORGANISM

_MAX_SEARCHED = 200  # maximum length of a name to search for
_N_PROPOSALS = 3
_N_SEARCHED = 6  # number of similar names that a search returns
_MIN_LETTERS = 5  # minimum length of a word that may have a typing error
_LOW = 0.7  # maximum likeness of a short form or an irregular plural
_MAX_ERRORS = 2  # maximum number of mistyped words in a name
_MIN_RATIO = 1000.0  # minimum ratio of a word's frequency to its misspelling's
_NOT_NAMES = LINKING_WORDS | PREPOSITIONS | {"as", "a", "and", "or", "not", "no", "it", "all"}
_N_SAMPLED = 5000  # number of ids sampled to learn a vocabulary's id patterns
_MIN_SHARE = 0.1  # a prefix with a smaller share of the ids counts as incomplete
_N_SIMILAR = 16  # number of similar names that are searched for a word
_PREFIX = re.compile("[^:]*:|[^:_]*_|[A-Za-z]*")
_KbSetting = KnowledgeBase | str | Path
_Kbs = Sequence[KnowledgeBase]
_Own = list[tuple[KnowledgeBase, int]]


class _Vocabulary(NamedTuple):
    """A knowledge base's ids with one prefix, such as "HP:" ("" for UMLS)."""

    kb: KnowledgeBase
    prefix: str
    is_complete: bool  # False if the ids are imported or bundled: a missing id may still exist
    forms: frozenset[str]  # id patterns, such as "HP:0000000"; "P:#": any number of digits


def _why_missing(kb: KnowledgeBase, id: str) -> str:
    """Return why an id that a knowledge base lacks may still exist, or "" if it cannot."""
    if kb.selected:
        return f"not in {kb.where}: {kb.selected}"
    start, all_ids = id.rstrip("0123456789"), (kb.ids, kb.retired, sorted(kb.withdrawn))
    later = (ids[at] for ids in all_ids if (at := bisect_left(ids, id)) < len(ids))
    is_newer = not any(other.startswith(start) for other in later)
    return f"not in {kb.where}: perhaps newer, as all numbers there are smaller" * is_newer


def _form_of(id: str) -> str:
    return re.sub(r"\d", "0", re.sub(r"(?<!\d)(?:0|[1-9]\d{0,2})$", "#", id))


def _vocabularies_of(kb: KnowledgeBase) -> Iterator[_Vocabulary]:
    """Yield the vocabularies in a knowledge base, whose ids must be sorted."""
    start = 0
    while start < len(kb):
        # UMLS ids ("C0000001") have no prefix, and sort before ids that begin with "C:".
        prefix = _PREFIX.match(kb.ids[start])[0]  # type: ignore[index]
        is_prefix = prefix.endswith((":", "_"))
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1) if is_prefix else prefix + ":"
        end = max(bisect_left(kb.ids, after, start), start + 1)
        if is_prefix or prefix == "C":
            rows = np.linspace(start, end - 1, min(end - start, _N_SAMPLED)).astype(np.int64)
            forms = frozenset(map(_form_of, kb.ids_of(rows)))
            is_complete = end - start >= _MIN_SHARE * len(kb) and not bundled_name(kb)
            yield _Vocabulary(kb, prefix if is_prefix else "", is_complete, forms)
        start = end


def check(text: str, kb: _KbSetting | Sequence[_KbSetting] = "starter") -> list[CheckedId]:
    """Check that the ids in a text exist and match the names next to them.

    text (str): Text or Markdown, such as a language model's answer.
    kb: A knowledge base, its folder, or a name such as "starter:mesh"; or several of these, for ids
        with different prefixes. "starter": all bundled ones.
    RETURNS (list[CheckedId]): For each id, `verdict`, `name`, `id`, `found` (the concept with this
        id) and `proposals` (concepts that the name may mean).
    RAISES BioelError: The same errors as `kb.bundled.open_setting`.
    """
    return Checker([kb] if isinstance(kb, KnowledgeBase | str | Path) else kb).check_text(text)


class Checker:
    """Checks id-name pairs, each against the knowledge base for the id's prefix.

    kbs (Iterable): Open knowledge bases, folders, or names such as "starter:mesh". If several have
        ids with the same prefix, the first one that has an id decides, with a warning [W401].
    RAISES BioelError: The same errors as `kb.bundled.open_setting`.
    """

    def __init__(self, kbs: Iterable[_KbSetting]) -> None:
        bundled = [str(about["name"]) for about in list_bundled()]
        listed = chain.from_iterable(bundled if kb == "starter" else [kb] for kb in kbs)
        opened = (k if isinstance(k, KnowledgeBase) else open_setting(str(k)) for k in listed)
        self.kbs = tuple(chain.from_iterable(map(parts_of, opened)))
        self._vocabularies: dict[str, list[_Vocabulary]] = defaultdict(list)
        prefixes = set()
        for vocabulary in chain.from_iterable(map(_vocabularies_of, self.kbs)):
            prefixes.add(prefix := vocabulary.prefix.rstrip(":_"))
            same = self._vocabularies[prefix_key(prefix or "UMLS")]
            if vocabulary.is_complete and any(v.is_complete for v in same):
                about = {"first": same[0].kb.where, "second": vocabulary.kb.where}
                LOGGER.warning(CurationWarnings.W401.format(prefix=prefix, **about))
            same.append(vocabulary)
            same.sort(key=lambda v: not v.is_complete)  # incomplete vocabularies come last
        self.ids = id_pattern(frozenset(prefixes))
        self._judge = lru_cache(maxsize=1 << 16)(self._judged)

    def check(self, pair: Pair) -> CheckedId:
        """Check an id-name pair, and return it with a verdict."""
        names = tuple(name.text for name in pair.names)
        return replace(self._judge(pair.id.text, names, pair.has_name), pair=pair)

    def check_text(self, text: str) -> list[CheckedId]:
        """Check the ids in a text, such as a language model's answer."""
        lines = ((Place("", n), line) for n, line in enumerate(text.split("\n"), start=1))
        return list(map(self.check, text_pairs(lines, self.ids, self.values)))

    def values(self, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """Map pairs to AGREES (the text names the id's concept), NAMES (another concept) or 0."""
        texts_of: dict[str, dict[str, None]] = defaultdict(dict)
        for id, text in pairs:
            texts_of[id][text] = None
        texts = list(dict.fromkeys(chain.from_iterable(texts_of.values())))
        normalized = normalize_names(texts)
        meant: dict[str, set[tuple[int, int]]] = {text: set() for text in texts}
        for number, kb in enumerate(self.kbs):
            starts, concepts, _ = kb.concepts_of_names(kb.lookup_names(normalized))
            for text, start, end in zip(texts, starts[:-1], starts[1:], strict=True):
                if text not in _NOT_NAMES:  # the "as" in "coded as" is not AS
                    meant[text].update((number, row) for row in concepts[start:end].tolist())
        values = {}
        for id, own_texts in texts_of.items():
            _, own, kbs, _ = self._look_up(id)
            rows = {(self.kbs.index(kb), row) for kb, row in own}
            numbers = set(map(self.kbs.index, kbs))
            for text in own_texts:
                is_name = any(number in numbers for number, _ in meant[text])
                values[id, text] = AGREES if rows & meant[text] else NAMES * is_name
        return values

    def _look_up(self, raw: str) -> tuple[str, _Own, _Kbs, list[tuple[KnowledgeBase, list[str]]]]:
        """Return an id as its knowledge base spells it, the concepts that have or cross-reference
        it, the knowledge bases with its prefix, and the ids to consider if it was withdrawn."""
        prefix, local = split_id(raw) or ("", "")
        vocabularies = self._vocabularies.get(prefix_key(prefix), [])
        spelled = [(v.kb, v.prefix + form) for v in vocabularies for form in (local, local.upper())]
        known = ((id, [(kb, row)]) for kb, id in spelled if (row := kb.find(id)) >= 0)
        id, own = next(known, (spelled[0][1] if spelled else raw, _Own()))
        withdrawn = [(v.kb, v.kb.withdrawn[id]) for v in vocabularies if id in v.kb.withdrawn]
        # Use cross-references, unless a knowledge base consists mostly of this vocabulary.
        whole = (kb.ids[len(kb) // 2].startswith(p) for kb, p, known, _ in vocabularies if known)
        if prefix and not own and not withdrawn and not any(whole):
            own = self._xrefs.get((prefix_key(prefix), local), own)
            id = raw if own else id
        return id, own, [kb for kb, _ in own] or [v.kb for v in vocabularies], withdrawn

    def _judged(self, raw: str, candidates: Sequence[str], has_name: bool) -> CheckedId:
        prefix = (split_id(raw) or ("",))[0]
        vocabularies = self._vocabularies.get(prefix_key(prefix), [])
        id, own, found_in, withdrawn = self._look_up(raw)
        form, kbs = _form_of(id), list(dict.fromkeys(found_in))
        pair = Pair(Cell(raw))  # `check` sets its place
        if prefix and not kbs:
            return CheckedId(pair, IdVerdict.NOT_CHECKED, id, candidates[0] if has_name else "")
        kbs = kbs or list(self.kbs)
        names = [normalize_names(kb.names.take(kb.names_of(row))) for kb, row in own]
        own_names = dict.fromkeys(chain.from_iterable(names))
        name, likeness = _choose_name(candidates, has_name, own_names, kbs)
        verdict, found, proposals, reason = IdVerdict.OTHER, None, tuple[Meaning, ...](), ""
        if own:
            kb, row = own[0]
            found = Meaning(kb.ids[row], kb.preferred_name(row), round(likeness, 4))
            normalized = normalize_name(name)
            if found.id != id and kb.find(id) >= 0:  # not a cross-reference
                verdict = IdVerdict.RETIRED
            elif not name:
                verdict = IdVerdict.EXISTS
            elif normalized in [first for first, *_ in names]:
                verdict = IdVerdict.AGREES
            elif likeness:
                verdict = IdVerdict.SYNONYM if normalized in own_names else IdVerdict.CLOSE
                proposals = _preferred_by_others(normalized, own)
        elif withdrawn:
            verdict, (kb, listed) = IdVerdict.RETIRED, withdrawn[0]
            consider = [(other, kb.find(other)) for other in listed]
            proposals = tuple(Meaning(i, kb.preferred_name(r), 0.0) for i, r in consider if r >= 0)
        elif all(v.forms.isdisjoint((form, form.rstrip("0") + "#")) for v in vocabularies):
            verdict = IdVerdict.MALFORMED
        else:
            first, is_complete = vocabularies[0].kb, vocabularies[0].is_complete
            meant = first.concepts_of_names(first.lookup_names([normalize_name(name)]))[1]
            reason = _why_missing(first, id) if is_complete else ""
            # If the only concept with the name has another id, this id must be wrong.
            is_whole = bool(reason) and name in candidates[:1]  # not part of a longer name
            is_other = (is_whole or bool(bundled_name(first))) and len(meant) == 1
            if is_other or (is_complete and not reason):
                verdict, reason = IdVerdict.UNKNOWN, ""
            else:
                verdict = IdVerdict.NOT_CHECKED
        if name and not likeness and not proposals and verdict is not IdVerdict.NOT_CHECKED:
            proposals = _meanings_of(name, kbs, like=own)
            proposals = tuple(p for p in proposals if not (found and p.id == found.id))
        is_certain = bool(found) and verdict is IdVerdict.RETIRED and (likeness > _LOW or not name)
        return CheckedId(pair, verdict, id, name, found, proposals, is_certain, reason)

    @cached_property
    def _xrefs(self) -> dict[tuple[str, str], _Own]:
        """Concepts, keyed by the ids in their cross-references."""
        xrefs: dict[tuple[str, str], _Own] = defaultdict(list)
        for kb in self.kbs:
            for row, values in enumerate(kb.xrefs_of_all(np.arange(len(kb)))):
                for prefix, local in filter(None, map(split_id, values)):
                    xrefs[prefix_key(prefix), local].append((kb, row))
        return dict(xrefs)


def _choose_name(
    candidates: Sequence[str], has_name: bool, own: Collection[str], kbs: _Kbs
) -> tuple[str, float]:
    """Choose an id's name from the words around the id: the longest that names any concept.

    own (Collection[str]): Normalised names of the concepts with the id.
    RETURNS (tuple): The name ("" if the id stands alone), and its likeness to a name of the
        concept with the id (0 if all names of the concept are different).
    """
    others: list[str] = []
    for name in candidates:
        normalized = normalize_name(name).removeprefix("obsolete ")
        if not normalized or any(name in longer for longer in others):
            continue
        ends = normalized.partition(" ")[0], normalized.rpartition(" ")[2]
        is_cut = len(candidates) > 1 and not LINKING_WORDS.isdisjoint(ends)  # cut from a sentence
        if name in _NOT_NAMES:
            continue
        if normalized in own and not is_cut:
            return name, 1.0
        if _is_name(normalized, kbs):
            others += [name] * (has_name or len(normalized) >= _MIN_LETTERS)
        elif not is_cut and (likeness := _likeness(normalized, own, kbs)):
            return name, likeness
    return next(iter(others), candidates[0] if has_name else ""), 0.0


def _is_name(normalized: str, kbs: _Kbs) -> bool:
    return any(kb.lookup_names([normalized])[0] >= 0 for kb in kbs)


def _likeness(name: str, own: Iterable[str], kbs: _Kbs) -> float:
    """Return how similar an unknown name is to the names in `own` (0 if not at all).

    Names may differ in typing errors, in the order of words, and in endings such as plurals. A word
    is not an error if other concepts have this word or the respelt name. "Mouse" may be short for
    "house mouse", or the singular of "mice", unless another concept also fits.
    """
    likeness, errors = max((_compare(name, other) for other in own), default=(0.0, ()))
    if errors and any(_is_name(other, kbs) for other in respellings(name)):
        return 0.0
    if any(_is_known_word(error, kb) for error in errors for kb in kbs):
        return 0.0
    end = f" {name}"
    if likeness >= _LOW or not (likeness or any(other.endswith(end) for other in own)):
        return likeness
    meanings = _meanings_of(name, kbs)
    best, *others = [normalize_name(meaning.name) for meaning in meanings] or [""]
    is_clear = best in own and not any(other.endswith(end) for other in others)
    return min(meanings[0].score, _LOW) if is_clear else 0.0


def _compare(name: str, other: str) -> tuple[float, tuple[str, ...]]:
    """Compare two normalised names.

    RETURNS (tuple): Their likeness (0 if they differ in more than typing errors, word order and
        word endings), and the words of `name` with typing errors.
    """
    words, others = _content_words(name), _content_words(other)
    extra, missing = _without(words, others), _without(others, words)
    if "".join(extra) == "".join(missing):  # perhaps a missing or extra space
        extra = missing = []
    is_close = len(extra) == len(missing) <= _MAX_ERRORS and all(map(_is_misspelt, extra, missing))
    strings = " ".join(sorted(words)), " ".join(sorted(others))
    matcher = SequenceMatcher(None, *strings, autojunk=False)
    return (matcher.ratio(), tuple(extra)) if is_close else (0.0, ())


@cache
def _linking_words() -> dict[str, str]:
    """Return linking words such as "with", keyed by misspellings with swapped letters ("wtih")."""
    return {
        word[:i] + word[i + 1] + word[i] + word[i + 2 :]: word
        for word in LINKING_WORDS | PREPOSITIONS
        for i in range(len(word) - 1)
    }


def _content_words(normalized: str) -> list[str]:
    """Return the words of a normalised name, excluding linking words such as "of" and "with"."""
    words = []
    for word in normalized.split():
        other, frequencies = _linking_words().get(word, word), common_words()
        is_rare = _MIN_RATIO * frequencies.get(word, 0.0) < frequencies.get(other, 0.0)
        words.append(other if is_rare else word)
    return [word for word in words if word not in LINKING_WORDS]


def _without(words: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the words whose stems do not occur in `others`."""
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
    """Whether a word occurs in a knowledge base's names and so is not a misspelling."""
    [rows], _ = kb.ngrams.search([word], _N_SIMILAR)
    names = normalize_names(kb.names.take(rows[rows >= 0]))
    return any(word in name.split() for name in names)


def _preferred_by_others(normalized: str, own: _Own) -> tuple[Meaning, ...]:
    """Return other concepts whose preferred name is the given synonym."""
    others = []
    for kb, row in own[:1]:
        _, concepts, is_preferred = kb.concepts_of_names(kb.lookup_names([normalized]))
        others += [(kb, int(c)) for c in concepts[is_preferred] if c != row]
    return tuple(Meaning(kb.ids[row], kb.preferred_name(row)) for kb, row in others[:_N_PROPOSALS])


def _organism_of(kb: KnowledgeBase, row: int) -> str:
    return next((t for t in kb.types_of(row) if t.startswith(ORGANISM)), "")


def _meanings_of(
    name: str, kbs: _Kbs, *, like: Sequence[tuple[KnowledgeBase, int]] = ()
) -> tuple[Meaning, ...]:
    """Return the concepts with a name or, failing that, with similar names, best first.

    like (list): Among equally similar names, genes of these concepts' organisms come first.
    """
    query = normalize_name(name[:_MAX_SEARCHED])
    if not query:
        return ()
    named = [(kb, kb.lookup_names([query]), np.ones(1)) for kb in kbs]
    if all(rows[0] < 0 for _, rows, _ in named):
        found = [(kb, kb.ngrams.search([query], _N_SEARCHED)) for kb in kbs]
        named = [(kb, rows, scores) for kb, ([rows], [scores]) in found]
    best: dict[str, tuple[float, KnowledgeBase, int]] = {}
    for kb, rows, scores in named:
        starts, concepts, is_preferred = kb.concepts_of_names(rows[rows >= 0])
        scores = np.repeat(scores[rows >= 0], np.diff(starts))
        for i in np.lexsort((~is_preferred, -scores)).tolist():
            best.setdefault(kb.ids[row := int(concepts[i])], (round(float(scores[i]), 4), kb, row))
    organisms = {organism for kb, row in like if (organism := _organism_of(kb, row))}

    def order(item: tuple[str, tuple[float, KnowledgeBase, int]]) -> tuple[float, bool]:
        score, kb, row = item[1]
        return -score, bool(organisms) and _organism_of(kb, row) not in organisms

    kept = sorted(best.items(), key=order)[:_N_PROPOSALS]
    return tuple(Meaning(id, kb.preferred_name(row), score) for id, (score, kb, row) in kept)

"""Composite mentions such as "breast and ovarian cancer", whose parts share words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

from spacy.tokens import Doc

from spacy_bioel.batch import Batch, Query
from spacy_bioel.doc import text_of
from spacy_bioel.entities import EntityRules
from spacy_bioel.found import FoundSpans
from spacy_bioel.text.normalize import PREPOSITIONS, normalize_names

_MAX_READINGS = 4
_FAMILY_LABELS = frozenset({"Gene", "Disease", "Species"})
_BRACKET_CONTENT = re.compile(r"\s?[(\[][^()\[\]]*[)\]]")
_BRACKET_CHAR = re.compile(r"[()\[\]]")
# Separators between parts. A comma must be followed by white space, so "1,2-xylene" is one part.
_CONJUNCTION = re.compile(r"\s?\band\s?/\s?or\b\s?|\s(?:and|or|nor|as well as|&)\s|\s?/\s?", re.I)
_PART_SEPARATORS = re.compile(rf"(?:,?(?:{_CONJUNCTION.pattern})|,\s)+", re.I)
# Coordinations that name a single concept. Hiding their spaces makes each count as one word.
_FIXED_COORDINATION = re.compile(
    r"\b(head and neck|(?:hand,? )?foot and mouth|hand and foot)\b", re.I
)
_HIDDEN_SPACE = "\0"
_ARTICLES = {"the", "a", "an"}
_LEADING = _ARTICLES | {"both", "either", "neither", "some"}
_OTHER = re.compile(r"^(?:(?:many|some|several)\s+)?other\s+", re.I)
_LINKING = PREPOSITIONS | _ARTICLES
# A number or letter that distinguishes family members: "2", "2a", "B", "C7", "IV".
_MEMBER_NUMBER = re.compile(r"\d{1,3}[a-z]?|[a-z]\d{0,2}|[ivx]{1,4}", re.I)
# Patterns for the number after a family name ("1" in "ERK1", "3" in "caspase-3", "A8" in "S100A8",
# "A" in "IL-17A"), each with the characters that may precede the number.
_MEMBER_FORMS = [
    (re.compile(form, re.I), re.compile(rf"(?<={before})(?:{form})$", re.I))
    for form, before in (
        (r"\d{1,2}[a-zα-ω]?", r"[a-zα-ω-]"),
        (r"[a-z]\d{1,2}", r"\d"),
        (r"[a-zα-ω]", r"[\d-]"),
    )
]
# Further family members after a name: "/2" and ", -6 and -8", but not "/5%", "/5 ng", "/24 h" or
# "/β-catenin".
_QUANTITY_UNIT = r"[mμn]?[gMLl]|h|hr|hrs|hours?|min|days?|weeks?|months?|years?"
_NO_QUANTITY = rf"(?![\w%]|[.,]\d|\s?(?:{_QUANTITY_UNIT})\b)"
_MORE_MEMBERS = [
    re.compile(
        rf"(?:(?:/-?{form}){{1,20}}|(?:, -{form}){{0,20}},? (?:and|or|&) -{form}){_NO_QUANTITY}"
    )
    for form in (r"\d{1,2}[A-Za-zα-ω]?", r"[A-Z]\d{1,2}", r"[A-Zα-ω](?!-)")
]
# Further members may be numbers without hyphens if the next word fits: "HDAC1, 2 and 3 were", but
# not "IL-6 and 2 patients".
_LAST_NUMBER = re.compile(r"(?<=[a-zα-ω -])\d{1,2}$", re.I)
_AFTER_NUMBERS = (
    r"[.,;:)]|\s?$|\s(?!of\b)(?:[a-z]{2}|and|are|but|can|did|for|from|had|has|have|may|was|were|which"
    r"|with)\b"
)
_MORE_NUMBERS = re.compile(
    rf"(?:, \d{{1,2}}){{0,20}},? (?:and|or|&) \d{{1,2}}{_NO_QUANTITY}(?={_AFTER_NUMBERS})"
)
# Letters and Roman numerals of members ("hepatitis A", "synapsin II"), and lists (", C and D").
_LETTER = r"(?:[A-E]|I{1,3}|IV|V)"
_LAST_LETTER = re.compile(rf"(?<=[a-z] |[A-Z]-){_LETTER}$")
_MORE_LETTERS = re.compile(rf"(?:, {_LETTER}){{0,20}},? (?:and|or|&) {_LETTER}(?![\w-])")
# "FGFR1-3" means FGFR1, 2 and 3; "GSTA1-1", "KRTAP10-3" and the allele "cdc4-10" are not ranges.
_MEMBER_RANGE = re.compile(r"(?<=[A-Za-zα-ω ])(\d{1,2}) ?[-–] ?(\d{1,2})(?= |$)")
_MAX_RANGE_MEMBERS = 8
# Prefixes in word pairs such as "intra- and extrahepatic"; longer prefixes come first.
_WORD_PREFIX = re.compile(
    "extra|intra|inter|infra|supra|hypo|hyper|micro|macro|mono|multi|poly|oligo|post|peri|para|"
    "pre|sub|non|uni|bi|tri|tetra|quadri|hemi|para|normo|endo|exo|ante|anti",
    re.I,
)


@lru_cache(maxsize=1 << 14)  # the same mentions recur in a document
def split_composite(mention: str) -> list[tuple[str, ...]]:
    """Split a composite mention (as written) into its parts, repeating shared words in each part.

    Parts may lack words at the end ("breast and ovarian cancer"), at the start ("hepatitis B and
    C"), at both ends ("type 1 and 2 diabetes") or nowhere ("fever and cough"). Only a dictionary
    can decide between these readings: callers look up all parts of a reading, and use the first
    reading whose parts are all names, unless the whole mention is a name.

    RETURNS (list[tuple[str, ...]]): At most 4 readings with two or more distinct parts, the
        likeliest first; empty if nothing is coordinated. For the first example: ("breast cancer",
        "ovarian cancer"), then ("breast", "ovarian cancer").
    """
    # Collapse white space, because the patterns take quadratic time on long runs of it.
    mention = " ".join(mention.split())
    segments = _segments(mention if mention.islower() else _MEMBER_RANGE.sub(_members, mention))
    if len(segments) < 2:
        return []
    segments = _with_whole_words(segments)
    first, last = segments[0], segments[-1]
    costs: dict[tuple[str, ...], float] = {}
    # There is no shared prefix if both parts start with the same word ("type 1 and type 2"), and no
    # shared suffix if both end with the same word ("renal failure or liver failure").
    prefixes = 1 if _same(first[0], last[0]) else len(first)
    suffixes = 1 if _same(first[-1], last[-1]) else len(last)
    for prefix, suffix in product(range(prefixes), range(suffixes)):
        if _is_cut_at_linking_word(first[prefix:], last[: len(last) - suffix]):
            continue
        parts = _written_out(segments, prefix=prefix, suffix=suffix)
        distinct = {part.lower() for part in parts if len(part) > 1 and not part.isdigit()}
        if len(distinct) == len(parts):
            cost = _cost(first, last, prefix=prefix, suffix=suffix)
            costs[parts] = min(cost, costs.get(parts, cost))
    ranked = sorted(costs, key=costs.__getitem__)
    # Always keep the reading without shared words.
    unshared = [parts for parts in ranked[_MAX_READINGS:] if parts == _written_out(segments)]
    return ranked[: _MAX_READINGS - len(unshared)] + unshared


def end_with_members(text: str, start: int, end: int) -> int:
    """Return a mention's end, extended to cover other family members: "CDK4" to "CDK4/6",
    "IL-6" to "IL-6 and -8", "HDAC1" to "HDAC1, 2 and 3".

    All corpora except CRAFT annotate such members as one mention.

    start, end (int): Character offsets of the mention.
    RETURNS (int): The new end.
    """
    mention = text[start:end]
    for (_, member), further_members in zip(_MEMBER_FORMS, _MORE_MEMBERS, strict=True):
        if member.search(mention) and (more := further_members.match(text, end)):
            return more.end()
    if (number := _LAST_NUMBER.search(mention)) and (more := _MORE_NUMBERS.match(text, end)):
        numbers = [int(number.group()), *map(int, re.findall(r"\d+", more.group()))]
        if numbers == sorted(set(numbers)):  # excludes "COVID-19 and 3 were"
            return more.end()
    more = _LAST_LETTER.search(mention) and _MORE_LETTERS.match(text, end)
    return more.end() if more else end


def _members(number_range: re.Match[str]) -> str:
    """Expand a number range ("1-3" to "1, 2 and 3"); return other matches unchanged."""
    first, last = map(int, number_range.groups())
    if not 0 < last - first < _MAX_RANGE_MEMBERS:
        return number_range.group()
    return ", ".join(map(str, range(first, last))) + f" and {last}"


def _segments(mention: str) -> list[list[str]]:
    """Split a mention at its conjunctions into lists of words; return [] if it has none."""
    outside = _BRACKET_CONTENT.sub("", mention)
    text = outside if _CONJUNCTION.search(outside) else _BRACKET_CHAR.sub(" ", mention)
    text = " ".join(text.split()).strip(" .,;:")
    text = _FIXED_COORDINATION.sub(lambda m: m.group().replace(" ", _HIDDEN_SPACE), text)
    if not _CONJUNCTION.search(text):
        return []
    segments = []
    for segment in _PART_SEPARATORS.split(text):
        words = segment.split()
        # "A" may identify a family member, as in "hepatitis B or A".
        while len(words) > 1 and words[0] != "A" and words[0].lower() in _LEADING:
            del words[0]
        if words:
            segments.append(words)
    return segments


def _with_whole_words(segments: list[list[str]]) -> list[list[str]]:
    """Complete words that omit a part given in another word: "B-" before "T-cell", "intra-"
    before "extrahepatic", "-6" after "IL-2", and "2" after "ERK1"."""
    shared_end = _end_of_word(segments[-1][0])
    stem, hyphen, _ = segments[0][-1].rpartition("-")
    for words in segments[:-1]:
        if len(words[-1]) > 1 and words[-1].endswith("-"):
            words[-1] = words[-1][:-1] + shared_end
    for words in segments[1:]:
        if len(words[0]) > 1 and words[0].startswith("-") and stem:
            words[0] = stem + hyphen + words[0][1:]
        words[0] = _member_name(segments[0][-1], words[0])
    return segments


def _member_name(first: str, word: str) -> str:
    """Build a family member's name from its number: "ERK2" from "ERK1" and "2"."""
    for number, member in _MEMBER_FORMS:
        if number.fullmatch(word) and (first_number := member.search(first)):
            return first[: first_number.start()] + word
    return word


def _end_of_word(word: str) -> str:
    """Strip a word's prefix to get the part that other words may share: "-cell" from "T-cell",
    "hepatic" from "extrahepatic"."""
    _, hyphen, end = word.partition("-")
    if end:
        return hyphen + end
    prefix = _WORD_PREFIX.match(word) or re.match(r"\w{2,}?o(?=[^\Waeiou]\w{3})", word)
    return word[prefix.end() :] if prefix else ""


def _written_out(
    segments: Sequence[list[str]], *, prefix: int = 0, suffix: int = 0
) -> tuple[str, ...]:
    """Return the parts, each with the mention's first `prefix` and last `suffix` words added."""
    before = segments[0][:prefix]
    after = segments[-1][len(segments[-1]) - suffix :]
    parts = []
    for words in segments:
        # In "type 1 and type 2 diabetes" each part already has the shared word "type".
        is_first, is_last = words is segments[0], words is segments[-1]
        lead = [] if is_first or not before or _same(before[0], words[0]) else before
        tail = [] if is_last or not after or _same(after[-1], words[-1]) else after
        part = " ".join([*lead, *words, *tail]).replace(_HIDDEN_SPACE, " ")
        parts.append(_OTHER.sub("", part))
    return tuple(parts)


def _same(word: str, other: str) -> bool:
    """Whether two words are identical, ignoring case and a plural "s"."""
    return word.lower().removesuffix("s") == other.lower().removesuffix("s")


def _cost(first: list[str], last: list[str], *, prefix: int, suffix: int) -> float:
    """Return the cost of a reading with `prefix` and `suffix` shared words; lower is likelier."""
    # Prefer parts of similar length and splits at prepositions.
    unshared_first, unshared_last = first[prefix:], last[: len(last) - suffix]
    cost = float(abs(len(unshared_first) - len(unshared_last)))
    is_one_word_each = len(unshared_first) == len(unshared_last) == 1
    if is_one_word_each and all(map(_MEMBER_NUMBER.fullmatch, unshared_first + unshared_last)):
        cost -= 3.0  # "hepatitis B and C"
    elif prefix:
        ends = [word.lower() for word in first[:prefix][-2:]]
        if ends[-1] in _LINKING and not PREPOSITIONS.isdisjoint(ends):
            cost -= 1.0  # favours "cancer of the breast and ovary"
        else:
            cost += 0.5 if len(last) == 1 else 1.5
    if suffix == 1:
        # A single noun can be shared by parts of any length: "facial and central nervous system
        # defects".
        cost = min(cost, 1.9) - 0.9
    if not prefix and not suffix:
        cost += 0.7
    starts = [i for i, word in enumerate(last) if word.lower() in PREPOSITIONS]
    if suffix and starts and len(last) - suffix != starts[0]:
        cost += 2.0  # likelier split: "aplasia and hypoplasia | of the thymus"
    return cost


def _is_cut_at_linking_word(unshared_first: list[str], unshared_last: list[str]) -> bool:
    """Whether a split leaves a linking word at the edge of a part: "the breast", "aplasia of"."""
    starts_with_one = len(unshared_first) > 1 and unshared_first[0].lower() in _LINKING
    ends_with_one = len(unshared_last) > 1 and unshared_last[-1].lower() in _LINKING
    return starts_with_one or ends_with_one


class Composites(EntityRules):
    """Extend mentions to other family members ("CDK4" to "CDK4/6"), and look up the parts of
    mentions that name several concepts.
    """

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> None:
        for doc, of_doc in zip(docs, spans, strict=True):
            text = text_of(doc)
            for span in of_doc.spans:
                if span[2] in _FAMILY_LABELS:
                    start, end = doc[span[0]].idx, doc[span[1] - 1].idx + len(doc[span[1] - 1])
                    new_end = end_with_members(text, start, end)
                    if new_end != end and (whole := doc.char_span(start, new_end)) is not None:
                        widened = span[0], whole.end, *span[2:]
                        of_doc.add(widened, "widened to the whole composite", instead_of=[span])

    def prepare(self, batch: Batch) -> Sequence[Query]:
        if batch.n_parts:
            return batch.queries
        return [
            replace(query, readings=tuple(tuple(normalize_names(r)) for r in readings))
            if (readings := split_composite(query.text))
            else query
            for query in batch.queries
        ]


create_composites_v1 = Composites  # registered as `spacy-bioel.Composites.v1`

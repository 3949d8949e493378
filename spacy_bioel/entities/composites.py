"""Composite mentions, whose parts share words: "breast and ovarian cancer"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from spacy.tokens import Doc

from spacy_bioel.doc import likeliest, text_of
from spacy_bioel.entities import EntityRules, Mentions, Query
from spacy_bioel.explanation import Trace
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import ScoredSpan

_MOST_READINGS = 4
_BRACKETED = re.compile(r"\s*[(\[][^()\[\]]*[)\]]")
_BRACKET = re.compile(r"[()\[\]]")
# Separators of the parts. A comma counts only before white space: not in "1,2-xylene".
_CONJUNCTION = re.compile(r"\s*\band\s*/\s*or\b\s*|\s+(?:and|or|nor|as well as|&)\s+|\s*/\s*", re.I)
_BETWEEN = re.compile(rf"(?:,?(?:{_CONJUNCTION.pattern})|,\s+)+", re.I)
# Fixed coordinations of one concept; their spaces are hidden, so that they count as one word.
_FIXED = re.compile(r"\b(head and neck|(?:hand,? )?foot and mouth|hand and foot)\b", re.I)
_HIDDEN = "\0"
_ARTICLES = {"the", "a", "an"}
_LEADING = _ARTICLES | {"both", "either", "neither", "some"}
_REST = re.compile(r"^(?:(?:many|some|several)\s+)?other\s+", re.I)
_PREPOSITIONS = {"of", "in", "to", "with", "from", "by", "for", "on", "at", "due", "without"}
_LINKING = _PREPOSITIONS | _ARTICLES
# Numbers of the members of a family: "2", "2a", "B", "C7", "IV".
_NUMBER = re.compile(r"\d{1,3}[a-z]?|[a-z]\d{0,2}|[ivx]{1,4}", re.I)
# Forms of the numbers of members that are written right behind the name of the family: "1" of
# "ERK1" and "caspase-3", "A8" of "S100A8", "A" of "IL-17A"; what may stand before each.
_MEMBERS = (
    (r"\d{1,2}[a-zα-ω]?", r"[a-zα-ω-]"),
    (r"[a-z]\d{1,2}", r"\d"),
    (r"[a-zα-ω]", r"[\d-]"),
)
_MEMBER_FORMS = [
    (re.compile(form, re.I), re.compile(rf"(?<={before})(?:{form})$", re.I))
    for form, before in _MEMBERS
]
# What may follow each where a text names more members: "/2" and ", -6 and -8"; not "/5%", "/5 ng",
# "/24 h" and "/β-catenin".
_UNIT = r"[mμn]?[gMLl]|h|hr|hrs|hours?|min|days?|weeks?|months?|years?"
_NO_MORE = rf"(?![\w%]|[.,]\d|\s?(?:{_UNIT})\b)"
_MORE_MEMBERS = [
    re.compile(rf"(?:(?:/-?{form})+|(?:, -{form})*,? (?:and|or|&) -{form}){_NO_MORE}")
    for form in (r"\d{1,2}[A-Za-zα-ω]?", r"[A-Z]\d{1,2}", r"[A-Zα-ω](?!-)")
]
# What may follow without hyphens, and behind it: "HDAC1, 2 and 3 were", not "IL-6 and 2 patients".
_LAST_NUMBER = re.compile(r"(?<=[a-zα-ω -])\d{1,2}$", re.I)
_AFTER = (
    r"[.,;:)]|\s?$|\s(?!of\b)(?:[a-z]{2}|and|are|but|can|did|for|from|had|has|have|may|was|were|which"
    r"|with)\b"
)
_MORE_NUMBERS = re.compile(rf"(?:, \d{{1,2}})*,? (?:and|or|&) \d{{1,2}}{_NO_MORE}(?={_AFTER})")
# "A" of "hepatitis A", "HLA-A" and "II" of "synapsin II", and what may follow: ", C and D".
_LETTER = r"(?:[A-E]|I{1,3}|IV|V)"
_LAST_LETTER = re.compile(rf"(?<=[a-z] |[A-Z]-){_LETTER}$")
_MORE_LETTERS = re.compile(rf"(?:, {_LETTER})*,? (?:and|or|&) {_LETTER}(?![\w-])")
# "FGFR1-3" is FGFR1, 2 and 3; "GSTA1-1" and "KRTAP10-3" are none, nor are alleles, "cdc4-10".
_RANGE = re.compile(r"(?<=[A-Za-zα-ω ])(\d{1,2}) ?[-–] ?(\d{1,2})(?= |$)")
_MOST_MEMBERS = 8
# Word beginnings for pairs such as "intra- and extrahepatic", longer ones first.
_BEGINNING = re.compile(
    "extra|intra|inter|infra|supra|hypo|hyper|micro|macro|mono|multi|poly|oligo|post|peri|para|"
    "pre|sub|non|uni|bi|tri|tetra|quadri|hemi|para|normo|endo|exo|ante|anti",
    re.I,
)

Words = list[str]


def split_composite(mention: str) -> list[tuple[str, ...]]:
    """Split a composite mention, as written, into its parts, each completed with the shared words.

    A part lacks words at its end ("breast and ovarian cancer"), at its beginning ("hepatitis B
    and C"), at both ("type 1 and 2 diabetes") or none ("fever and cough"). Grammar does not
    decide between them, a dictionary does: callers look up all parts of a reading, and take the
    first reading whose parts are all names, unless the whole mention is a name.

    RETURNS (list[tuple[str, ...]]): At most 4 readings of two or more distinct parts, the
        likeliest first; empty without coordination. ["breast cancer", "ovarian cancer"] is the
        first reading of the first example, ["breast", "ovarian cancer"] the second.
    """
    # White space is collapsed, since long runs of it make the patterns quadratic.
    mention = " ".join(mention.split())
    segments = _segments(mention if mention.islower() else _RANGE.sub(_members, mention))
    if len(segments) < 2:
        return []
    first, last = segments[0], segments[-1]
    costs: dict[tuple[str, ...], float] = {}
    # In "type 1 and type 2" no beginning is shared; in "renal failure or liver failure" no end.
    prefixes = 1 if _same(first[0], last[0]) else len(first)
    suffixes = 1 if _same(first[-1], last[-1]) else len(last)
    for prefix, suffix in product(range(prefixes), range(suffixes)):
        if _cut_beside_linking_word(first[prefix:], last[: len(last) - suffix]):
            continue
        parts = _written_out(segments, prefix=prefix, suffix=suffix)
        distinct = {part.lower() for part in parts if len(part) > 1 and not part.isdigit()}
        if len(distinct) == len(parts):
            cost = _cost(first, last, prefix=prefix, suffix=suffix)
            costs[parts] = min(cost, costs.get(parts, cost))
    ranked = sorted(costs, key=costs.__getitem__)
    # The reading without shared words is always kept.
    whole = [parts for parts in ranked[_MOST_READINGS:] if parts == _written_out(segments)]
    return ranked[: _MOST_READINGS - len(whole)] + whole


def end_with_members(text: str, start: int, end: int) -> int:
    """Where a mention ends with the members of its family that follow: "CDK4" of "CDK4/6", "IL-6"
    of "IL-6 and -8", "HDAC1" of "HDAC1, 2 and 3", "hepatitis B" of "hepatitis B and C". All corpora
    but CRAFT have them in it.

    start, end (int): Character offsets of the mention.
    RETURNS (int): Its new end.
    """
    mention = text[start:end]
    for (_, member), more in zip(_MEMBER_FORMS, _MORE_MEMBERS, strict=True):
        if member.search(mention) and (found := more.match(text, end)):
            return found.end()
    if (own := _LAST_NUMBER.search(mention)) and (found := _MORE_NUMBERS.match(text, end)):
        numbers = [int(own.group()), *map(int, re.findall(r"\d+", found.group()))]
        if numbers == sorted(set(numbers)):  # no "COVID-19 and 3 were"
            return found.end()
    found = _LAST_LETTER.search(mention) and _MORE_LETTERS.match(text, end)
    return found.end() if found else end


def _members(of_range: re.Match[str]) -> str:
    """Write out a range of numbers, "1, 2 and 3" for "1-3"; one that is none stays."""
    first, last = map(int, of_range.groups())
    if not 0 < last - first < _MOST_MEMBERS:
        return of_range.group()
    return ", ".join(map(str, range(first, last))) + f" and {last}"


def _segments(mention: str) -> list[Words]:
    """Words of each coordinated segment; fewer than two segments without a conjunction."""
    outside = _BRACKETED.sub("", mention)
    text = outside if _CONJUNCTION.search(outside) else _BRACKET.sub(" ", mention)
    text = _FIXED.sub(lambda m: m.group().replace(" ", _HIDDEN), text.strip(" .,;:"))
    if not _CONJUNCTION.search(text):
        return []
    segments = []
    for stretch in _BETWEEN.split(text):
        words = stretch.split()
        # "A" may be a number, as in "hepatitis B or A".
        while len(words) > 1 and words[0] != "A" and words[0].lower() in _LEADING:
            del words[0]
        if words:
            segments.append(words)
    return _joined_at_hyphens(segments)


def _joined_at_hyphens(segments: list[Words]) -> list[Words]:
    """Complete "B-" before "T-cell", "intra-" before "extrahepatic", "-6" after "IL-2", and "2"
    after "ERK1"."""
    if len(segments) < 2:
        return segments
    rest = _rest_of_word(segments[-1][0])
    stem, hyphen, _ = segments[0][-1].rpartition("-")
    for words in segments[:-1]:
        if len(words[-1]) > 1 and words[-1].endswith("-"):
            words[-1] = words[-1][:-1] + rest
    for words in segments[1:]:
        if len(words[0]) > 1 and words[0].startswith("-") and stem:
            words[0] = stem + hyphen + words[0][1:]
        words[0] = _of_family(segments[0][-1], words[0])
    return segments


def _of_family(first: str, word: str) -> str:
    """The whole name of a member, where a word is only its number: "ERK2" of "ERK1" and "2"."""
    for number, member in _MEMBER_FORMS:
        if number.fullmatch(word) and (own := member.search(first)):
            return first[: own.start()] + word
    return word


def _rest_of_word(word: str) -> str:
    """Shareable end of a word: "-cell" of "T-cell", "hepatic" of "extrahepatic"."""
    _, hyphen, rest = word.partition("-")
    if rest:
        return hyphen + rest
    beginning = _BEGINNING.match(word) or re.match(r"\w{2,}?o(?=[^\Waeiou]\w{3})", word)
    return word[beginning.end() :] if beginning else ""


def _written_out(segments: Sequence[Words], *, prefix: int = 0, suffix: int = 0) -> tuple[str, ...]:
    """Complete all parts: they share `prefix` words of the first and `suffix` words of the last."""
    before = segments[0][:prefix]
    after = segments[-1][len(segments[-1]) - suffix :]
    parts = []
    for number, words in enumerate(segments):
        # In "type 1 and type 2 diabetes" each part already has the shared word "type".
        lead = before if number > 0 and before and not _same(before[0], words[0]) else []
        tail = after if number < len(segments) - 1 and after else []
        if tail and _same(tail[-1], words[-1]):
            tail = []
        part = " ".join([*lead, *words, *tail]).replace(_HIDDEN, " ")
        parts.append(_REST.sub("", part))
    return tuple(parts)


def _same(word: str, other: str) -> bool:
    """Whether words are equal except for case and a plural s."""
    return word.lower().removesuffix("s") == other.lower().removesuffix("s")


def _cost(first: Words, last: Words, *, prefix: int, suffix: int) -> float:
    """Cost of a reading with so many shared words; lower is likelier.

    Parts of similar length are likely, and so is a cut at a preposition.
    """
    own_first, own_last = first[prefix:], last[: len(last) - suffix]
    cost = float(abs(len(own_first) - len(own_last)))
    if len(own_first) == len(own_last) == 1 and all(map(_NUMBER.fullmatch, own_first + own_last)):
        cost -= 3.0  # "hepatitis B and C"
    elif prefix:
        ends = [word.lower() for word in first[:prefix][-2:]]
        if ends[-1] in _LINKING and not _PREPOSITIONS.isdisjoint(ends):
            cost -= 1.0  # "cancer of the breast and ovary"
        else:
            cost += 0.5 if len(last) == 1 else 1.5
    if suffix == 1:
        # One shared noun, parts of any length: "craniofacial and central nervous system defects".
        cost = min(cost, 1.9) - 0.9
    if not prefix and not suffix:
        cost += 0.7
    starts = [i for i, word in enumerate(last) if word.lower() in _PREPOSITIONS]
    if suffix and starts and len(last) - suffix != starts[0]:
        cost += 2.0  # likelier at the preposition: "aplasia and hypoplasia | of the thymus"
    return cost


def _cut_beside_linking_word(own_first: Words, own_last: Words) -> bool:
    """Whether a cut leaves a linking word at the border of a part: "the breast", "aplasia of"."""
    borders = [own_first[0]] * (len(own_first) > 1) + [own_last[-1]] * (len(own_last) > 1)
    return any(word.lower() in _LINKING for word in borders)


class Composites(EntityRules):
    """Widen mentions to the members of a family that follow ("CDK4" of "CDK4/6"), and look for the
    parts of mentions that name several concepts.
    """

    _families = frozenset({"Gene", "Disease", "Species"})  # labels

    def find(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        traces: Sequence[Trace] | None,
    ) -> list[list[ScoredSpan]]:
        widened = [
            likeliest([(s[0], self._end(doc, text, s), *s[2:]) for s in of_doc])
            for doc, text, of_doc in zip(docs, map(text_of, docs), spans, strict=True)
        ]
        for trace, before, after in zip(traces or (), spans, widened, strict=False):
            trace.changed(before, after, "with the rest of a composite")
        return widened

    def _end(self, doc: Doc, text: str, span: ScoredSpan) -> int:
        """The end of a mention, or of the composite that it begins."""
        start, end, label, _ = span
        if label not in self._families:
            return end
        first, last = doc[start].idx, doc[end - 1].idx + len(doc[end - 1])
        if (rest := end_with_members(text, first, last)) == last:
            return end
        whole = doc.char_span(first, rest)
        return end if whole is None else whole.end

    def queries(self, mentions: Mentions) -> Sequence[Query]:
        if mentions.n_parts:
            return mentions.queries
        return [
            replace(query, readings=tuple(tuple(normalize_names(r)) for r in readings))
            if (readings := split_composite(query.text))
            else query
            for query in mentions.queries
        ]


def create_composites_v1() -> Composites:
    """Registered as `spacy-bioel.Composites.v1`."""
    return Composites()

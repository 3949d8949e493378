"""Rules of what texts say of mentions: phrases and sections, and how they are read from JSON.

Answers ("Fever: no") and signs ("(-) fever"), which speak for what stands beside them.

What a text says of a mention: negated, uncertain, past, conditional, or of another person.

ConText: Harkema et al. (2009), ConText: An algorithm for determining negation, experiencer, and
temporal status from clinical reports, https://doi.org/10.1016/j.jbi.2009.05.002; for negation
Chapman et al. (2001), https://doi.org/10.1006/jbin.2001.1029. A cue ("denies", "was ruled out")
speaks for the mentions after or before it, up to the end of its sentence or a word that ends its
scope ("but"). Sections ("Family history:") speak for all mentions in them. Answers and signs speak
for what stands beside them, see `entities.notes.context`.

The pipe `bioel_context`: what the text says of each mention, after the pipes that find them.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.attrs import IS_SPACE, LOWER
from spacy.pipeline.pipe import Pipe
from spacy.tokens import Doc

from spacy_bioel.doc import linked_groups, set_contexts, text_of
from spacy_bioel.entities.notes.layout import headers
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.explanation import register_extensions
from spacy_bioel.pipe import SavedFiles, save_files
from spacy_bioel.settings import SPANS_KEY
from spacy_bioel.text.sentences import _ITEM, sentence_borders
from spacy_bioel.types import Context

# What cues say: flags of a Context, and persons who are not the patient.
FLAGS = ("negated", "uncertain", "historical", "hypothetical")
PERSONS = ("family", "other")
ALL = "all"  # ends the scope of every cue
AFFIRMED = ""  # what an answer or a sign says that is no negation
BESIDE = "negated beside"  # signs that negate in a line with one that affirms: "-" begins items too
_DIRECTIONS = ("forward", "backward", "both", "behind")
# What stands between a question and its answer.
_ASKED = r"(?<=[\w)\]])[^\S\n]*(?:[:(|\t—–]|[^\S\n]--?(?=[^\S\n]))[^\S\n|]*"
_IS = r"[^\S\n]+(?:(?:is|are|was|were)[^\S\n]+)?"


class Phrase(NamedTuple):
    """A phrase of the rules in a text, by offsets in characters.

    says (str | None): Of an answer or a sign; None: what the rules have for its name.
    reach (int): How far back an answer speaks; -1: it speaks for what follows.
    """

    start: int
    end: int
    name: str
    says: str | None = None
    reach: int = -1


@dataclass(frozen=True)
class Rules:
    """Phrases, in small letters, and names of sections, each with what it says.

    cues (Mapping): From a phrase to what it says and in which direction.
    pseudo (frozenset[str]): Phrases that have a cue in them and are none: "no increase".
    ends (Mapping): From a phrase to what cues say whose scopes it ends, or "all".
    sections (Mapping): From the name of a section to what it says; "" for nothing.
    answers (Mapping): From what stands behind a question ("Fever: no") to what it says: a flag, or
        "" where it affirms.
    signs (Mapping): The same of what stands right before or behind a name: "(-) fever".
    opens (Sequence[str]): First words of a sentence that is of no section any more.
    empty (Sequence[str]): What a section says that has nothing: "noncontributory".
    now (Sequence[str]): What tells that a sentence in a section of the past is of today.
    """

    cues: Mapping[str, Sequence[tuple[str, str]]]
    pseudo: frozenset[str] = frozenset()
    ends: Mapping[str, set[str]] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    signs: Mapping[str, str] = field(default_factory=dict)
    opens: Sequence[str] = ()
    empty: Sequence[str] = ()
    now: Sequence[str] = ()

    @property
    def phrases(self) -> list[str]:
        """All phrases that are looked for."""
        return list(dict.fromkeys([*self.cues, *self.pseudo, *self.ends]))

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """Of what is not looked for word by word."""
        affirming = (answer for answer, says in self.answers.items() if says == AFFIRMED)
        found = {
            "answer": rf"{_ASKED}(?P<mark>{_any(self.answers)})",
            "affirmed": rf"{_IS}(?:{_any(affirming)})",
            "sign": rf"(?<![\w+/-])(?:{_any(self.signs)})(?![\d/])",
            "opens": rf"(?:{_any(self.opens)})",
            "now": rf"(?<!\w)(?:{_any(self.now)})",
            "empty": rf"\s*(?:(?:is|was)\s)?(?:{_any(self.empty)})(?![\w,]| \w)",
        }
        return {name: re.compile(pattern, re.I) for name, pattern in found.items()}


def _any(words: Iterable[str]) -> str:
    """Pattern of one of several strings, which are whole words; of none it matches nothing."""
    longest = sorted(words, key=len, reverse=True)
    return "|".join(re.escape(w) + r"(?!\w)" * w[-1].isalnum() for w in longest) or r"(?!)"


def read_rules(path: Path) -> dict[str, Any]:
    """Read the JSON of a file such as spacy_bioel/assets/context.json. RAISES BioelError: [B490]"""
    try:
        rules: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
        return rules
    except (OSError, ValueError, RecursionError) as error:
        raise BioelError(Errors.B490.format(path=path, error=error)) from error


def parse_rules(table: Mapping[str, Any], *, origin: str) -> Rules:
    """Parse the contents of a file of rules. RAISES BioelError: [B490]"""
    try:
        return _rules(table)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise BioelError(Errors.B490.format(path=origin, error=error)) from error


def _rules(table: Mapping[str, Any]) -> Rules:
    cues: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for says, by_direction in table["cues"].items():
        for direction, phrases in by_direction.items():
            _check(says, (*FLAGS, *PERSONS))
            _check(direction, _DIRECTIONS)
            for phrase in _phrases(phrases):
                cues[phrase].append((says, direction))
    ends: dict[str, set[str]] = defaultdict(set)
    for of, phrases in table.get("ends", {}).items():
        for phrase in _phrases(phrases):
            ends[phrase].add(_check(of, (*FLAGS, *PERSONS, ALL)))
    sections = {
        name: _check(says, (*FLAGS, *PERSONS, ""))
        for says, names in table.get("sections", {}).items()
        for name in _phrases(names)
    }
    answers, signs = (
        {
            name: _check(says, (*FLAGS, AFFIRMED, BESIDE))
            for says, names in table.get(key, {}).items()
            for name in _phrases(names)
        }
        for key in ("answers", "signs")
    )
    pseudo, *lists = (_phrases(table.get(key, ())) for key in ("pseudo", "opens", "empty", "now"))
    return Rules(dict(cues), frozenset(pseudo), dict(ends), sections, answers, signs, *lists)


def _check(name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise ValueError(f"{name!r} is none of {', '.join(filter(None, known))}")
    return name


def _phrases(found: Any) -> list[str]:
    if isinstance(found, str) or not all(isinstance(one, str) and one.split() for one in found):
        raise ValueError(f"expected a list of phrases, found {found!r:.60}")
    return [" ".join(one.lower().split()) for one in found]


# What follows "no" and "denies" where they are answers.
_DONE = re.compile(
    r"[^\S\n]*(?:[.,;)|]|\n(?![^\S\n]*[a-z])|\Z"
    r"|(?:since|now|today|currently|recently|at|ever)\b)"
)
_OF_QUESTIONS, _OF_ITEMS = ".;:|\n", ".;:|\n,"  # borders
_LONGEST_QUESTION = 120  # characters of a question
_CLOSED = re.compile(r"\bn?or\b[^,]*,")  # "No A or B," is a whole list
_MARKED_LINE = re.compile(r"[^\n]+")
_MINUS = re.compile(r"[,;][^\S\n]*-(?=[A-Za-z])")


def is_behind_list(text: str, after: int, start: int, end: int, rules: Rules) -> bool:
    """Whether a mention is behind the list that is negated: "No A or B, C present"."""
    is_affirmed = rules.answers and rules.patterns["affirmed"].match(text, end)
    return bool(is_affirmed and _CLOSED.search(text, after, start))


def with_marks(
    text: str, rules: Rules, phrases: Sequence[Phrase], mentions: Sequence[tuple[int, int]]
) -> list[Phrase]:
    """Add answers and signs, in the place of phrases that overlap them."""
    marks = sorted([*_answers(text, rules, phrases), *_signs(text, rules, mentions)])
    ends = [mark.end for mark in marks]

    def is_free(phrase: Phrase) -> bool:
        at = bisect_right(ends, phrase.start)
        return at == len(marks) or phrase.end <= marks[at].start

    return sorted([*filter(is_free, phrases), *marks]) if marks else list(phrases)


def _answers(text: str, rules: Rules, phrases: Sequence[Phrase]) -> Iterator[Phrase]:
    longest = {phrase.start: phrase.end for phrase in phrases}
    before = 0  # end of the last answer
    for match in rules.patterns["answer"].finditer(text):
        start, end = match.span("mark")
        answer = match["mark"].lower()
        is_cue = any(direction != "backward" for _, direction in rules.cues.get(answer, ()))
        if longest.get(start, end) <= end and (not is_cue or _DONE.match(text, end)):
            reach = max(before, _begin(text, match.start(), _OF_QUESTIONS))
            yield Phrase(start, end, "", rules.answers[answer], reach)
            before = end


def _begin(text: str, end: int, borders: str) -> int:
    """Where the question or the item begins that ends here, behind one of the borders."""
    return 1 + max(text.rfind(border, max(0, end - _LONGEST_QUESTION), end) for border in borders)


def _signs(text: str, rules: Rules, mentions: Sequence[tuple[int, int]]) -> Iterator[Phrase]:
    """Find signs. One that stands between words is of the name before it, unless the signs of its
    line stand before names.
    """
    for line in _MARKED_LINE.finditer(text):
        found = list(rules.patterns["sign"].finditer(text, *line.span()))
        if not found:
            continue
        said = [rules.signs[sign[0].lower()] for sign in found]
        affirms = AFFIRMED in said or bool(_MINUS.search(line[0]))
        first = found[0].start()
        stand_before = not any(line.start() <= a and b <= first for a, b in mentions)
        for sign, says in zip(found, said, strict=True):
            start, end = sign.span()
            if says == BESIDE:
                if not affirms:
                    continue
                says = "negated"
            ahead = text[line.start() : start].rstrip()[-1:]
            is_behind = ahead.isalnum() or ahead in tuple(")]")
            if text[end : line.end()].lstrip()[:1].isalnum() and (stand_before or not is_behind):
                yield Phrase(start, end, "", says)
            elif is_behind:
                yield Phrase(start, end, "", says, _begin(text, start, _OF_ITEMS))


# From a mention to what speaks for it: no comma, or an enumeration; to what it is a part of.
_LISTED = re.compile(r"[^,]*|\s*(?:[,/&]|and\b|or\b).*", re.S)
_JOINED = re.compile(r"\s*(?:(?:[/&]|and\b|or\b)[^.,;:]*)?")
_LINE = re.compile(r"[^\S\n]*[^\s]")  # something on the line of a header
_NEAR = 30  # phrases on a side that may speak for a mention, or end what others say


def contexts(
    text: str, rules: Rules, phrases: Sequence[Phrase], mentions: Sequence[tuple[int, int]]
) -> list[Context]:
    """Return what the text says of each mention.

    phrases (Sequence[Phrase]): Those of the rules that are in the text, in order; none overlap.
    mentions (Sequence): Start and end of each; they may overlap.
    """
    borders = sentence_borders(text)
    sections = list(_sections(text, rules, borders))
    phrases = with_marks(text, rules, phrases, mentions)
    by_sentence: dict[int, list[Phrase]] = defaultdict(list)
    for phrase in phrases:
        by_sentence[bisect_right(borders, phrase.start)].append(phrase)
    limits = [0, *borders, len(text)]

    @cache
    def is_of_today(number: int) -> bool:
        return bool(rules.patterns["now"].search(text, *limits[number : number + 2]))

    found = []
    for start, end in mentions:
        number = bisect_right(borders, start)
        sentence = by_sentence[number]
        at = bisect_right(sentence, (start,))  # a text without sentences takes linear time
        near = sentence[max(0, at - _NEAR) : at + _NEAR]
        said = list(_said_of(start, end, near, rules, text))
        if any(says == AFFIRMED for *_, says in said):
            said = [one for one in said if one[2] not in (AFFIRMED, "negated")]
        behind = bisect_right(sections, start, key=itemgetter(1))
        for first, last, stop, says in sections[max(0, behind - 1) : behind]:
            is_meant = start < stop and not (says == "historical" and is_of_today(number))
            if is_meant and says not in {what for *_, what in said}:
                said.append((first, last, says))
        what = {says for *_, says in said}
        person = next((person for person in PERSONS if person in what), "patient")
        flags = {flag: flag in what for flag in FLAGS}
        found.append(Context(**flags, experiencer=person, cues=tuple(sorted(set(said)))))
    return found


def _said_of(
    start: int, end: int, phrases: Sequence[Phrase], rules: Rules, text: str
) -> Iterator[tuple[int, int, str]]:
    """Yield the cues of a sentence that speak for a mention in it."""
    for cue in phrases:
        if cue.reach >= 0:
            if cue.reach < end <= cue.start and _LISTED.fullmatch(text, end, cue.start):
                yield cue.start, cue.end, str(cue.says)
            continue
        own = () if cue.says is None else ((cue.says, "forward"),) * (cue.says != AFFIRMED)
        for says, direction in own or rules.cues.get(cue.name, ()):
            if cue.end <= start and direction in ("forward", "both"):
                first, last = cue.end, start
                if says == "negated" and is_behind_list(text, first, start, end, rules):
                    continue
            elif end <= cue.start and direction != "forward":
                first, last = end, cue.start
                if direction == "behind" and not _JOINED.fullmatch(text, first, last):
                    continue
            else:
                continue
            between = (p for p in phrases if first <= p.start and p.end <= last)
            if not any(_ends(phrase, says, rules) for phrase in between):
                yield cue.start, cue.end, says


def _ends(phrase: Phrase, says: str, rules: Rules) -> bool:
    if phrase.says is not None:
        return says == "negated"
    return not {ALL, says}.isdisjoint(rules.ends.get(phrase.name, ()))


def _sections(
    text: str, rules: Rules, borders: Sequence[int]
) -> Iterator[tuple[int, int, int, str]]:
    """Sections that say something of what is in them: start and end of the header, and the end.

    A section ends at the next header. "PMH: asthma" is one of a line, and goes on with a list.
    """
    found = list(headers(text, rules.sections, capitals=True))
    ends = [header.start() for header, _ in found[1:]] + [len(text)]
    for (header, name), end in zip(found, ends, strict=False):  # there may be no header
        says = rules.sections.get(name, "")
        if not says:
            continue
        starts = borders[bisect_right(borders, header.end()) : bisect_left(borders, end)]
        is_empty = rules.patterns["empty"].match(text, header.end())
        is_of_a_line = _LINE.match(text, header.end())
        for at in starts:
            goes_on = _ITEM.match(text, at) or text[at - 1] != "\n" or not is_of_a_line
            if is_empty or not goes_on or rules.patterns["opens"].match(text, at):
                end = at
                break
        yield header.start("name"), header.end(), end, says


_RULES, _CFG = "rules.json", "cfg.json"
_OWN = Path(__file__).parents[2] / "assets" / "context.json"
_LONGEST = 12  # words of a phrase


class MentionContext(Pipe):
    """Say of each span of a group whether it is negated, uncertain, past, conditional, and whose.

    tokenizer (Callable): Of the pipeline; phrases of the rules are cut as the texts are.
    rules (str): JSON file of the rules; "": those of the package.
    spans_key (str): The group of spans.
    RAISES BioelError: [B490] when the rules are not of their form.
    """

    def __init__(
        self,
        tokenizer: Callable[[str], Doc],
        name: str = "bioel_context",
        *,
        rules: str = "",
        spans_key: str,
    ) -> None:
        register_extensions()
        self.name = name
        self.tokenizer = tokenizer
        self.cfg: dict[str, Any] = {"spans_key": spans_key}
        path = Path(rules) if rules else _OWN
        self._set_table(read_rules(path), origin=str(path))

    def _set_table(self, table: dict[str, Any], *, origin: str = _RULES) -> None:
        self._table = table
        self.rules: Rules = parse_rules(table, origin=origin)
        # Phrases by the number of their first word, the longest first.
        self._by_first: dict[int, list[tuple[tuple[int, ...], str]]] = {}
        for phrase in self.rules.phrases:
            words = tuple(_words(self.tokenizer(phrase))[0].tolist())
            if words:
                self._by_first.setdefault(words[0], []).append((words, phrase))
        for phrases in self._by_first.values():
            phrases.sort(key=lambda one: -len(one[0]))
        self._first = np.array(sorted(self._by_first), dtype=np.uint64)

    def __call__(self, doc: Doc) -> Doc:
        """Write what is said of each span of the group; see `span._.negated`."""
        key = self.cfg["spans_key"]
        keys = [key] if key else dict.fromkeys([SPANS_KEY, *linked_groups(doc)])
        places = {
            key: [(span.start_char, span.end_char) for span in doc.spans[key]]
            for key in keys
            if key in doc.spans and len(doc.spans[key])
        }
        phrases = self._phrases(doc) if places else []
        for key, of_group in places.items():
            found = contexts(text_of(doc), self.rules, phrases, of_group)
            set_contexts(doc, found, spans_key=key)
        return doc

    def _phrases(self, doc: Doc) -> list[Phrase]:
        """Phrases of the rules in a document, the longest at each place; none overlap."""
        words, tokens = _words(doc)
        found: list[Phrase] = []
        end = 0
        for at in np.flatnonzero(np.isin(words, self._first)).tolist():
            here = tuple(words[at : at + _LONGEST].tolist()) if at >= end else ()
            for phrase, name in self._by_first[here[0]] if here else ():
                if here[: len(phrase)] == phrase:
                    end = at + len(phrase)
                    last = doc[int(tokens[end - 1])]
                    start = doc[int(tokens[at])].idx
                    found.append(Phrase(start, last.idx + len(last), name))
                    break
        return found

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        data: bytes = srsly.msgpack_dumps({"cfg": self.cfg, "rules": self._table})
        return data

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> MentionContext:
        parts = srsly.msgpack_loads(bytes_data)
        self._set_table(parts["rules"])
        self.cfg.update(parts["cfg"])
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the rules with the pipeline."""
        tables = {_CFG: self.cfg, _RULES: self._table}
        save_files(Path(path), {name: partial(_json, table) for name, table in tables.items()})

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> MentionContext:
        """RAISES BioelError: [B042, B466] on files that are missing or damaged, [B490]."""
        files = SavedFiles(Path(path))
        table = json.loads(files.read(_RULES))
        self._set_table(table, origin=str(Path(path) / _RULES))
        self.cfg.update(json.loads(files.read(_CFG)))
        return self


def _words(doc: Doc) -> tuple[NDArray[np.uint64], Sequence[int]]:
    """Numbers of the words in small letters, without white space, and their tokens."""
    columns = doc.to_array([LOWER, IS_SPACE])
    tokens: Any = np.flatnonzero(columns[:, 1] == 0)
    return columns[tokens, 0], tokens


def _json(table: object) -> bytes:
    return json.dumps(table, indent=1, ensure_ascii=False).encode("utf8")

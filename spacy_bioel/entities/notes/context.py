"""The `bioel_context` pipe: which mentions are negated, uncertain, historical or hypothetical, or
concern another person.

The algorithm is ConText: Harkema et al. (2009), ConText: An algorithm for determining negation,
experiencer, and temporal status from clinical reports, https://doi.org/10.1016/j.jbi.2009.05.002;
for negation: Chapman et al. (2001), https://doi.org/10.1006/jbin.2001.1029. A cue ("denies",
"was ruled out") applies to the mentions after or before it, up to the end of its sentence or a word
that ends its scope ("but"). A section ("Family history:") applies to all mentions in it. An answer
("Fever: no") or a sign ("(-) fever") applies to the mention next to it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate
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
from spacy_bioel.kb.bundled import ASSETS_FOLDER, forget_paths
from spacy_bioel.pipe import SavedFiles, save_files
from spacy_bioel.settings import SPANS_KEY
from spacy_bioel.text.sentences import LIST_ITEM, sentence_borders
from spacy_bioel.types import Context

# Statuses that cues assign to mentions: Context flags, and persons other than the patient.
FLAGS = ("negated", "uncertain", "historical", "hypothetical")
PERSONS = ("family", "other")
ALL_STATUSES = "all"  # for phrases that end the scope of every cue
AFFIRMED = ""  # status for answers and signs that do not negate
# Status for signs that negate only on a line with an affirming sign: "-" also marks list items.
NEGATED_IF_PAIRED = "negated beside"
_CUE_DIRECTIONS = ("forward", "backward", "both", "behind")
# Text between a question and its answer.
_QUESTION_MARKS = (
    r"(?<=[\w)\]])(?:[^\S\n]*+(?:[:(|—–]|(?<=\s)--?(?=[^\S\n]))|[^\S\n\t]*+\t)[^\S\n]*+"
)
_VERB = r"[^\S\n]+(?:(?:is|are|was|were)[^\S\n]+)?"


class Phrase(NamedTuple):
    """An occurrence of one of the rules' phrases in a text, with its character offsets.

    status (str | None): Status of an answer or a sign; None: look up the name in the rules.
    reach (int): Start of the text that an answer applies to; -1: it applies to the
        text after the answer.
    """

    start: int
    end: int
    name: str
    status: str | None = None
    reach: int = -1


@dataclass(frozen=True)
class ContextRules:
    """Phrases (in lower case) and section names, with the status that they assign to mentions.

    cues (Mapping): Status and direction of each cue.
    pseudo (frozenset[str]): Phrases that contain a cue but are not cues: "no increase".
    ends (Mapping): The statuses whose scope a phrase ends, or "all".
    sections (Mapping): Status for each section name; "" for none.
    answers (Mapping): Status for each answer after a question ("Fever: no"); "" if it affirms.
    signs (Mapping): Status for each sign before or after a name ("(-) fever"); "" if it affirms.
    opens (Sequence[str]): First words of sentences that end a section.
    empty (Sequence[str]): Contents of sections without findings: "noncontributory".
    now (Sequence[str]): Words that mark a sentence in a historical section as current.
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
        """All phrases that are matched word by word."""
        return list(dict.fromkeys([*self.cues, *self.pseudo, *self.ends]))

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """Patterns for everything that is not matched word by word."""
        affirming = (answer for answer, status in self.answers.items() if status == AFFIRMED)
        patterns = {
            "answer": rf"{_QUESTION_MARKS}(?P<mark>{_any_of(self.answers)})",
            "affirmed": rf"{_VERB}(?:{_any_of(affirming)})",
            "sign": rf"(?<![\w+/-])(?:{_any_of(self.signs)})(?![\d/])",
            "opens": rf"(?:{_any_of(self.opens)})",
            "now": rf"(?<!\w)(?:{_any_of(self.now)})",
            "empty": rf"\s*(?:(?:is|was)\s)?(?:{_any_of(self.empty)})(?![\w,]| \w)",
        }
        return {name: re.compile(pattern, re.I) for name, pattern in patterns.items()}


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern for any of these strings as whole words; it matches nothing if none."""
    longest_first = sorted(words, key=len, reverse=True)
    alternatives = [re.escape(w) + (r"(?!\w)" if w[-1].isalnum() else "") for w in longest_first]
    return "|".join(alternatives) or r"(?!)"


def read_rules(path: Path) -> dict[str, Any]:
    """Read a JSON file such as spacy_bioel/assets/context.json. RAISES BioelError: [B490]"""
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
        return table
    except (OSError, ValueError, RecursionError) as error:
        raise BioelError(Errors.B490.format(path=path, error=error)) from error


def parse_rules(table: Mapping[str, Any]) -> ContextRules:
    """Parse the contents of a rules file. Malformed rules raise errors without a code."""
    cues: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for status, phrases_by_direction in table["cues"].items():
        for direction, phrases in phrases_by_direction.items():
            _check_name(status, (*FLAGS, *PERSONS))
            _check_name(direction, _CUE_DIRECTIONS)
            for phrase in _check_phrases(phrases):
                cues[phrase].append((status, direction))
    ends: dict[str, set[str]] = defaultdict(set)
    for status, phrases in table.get("ends", {}).items():
        for phrase in _check_phrases(phrases):
            ends[phrase].add(_check_name(status, (*FLAGS, *PERSONS, ALL_STATUSES)))
    return ContextRules(
        cues=dict(cues),
        pseudo=frozenset(_check_phrases(table.get("pseudo", ()))),
        ends=dict(ends),
        sections=_status_of_names(table, "sections", (*FLAGS, *PERSONS, "")),
        answers=_status_of_names(table, "answers", (*FLAGS, AFFIRMED, NEGATED_IF_PAIRED)),
        signs=_status_of_names(table, "signs", (*FLAGS, AFFIRMED, NEGATED_IF_PAIRED)),
        opens=_check_phrases(table.get("opens", ())),
        empty=_check_phrases(table.get("empty", ())),
        now=_check_phrases(table.get("now", ())),
    )


def _status_of_names(table: Mapping[str, Any], key: str, statuses: Sequence[str]) -> dict[str, str]:
    return {
        name: _check_name(status, statuses)
        for status, names in table.get(key, {}).items()
        for name in _check_phrases(names)
    }


def _check_name(name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise ValueError(f"{name!r} is not one of {', '.join(filter(None, known))}")
    return name


def _check_phrases(phrases: Any) -> list[str]:
    if isinstance(phrases, str) or not all(isinstance(p, str) and p.split() for p in phrases):
        raise ValueError(f"expected a list of phrases, found {phrases!r:.60}")
    return [" ".join(phrase.lower().split()) for phrase in phrases]


# Text that follows "no" and "denies" if they are answers.
_AFTER_ANSWER = re.compile(
    r"[^\S\n]*(?:[.,;)|]|\n(?![^\S\n]*[a-z])|\Z"
    r"|(?:since|now|today|currently|recently|at|ever)\b)"
)
_QUESTION_BORDERS, _ITEM_BORDERS = ".;:|\n", ".;:|\n,"
_MAX_QUESTION_LENGTH = 120
_OR = re.compile(r"\bn?or\b")  # "No A or B," is a complete list
_FULL_LINE = re.compile(r"[^\n]+")
_MINUS_BEFORE_WORD = re.compile(r"[,;][^\S\n]*-(?=[A-Za-z])")


def is_after_list(text: str, scope_start: int, start: int, end: int, rules: ContextRules) -> bool:
    """Whether an affirmed mention follows a negated list, such as C in "No A or B, C present"."""
    is_affirmed = rules.answers and rules.patterns["affirmed"].match(text, end)
    last_item = _OR.search(text, scope_start, start) if is_affirmed else None
    return last_item is not None and text.find(",", last_item.end(), start) >= 0


def with_answers_and_signs(
    text: str, rules: ContextRules, phrases: Sequence[Phrase], mentions: Sequence[tuple[int, int]]
) -> list[Phrase]:
    """Add answers and signs, replacing the phrases that overlap them."""
    marks = sorted([*_find_answers(text, rules, phrases), *_find_signs(text, rules, mentions)])
    mark_ends = [mark.end for mark in marks]

    def is_free(phrase: Phrase) -> bool:
        next_mark = bisect_right(mark_ends, phrase.start)
        return next_mark == len(marks) or phrase.end <= marks[next_mark].start

    return sorted([*filter(is_free, phrases), *marks]) if marks else list(phrases)


def _find_answers(text: str, rules: ContextRules, phrases: Sequence[Phrase]) -> Iterator[Phrase]:
    phrase_ends = {phrase.start: phrase.end for phrase in phrases}
    end_of_last = 0
    for match in rules.patterns["answer"].finditer(text):
        start, end = match.span("mark")
        answer = match["mark"].lower()
        is_cue = any(direction != "backward" for _, direction in rules.cues.get(answer, ()))
        is_longest = phrase_ends.get(start, end) <= end
        if is_longest and (not is_cue or _AFTER_ANSWER.match(text, end)):
            reach = max(end_of_last, _start_after(_QUESTION_BORDERS, text, match.start()))
            yield Phrase(start, end, "", rules.answers[answer], reach)
            end_of_last = end


def _start_after(borders: str, text: str, end: int) -> int:
    """Return the start of the question or list item that ends here: after the last boundary."""
    lowest = max(0, end - _MAX_QUESTION_LENGTH)
    return 1 + max(text.rfind(border, lowest, end) for border in borders)


def _find_signs(
    text: str, rules: ContextRules, mentions: Sequence[tuple[int, int]]
) -> Iterator[Phrase]:
    """Yield signs. A sign between two names belongs to the first name, unless the signs on its line
    come before the names.
    """
    places = sorted(mentions)
    # By place, the end of the first mention to end, of those at this place or later.
    first_ends = list(accumulate((end for _, end in reversed(places)), min))[::-1]
    for line in _FULL_LINE.finditer(text):
        signs = list(rules.patterns["sign"].finditer(text, *line.span()))
        if not signs:
            continue
        statuses = [rules.signs[sign[0].lower()] for sign in signs]
        has_affirming = AFFIRMED in statuses or bool(_MINUS_BEFORE_WORD.search(line[0]))
        first = signs[0].start()
        index = bisect_left(places, (line.start(),))
        signs_first = index == len(places) or first_ends[index] > first
        for sign, status in zip(signs, statuses, strict=True):
            start, end = sign.span()
            if status == NEGATED_IF_PAIRED:
                if not has_affirming:
                    continue
                status = "negated"
            before = text[line.start() : start].rstrip()[-1:]
            is_after_name = before.isalnum() or before in tuple(")]")
            is_before_name = text[end : line.end()].lstrip()[:1].isalnum()
            if is_before_name and (signs_first or not is_after_name):
                yield Phrase(start, end, "", status)
            elif is_after_name:
                yield Phrase(start, end, "", status, _start_after(_ITEM_BORDERS, text, start))


# Text between a mention and its answer or sign, which has no comma or is an enumeration; and text
# between a mention and a cue with the direction "behind".
_ENUMERATION = re.compile(r"[^,]*|\s*(?:[,/&]|and\b|or\b).*", re.S)
_COORDINATION = re.compile(r"\s*(?:(?:[/&]|and\b|or\b)[^.,;:]*)?")
_REST_OF_LINE = re.compile(r"[^\S\n]*[^\s]")  # text after a header on the same line
# Limits, so that the running time is linear even if a text has no sentence boundaries.
_MAX_PHRASES = 30  # phrases to check before and after a mention
_MAX_SCOPE = 2_000  # characters between a cue and a mention


def contexts(
    text: str, rules: ContextRules, phrases: Sequence[Phrase], mentions: Sequence[tuple[int, int]]
) -> list[Context]:
    """Return the context of each mention.

    phrases (Sequence[Phrase]): The rules' phrases in the text, in order, without overlaps.
    mentions (Sequence): Start and end of each mention; mentions may overlap.
    """
    borders = sentence_borders(text)
    sections = list(_sections_with_status(text, rules, borders))
    phrases = with_answers_and_signs(text, rules, phrases, mentions)
    by_sentence: dict[int, list[Phrase]] = defaultdict(list)
    for phrase in phrases:
        by_sentence[bisect_right(borders, phrase.start)].append(phrase)
    limits = [0, *borders, len(text)]

    @cache
    def is_current(sentence: int) -> bool:
        return bool(rules.patterns["now"].search(text, *limits[sentence : sentence + 2]))

    results = []
    for start, end in mentions:
        sentence = bisect_right(borders, start)
        in_sentence = by_sentence[sentence]
        middle = bisect_right(in_sentence, (start,))
        near = in_sentence[max(0, middle - _MAX_PHRASES) : middle + _MAX_PHRASES]
        cues = list(_cues_of(start, end, near, rules, text))
        if any(status == AFFIRMED for *_, status in cues):
            cues = [cue for cue in cues if cue[2] not in (AFFIRMED, "negated")]
        n_before = bisect_right(sections, start, key=itemgetter(1))
        for first, last, section_end, status in sections[max(0, n_before - 1) : n_before]:
            is_inside = start < section_end
            is_excepted = status == "historical" and is_current(sentence)
            if is_inside and not is_excepted and status not in {cue[2] for cue in cues}:
                cues.append((first, last, status))
        statuses = {status for *_, status in cues}
        experiencer = next((person for person in PERSONS if person in statuses), "patient")
        flags = {flag: flag in statuses for flag in FLAGS}
        results.append(Context(**flags, experiencer=experiencer, cues=tuple(sorted(set(cues)))))
    return results


def _cues_of(
    start: int, end: int, phrases: Sequence[Phrase], rules: ContextRules, text: str
) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and status of each cue in a sentence that applies to a mention in it."""
    for cue in phrases:
        if cue.reach >= 0:
            if cue.reach < end <= cue.start and _ENUMERATION.fullmatch(text, end, cue.start):
                yield cue.start, cue.end, str(cue.status)
            continue
        readings = rules.cues.get(cue.name, ())
        if cue.status:
            readings = [(cue.status, "forward")]
        for status, direction in readings:
            if cue.end <= start and direction in ("forward", "both"):
                first, last = cue.end, start
            elif end <= cue.start and direction != "forward":
                first, last = end, cue.start
            else:
                continue
            if last - first > _MAX_SCOPE:
                continue
            is_before = last == start
            if is_before and status == "negated" and is_after_list(text, first, start, end, rules):
                continue
            if direction == "behind" and not _COORDINATION.fullmatch(text, first, last):
                continue
            between = (p for p in phrases if first <= p.start and p.end <= last)
            if not any(_ends_scope(phrase, status, rules) for phrase in between):
                yield cue.start, cue.end, status


def _ends_scope(phrase: Phrase, status: str, rules: ContextRules) -> bool:
    if phrase.status is not None:
        return status == "negated"
    return not {ALL_STATUSES, status}.isdisjoint(rules.ends.get(phrase.name, ()))


def _sections_with_status(
    text: str, rules: ContextRules, borders: Sequence[int]
) -> Iterator[tuple[int, int, int, str]]:
    """Yield header start, header end, section end and status for each section with a status.

    A section ends at the next header. A section such as "PMH: asthma" ends with its line, unless a
    list follows.
    """
    all_headers = list(headers(text, rules.sections, capitals=True))
    ends = [header.start() for header, _ in all_headers[1:]] + [len(text)]
    for (header, name), end in zip(all_headers, ends, strict=False):  # the text may have no header
        status = rules.sections.get(name, "")
        if not status:
            continue
        sentences = borders[bisect_right(borders, header.end()) : bisect_left(borders, end)]
        is_empty = rules.patterns["empty"].match(text, header.end())
        is_one_line = _REST_OF_LINE.match(text, header.end())
        for start in sentences:
            continues = LIST_ITEM.match(text, start) or text[start - 1] != "\n" or not is_one_line
            if is_empty or not continues or rules.patterns["opens"].match(text, start):
                end = start
                break
        yield header.start("name"), header.end(), end, status


_RULES_FILE = "rules.json"
_MAX_PHRASE_WORDS = 12


class MentionContext(Pipe):
    """Marks spans as negated, uncertain, historical or hypothetical, and sets whom they concern.

    tokenizer (Callable): The pipeline's tokenizer, which also tokenizes the phrases.
    rules (str): JSON file with rules; "": the default rules.
    spans_key (str): The span group.
    RAISES BioelError: [B490] if the rules are malformed.
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
        self.cfg: dict[str, Any] = {"spans_key": spans_key, "rules": rules}
        path = Path(rules) if rules else ASSETS_FOLDER / "context.json"
        self._set_table(read_rules(path), origin=str(path))

    def _set_table(self, table: dict[str, Any], *, origin: str = _RULES_FILE) -> None:
        self._table = table
        try:
            self.rules = parse_rules(table)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise BioelError(Errors.B490.format(path=origin, error=error)) from error
        # Phrases by the hash of their first word, longest first.
        self._by_first: dict[int, list[tuple[tuple[int, ...], str]]] = {}
        for phrase in self.rules.phrases:
            words = tuple(_lowercase_words(self.tokenizer(phrase))[0].tolist())
            if words:
                self._by_first.setdefault(words[0], []).append((words, phrase))
        for phrases in self._by_first.values():
            phrases.sort(key=lambda phrase: -len(phrase[0]))
        self._first_words = np.array(sorted(self._by_first), dtype=np.uint64)

    def __call__(self, doc: Doc) -> Doc:
        """Set the context of each span in the group (see `span._.negated`)."""
        key = self.cfg["spans_key"]
        keys = [key] if key else dict.fromkeys([SPANS_KEY, *linked_groups(doc)])
        places = {
            key: [(span.start_char, span.end_char) for span in doc.spans[key]]
            for key in keys
            if key in doc.spans and len(doc.spans[key])
        }
        phrases = self._find_phrases(doc) if places else []
        for key, spans in places.items():
            found = contexts(text_of(doc), self.rules, phrases, spans)
            set_contexts(doc, found, spans_key=key)
        return doc

    def _find_phrases(self, doc: Doc) -> list[Phrase]:
        """Find phrases of the rules in a document; of overlapping phrases, keep the longest."""
        words, tokens = _lowercase_words(doc)
        phrases: list[Phrase] = []
        end = 0
        for start in np.flatnonzero(np.isin(words, self._first_words)).tolist():
            if start < end:
                continue
            next_words = tuple(words[start : start + _MAX_PHRASE_WORDS].tolist())
            for phrase, name in self._by_first[next_words[0]]:
                if next_words[: len(phrase)] == phrase:
                    end = start + len(phrase)
                    first, last = doc[int(tokens[start])], doc[int(tokens[end - 1])]
                    phrases.append(Phrase(first.idx, last.idx + len(last), name))
                    break
        return phrases

    def current_settings(self) -> dict[str, Any]:
        """Return the current settings in the form used in configs."""
        return dict(self.cfg)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        data: bytes = srsly.msgpack_dumps({"rules": self._table})
        return data

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> MentionContext:
        self._set_table(srsly.msgpack_loads(bytes_data)["rules"])
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the rules with the pipeline."""
        rules = json.dumps(self._table, indent=1, ensure_ascii=False)
        save_files(Path(path), {_RULES_FILE: rules.encode})
        forget_paths(Path(path), rules="")

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> MentionContext:
        """Load the saved rules, unless the config names others.

        RAISES BioelError: [B042, B466] if a file is missing or damaged, [B490] if the rules are
            malformed.
        """
        if not self.cfg["rules"]:
            self.cfg["rules"] = str(Path(path, _RULES_FILE).resolve())
            table = json.loads(SavedFiles(Path(path)).read(_RULES_FILE))
            self._set_table(table, origin=self.cfg["rules"])
        return self


def _lowercase_words(doc: Doc) -> tuple[NDArray[np.uint64], Sequence[int]]:
    """Return the hashes of lower-case words, leaving out white space, and their token indices."""
    columns = doc.to_array([LOWER, IS_SPACE])
    tokens: Any = np.flatnonzero(columns[:, 1] == 0)
    return columns[tokens, 0], tokens

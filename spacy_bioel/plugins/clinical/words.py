"""Split a sentence into words, and find word classes, cues and verb groups.

A verb with its auxiliaries, modals and negations is one group: "could not be completely ruled out"
is "ruled out", negated and under a modal verb.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy_bioel.plugins.clinical.answers import Mark

Found = tuple[int, int, str]  # start, end and status

_SENTENCE_TOKEN = re.compile(
    r"(?!cannot)[a-z]++(?=[ ,.;:)\n])"  # most words
    r"|r/o'd|[a-z]{2,30}-[ \t]*\r?\n[ \t]*[a-z]{2,30}\b|can(?=not\b)|\w+?(?=n['’]t\b)|n['’]t\b"
    r"|\b[a-z]/[a-z]{1,2}\b"
    r"|\bw/(?=\s)|['’](?:s|re|ve)\b|\w+|-ve\b|\S",
    re.I,
)
STOPS = frozenset(".;:?!|")
AUXILIARY = frozenset(("be", "have", "do", "may", "modal", "can"))
LIGHT = frozenset(("det", "own", "adverb", "number", "time", "-", '"', "'"))
PARTICIPLE = ("ed", "en", "wn", "und", "elt", "ard", "ught", "orne", "ut", "set", "'d")
MAX_REACH = 120  # maximum number of words between a cue and a mention
CONTRAST = frozenset(
    ("but", "although", "though", "however", "whereas", "while", "yet", "nevertheless", "unlike")
)
_MAX_KNOWN_WORDS = 20_000  # maximum size of the word cache, to save memory on unusual texts
_MAX_BETWEEN = 2  # maximum number of adverbs and pronouns within a cue: "ruled it out"
_MAX_STEM = 14


@dataclass(frozen=True, slots=True)
class Cue:
    """A word or phrase, such as "ruled out", that gives mentions a status.

    words (tuple[str, ...]): A stem ends with "*"; "<prep>" is any word of the class "prep".
    kind (str): How the cue finds the mentions it governs; a key of `CUE_KINDS` in `clauses.py`.
    says, negated, doubted (str): The status that the cue gives by itself, under a negation, and
        under a modal verb ("must be ruled out"); "+" if the cue affirms, "" if it gives no status.
    """

    words: tuple[str, ...]
    kind: str
    says: str = ""
    negated: str = ""
    doubted: str = ""


class CueWords:
    """Looks up a word's class and the cues that begin with it.

    classes (Mapping): The words of each closed class, such as "modal"; a stem ends with "*".
    """

    def __init__(self, classes: Mapping[str, Iterable[str]], cues: Sequence[Cue]) -> None:
        self._classes = {word: name for name, words in classes.items() for word in words}
        self._cues: dict[str, list[Cue]] = defaultdict(list)
        for cue in sorted(cues, key=lambda cue: -len(cue.words)):
            self._cues[cue.words[0]].append(cue)
        self.known: dict[str, tuple[str, str, Sequence[Cue]]] = {}  # cache of `look_up`

    def look_up(self, token: str) -> tuple[str, str, Sequence[Cue]]:
        """Return a token's lower-case form, its word class, and the cues that may begin with it."""
        word = token.lower().replace("’", "'")
        if "\n" in word:  # a word hyphenated across a line break
            word = "".join(word.replace("-", "", 1).split())
        forms = [word, *(f"{word[:n]}*" for n in range(min(len(word), _MAX_STEM), 1, -1))]
        name = next((self._classes[form] for form in forms if form in self._classes), "")
        if not name:
            is_adverb = word.endswith("ly") and len(word) > 4
            name = "adverb" if is_adverb else "word" if word[0].isalpha() else word
            name = "number" if any(map(str.isdigit, word)) else name
        cues = [cue for form in forms for cue in self._cues.get(form, ())]
        cues.sort(key=lambda cue: -len(cue.words))
        if len(self.known) < _MAX_KNOWN_WORDS:
            self.known[token] = word, name, cues
        return word, name, cues

    def match(self, cue: Cue, words: Sequence[str], names: Sequence[str], start: int) -> int:
        """Return the end of a cue that begins at word `start`, or 0 if the cue does not match."""
        at = start + 1
        if len(cue.words) == 1:
            return at
        for part in cue.words[1:]:
            # "return to the clinic for"
            is_far = cue.says == "hypothetical" and part in ("for", "with")
            limit = at + (2 * _MAX_BETWEEN if is_far else _MAX_BETWEEN)
            while at < len(words) and not _fits(words[at], names[at], part):
                is_between = names[at] in ("adverb", "pronoun", "own", "det", "-") or (
                    is_far and names[at] not in ("m", "mark", ",", ".", ";", ":", "(", ")")
                )
                if at == limit or not is_between:
                    return 0
                at += 1
            if at == len(words):
                return 0
            at += 1
        return at


def _fits(word: str, name: str, part: str) -> bool:
    if part[0] == "<":
        return name == part[1:-1]
    return word.startswith(part[:-1]) if part.endswith("*") else word == part


@dataclass(slots=True)
class Group:
    """The auxiliaries, negations and adverbs before a verb."""

    start: int
    negated: bool = False
    may: bool = False
    modal: bool = False
    doubted: bool = False
    passive: bool = False
    has_subject: bool = False  # an auxiliary or a pronoun shows that the verb is finite
    over: bool = False  # "no longer"
    purpose: bool = False  # "to exclude"


class Words:
    """The words of a sentence, cell or item, with their classes and cues."""

    def __init__(
        self,
        cue_words: CueWords,
        text: str,
        span: tuple[int, int],
        mentions: Sequence[tuple[int, int]],
        marks: Sequence[Mark] = (),
        *,
        is_head: bool = False,
    ) -> None:
        self.is_head = is_head
        self.words: list[str] = []
        self.names: list[str] = []
        self.spans: list[tuple[int, int]] = []
        self.cues: dict[int, tuple[int, list[Cue]]] = {}
        self.n_mentions = len(mentions)
        self.found: dict[int, list[Found]] = {}
        options: list[tuple[int, Sequence[Cue]]] = []
        words, names, spans = self.words, self.names, self.spans
        look_up, known = cue_words.look_up, cue_words.known
        start, end = span
        self._marks = {mark.start: mark.status for mark in marks if mark.reach < 0}
        opaque = sorted(
            [(*m, "m") for m in mentions]
            + [(max(span[0], m.place), min(m.end, span[1]), "mark") for m in marks]
        )
        at = 0
        while True:
            limit = opaque[at][0] if at < len(opaque) else end
            for token in _SENTENCE_TOKEN.finditer(text, start, max(start, limit)):
                word, name, cues = known.get(token[0]) or look_up(token[0])
                if cues:
                    options.append((len(words), cues))
                words.append(word)
                names.append(name)
                spans.append(token.span())
            if at == len(opaque):
                break
            if opaque[at][0] >= start:
                words.append("")
                names.append(opaque[at][2])
                spans.append(opaque[at][:2])
            start, at = max(start, opaque[at][1]), at + 1
        last = 0
        for i, cues in options:
            if i >= last:
                ends = [(cue_words.match(cue, self.words, self.names, i), cue) for cue in cues]
                last = max(stop for stop, _ in ends)
                if last:
                    self.cues[i] = last, [cue for stop, cue in ends if stop == last]

    def name(self, i: int) -> str:
        return self.names[i] if 0 <= i < len(self.names) else "."

    def word(self, i: int) -> str:
        return self.words[i] if 0 <= i < len(self.words) else ""

    def give(self, status: str, targets: Sequence[int], first: int, last: int) -> bool:
        if status:
            cue = self.spans[first][0], self.spans[last - 1][1]
            for target in targets:
                for part in status.split():
                    self.found.setdefault(self.spans[target][0], []).append((*cue, part))
        return bool(targets)

    def group(self, i: int) -> Group:
        """Build the verb group of word `i` (a verb or predicate) from the words before it."""
        group, k = Group(i), i - 1
        while k >= 0:
            name, word = self.names[k], self.word(k)
            if k > 1 and self.words[k - 2 : k] == ["at", "no"]:  # "at no time"
                group.negated, group.start, k = not group.negated, k - 2, k - 3
                continue
            if word == "nor":
                group.negated, group.start = not group.negated, k
                break
            if self.words[k - 1 : k + 1] == ["long", "since"]:
                group.start, k = k - 1, k - 2
                continue
            if name == "not" or (word == "no" and self.word(k + 1) == "longer"):
                group.over |= word == "no"
                group.negated = not group.negated
            elif word in ("no", "without") and k + 1 == group.start:
                group.negated, group.start = not group.negated, k
                break
            elif name == "fail":
                group.negated = not group.negated
                group.modal = True
            elif name in AUXILIARY:
                group.may |= name == "may"
                group.modal |= name in ("may", "modal")
                group.passive |= name == "be"
                group.has_subject = True
            elif name == "to":
                if not self._is_raised(k):
                    group.purpose = group.start == k + 1
                    if group.passive:  # "to be ruled out"
                        group.modal, group.start = True, k
                    if k > 1 and (
                        self.word(k - 2) == "no" or "nothing" in self.words[k - 5 : k - 1]
                    ):
                        group.negated = not group.negated
                    if k and self.word(k - 1).startswith(("need", "remain", "yet")):
                        group.modal, group.start, k = True, k - 1, k - 2
                        continue
                    break
            elif k + 1 < i and self.name(k + 1) == "to" and k in self.cues:
                group.doubted |= any(cue.says == "uncertain" for cue in self.cues[k][1])
            elif (
                name in ("word", "det")
                and (self.name(k - 1) in (*AUXILIARY, "not") or self._is_state(k - 1))
                and (k + 1 < i or name == "det")
            ):
                pass  # an adverb: "has therefore been"
            elif name not in ("adverb", "time") and not (
                word == "since" and self.name(k - 1) == "have"
            ):
                break
            group.start = k
            k -= 1
        while group.start < i and self.names[group.start] in ("adverb", "time"):
            group.start += 1
        group.has_subject |= self.name(group.start - 1) == "pronoun"
        return group

    def _is_state(self, k: int) -> bool:
        return any(cue.kind == "state" for cue in self.cues.get(k, (0, ()))[1])

    def _is_raised(self, k: int) -> bool:
        """Whether "to" follows a verb with the same subject: "appears to have"."""
        if self.name(k - 1) in (*AUXILIARY, "fail", "not"):
            return True
        return k - 1 in self.cues and self.cues[k - 1][1][0].kind in (
            "verb",
            "object",
            "adjective",
            "item",
        )

    def status(self, cue: Cue, group: Group) -> str:
        if group.over:
            return "historical" if cue.says == "+" else ""
        if group.negated and not (group.may and cue.says == "+"):
            return cue.negated
        if group.modal or group.doubted or (group.purpose and cue.says == "negated"):
            return cue.doubted
        return cue.says

    def asserted(self, k: int, targets: list[int]) -> list[int]:
        """Drop a clause's known subject from the targets: "whether the cough is worse"."""
        if self.word(k) == "that":
            k += 1
        is_known = self.name(k) == "own" or self.word(k) == "the"
        is_subject = self.name(k + 2) in AUXILIARY and targets[:1] == [k + 1]
        return targets[1:] if is_known and is_subject else targets

    def last_mention(self, i: int) -> list[int]:
        """Return the last mention before word `i`, the presumed referent of a pronoun."""
        return next(([k] for k in range(i - 1, -1, -1) if self.names[k] == "m"), [])

    def is_end(self, k: int) -> bool:
        return self.name(k) in STOPS or self.name(k) in (",", ")", "mark", "(", "end", "and")

    def is_modifier(self, k: int) -> bool:
        """Whether a mention is part of a compound: "heparin-induced"."""
        return (
            self.name(k + 1) == "-"
            and self.name(k + 2) in ("word", "change")
            and (self.word(k + 2).endswith("ed"))
        )

    def is_abbreviated(self, k: int) -> bool:
        """Whether a full stop within a sentence belongs to an abbreviation: "resp. infection"."""
        return k + 1 < len(self.names) and len(self.word(k - 1)) < 6

    def ends_subject(self, k: int) -> bool:
        return any(
            cue.kind not in ("item", "behind", "query", "time", "person") for cue in self.cues[k][1]
        )

    def negates(self, k: int) -> bool:
        return any(cue.says == "negated" for cue in self.cues[k][1])

    def is_predicate(self, k: int) -> bool:
        return k in self.cues and any(
            c.kind in ("verb", "object", "state", "adjective") for c in self.cues[k][1]
        )

    def is_verb(self, k: int) -> bool:
        """Whether a word is a finite verb rather than a noun ("the report") or a participle."""
        is_noun = self.word(k).startswith("complaint")
        if (
            not self.is_predicate(k)
            or is_noun
            or self.name(k - 1) in ("det", "own", "prep", "to", "bare")
        ):
            return False
        is_participle = self.word(k).endswith(PARTICIPLE)
        return not is_participle or self.name(k + 1) in ("m", "det", "own", "word")

    def begins(self, k: int) -> bool:
        """Whether word `k`, after a comma or conjunction, begins a new clause."""
        name = self.name(k)
        if name in AUXILIARY or name in ("pronoun", "rel", "end") or self.is_verb(k):
            return True
        return k in self.cues and self.negates(k)

    def is_own(self, k: int, n_before: int, is_negated: bool) -> bool:
        """Whether a list item has its own predicate or time, as in "seizures daily"."""
        if self.name(k) == "prep":
            return True
        is_graded = self.name(k) == "degree"
        if self.word(k) in ("only", "just"):
            return True
        while k < len(self.names):
            name = self.names[k]
            if name in ("and", "or", "/"):
                return False
            if name in (",", ")") or name in STOPS:
                return name == ":" or is_graded
            if name in ("time", "number") and n_before:  # "no fever, chills, cough for 3 days"
                return False
            if name in ("time", "number", "end", "+") or name in AUXILIARY:
                return True
            if (
                is_negated
                and name == "word"
                and self.name(k - 1) == "m"
                and not self.word(k).endswith("s")
            ):
                return True  # "cough productive"
            if is_negated and self.word(k) == "still":
                return True
            is_attribute = self.name(k + 1) in ("m", "word") and not self.is_verb(k)
            if (self.is_predicate(k) and not is_attribute) or (
                k in self.cues and self.cues[k][1][0].kind == "time"
            ):
                return True
            k += 1
        return is_graded

    def closes(self, k: int) -> bool:
        """Whether "or" or "and" closes the list that the comma at word `k` continues."""
        for n in range(k + 1, min(len(self.names), k + 30)):
            if self.names[n] == "or" or (self.names[n] == "and" and not self.begins(n + 1)):
                return True
            if self.names[n] in STOPS or self.names[n] in AUXILIARY or self.names[n] == "end":
                return False
        return False

    def backward(self, start: int, verb: str) -> list[int]:
        """Return the mentions in the subject of the verb group that begins at word `start`."""
        k = start - 1
        if self.name(k) == ":" and self.name(k - 1) == "m":  # "ataxia: not seen"
            k -= 1
        if self.name(k) == ",":  # after a relative clause
            rel = next((n for n in range(k, max(0, k - 14), -1) if self.names[n] == "rel"), 0)
            k = rel - 1 if rel and self.name(rel - 1) in (",", "m") else k
        if k > 0 and self.word(k) == "that" and self.names[k - 1] == "m":
            k -= 1
        skipped = ("adverb", "time", ",", "rel", "and", "not", '"', "-")
        first = k
        while k >= 0 and (self.names[k] in skipped or self.word(k) in ("but", "then")):
            k -= 1
        if any(self.word(n) in ("and", "but", "then") for n in range(k + 1, first + 1)):
            # A predicate without a subject: "was looked for and not found".
            verb_at = next(
                (
                    n
                    for n in range(k, max(-1, k - 20), -1)
                    if self.names[n] in ("m", "end")
                    or self.names[n] in STOPS
                    or self.names[n] == "be"
                ),
                -1,
            )
            k = verb_at if self.name(verb_at) == "be" else k
        while k >= 0 and (self.names[k] in AUXILIARY or self.is_predicate(k)):
            group = self.group(k)
            k = group.start - 1
            while k >= 0 and self.names[k] in skipped:
                k -= 1
        found: list[int] = []
        is_plural = verb in ("are", "were", "have")
        n_complete = 0
        is_list, list_start, low = False, 0, max(0, k - MAX_REACH)
        while k >= low:
            name = self.names[k]
            if name == "m":
                found += [] if self.is_modifier(k) else [k]
            elif name == ")":
                opening = next((n for n in range(k, low - 1, -1) if self.names[n] == "("), low)
                inside = [n for n in range(opening, k) if self.names[n] == "m"]
                found += inside if len(inside) == 1 and k - opening < 4 else []
                k = opening
            elif name == ",":
                if not (is_plural or is_list):
                    break
                n_complete = len(found)
            elif name == "-" and self.spans[k][0] > self.spans[k - 1][1]:
                break  # "anemia - gout is possible"
            elif name in ("and", "or", "/"):
                is_list, list_start, n_complete = True, list_start or k, len(found)
            elif name in ("prep", "to"):
                head = self.name(k - 1)
                if head != "bare" and head in ("m", "word", "change", "kin", "adverb"):
                    del found[n_complete:]
            elif name == "pronoun" and self.name(k - 1) == "m":  # "the cough he came with"
                return [k - 1]
            elif name in STOPS or name in ("end", "mark", "rel", "pronoun", "("):
                break
            elif self.name(k - 1) == "m" and k in self.cues and self.word(k).endswith(PARTICIPLE):
                pass  # "the mass seen on the scan"
            elif name in AUXILIARY or (k in self.cues and self.ends_subject(k)):
                if verb in ("is", "was", "has") and list_start:  # the object of another verb
                    found = [n for n in found if n > list_start]
                break
            k -= 1
        return found

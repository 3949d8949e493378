"""Read a sentence by its structure: which cue governs which mention.

A sentence is a row of words, of which mentions are opaque. A verb with its auxiliaries, modals and
negations is one group: "could not be completely ruled out" is "ruled out", negated. What a cue
governs follows from its grammar (see `KINDS`), and ends where a list, a phrase or a clause ends.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spacy_bioel.plugins.clinical.lexicon import Cue, Lexicon

if TYPE_CHECKING:
    from spacy_bioel.plugins.clinical.answers import Mark

Found = tuple[int, int, str]  # start, end and status

_TOKEN = re.compile(
    r"r/o'd|[a-z]{2,30}-[ \t]*\r?\n[ \t]*[a-z]{2,30}\b|can(?=not\b)|\w+?(?=n['’]t\b)|n['’]t\b|\b[a-z]/[a-z]{1,2}\b|\bw/(?=\s)|['’](?:s|re|ve)\b|\w+|-ve\b|\S",
    re.I,
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_STOPS = frozenset(".;:?!|")
_AUXILIARY = frozenset(("be", "have", "do", "may", "modal", "can"))
_LIGHT = frozenset(("det", "own", "adverb", "number", "time", "-", '"', "'"))
_PARTICIPLE = ("ed", "en", "wn", "und", "elt", "ard", "ught", "orne", "ut", "set", "'d")
_MAX_WORDS = 120  # words between a cue and a mention
_CONTRAST = frozenset(
    ("but", "although", "though", "however", "whereas", "while", "yet", "nevertheless", "unlike")
)


@dataclass(slots=True)
class _Group:
    """The auxiliaries, negations and adverbs before a verb."""

    start: int
    negated: bool = False
    may: bool = False
    modal: bool = False
    doubted: bool = False
    passive: bool = False
    has_subject: bool = False  # an auxiliary shows that the verb is finite
    over: bool = False  # "no longer"
    purpose: bool = False  # "to exclude"


class Sentence:
    """The words of a sentence, cell or item, with their classes and cues."""

    def __init__(
        self,
        lexicon: Lexicon,
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
        options: list[Sequence[Cue]] = []
        start, end = span
        self._marks = {mark.start: mark.status for mark in marks if mark.reach < 0}
        opaque = sorted(
            [(*m, "m") for m in mentions]
            + [(max(span[0], m.place), min(m.end, span[1]), "mark") for m in marks]
        )
        at = 0
        while True:
            limit = opaque[at][0] if at < len(opaque) else end
            for token in _TOKEN.finditer(text, start, max(start, limit)):
                word = token[0].lower().replace("’", "'")
                if "\n" in word:  # a word that a hyphen breaks
                    word = "".join(word.replace("-", "", 1).split())
                name, cues = lexicon.look_up(word)
                self._add(word, name if word[0].isalnum() or name != "word" else word, token.span())
                options.append(cues)
            if at == len(opaque):
                break
            if opaque[at][0] >= start:
                self._add("", opaque[at][2], opaque[at][:2])
                options.append(())
            start, at = max(start, opaque[at][1]), at + 1
        last = 0
        for i, cues in enumerate(options):
            if i < last or not cues:
                continue
            ends = [(lexicon.match(cue, self.words, self.names, i), cue) for cue in cues]
            last = max(stop for stop, _ in ends)
            if last:
                self.cues[i] = last, [cue for stop, cue in ends if stop == last]

    def _add(self, word: str, name: str, span: tuple[int, int]) -> None:
        self.words.append(word)
        self.names.append(name)
        self.spans.append(span)

    def name(self, i: int) -> str:
        return self.names[i] if 0 <= i < len(self.names) else "."

    def read(self) -> dict[int, list[Found]]:
        """Return what the cues say about mentions, by the start of each mention."""
        for i, (end, cues) in self.cues.items():
            for cue in cues:
                KINDS[cue.kind](self, i, end, cue)
        for i, name in enumerate(self.names):
            if name == "kin":
                self._relative(i)
            elif name == "number" and self.words[i - 1] == "at" and self.name(i - 2) == "m":
                if "had" in self.words[max(0, i - 6) : i]:  # "she had mumps at 17"
                    self._give("historical", [i - 2], i - 1, i + 1)
            elif name == "number" and _YEAR.fullmatch(self.words[i]):
                self._year(i)
            elif self.words[i] == "nor" and self.name(i + 1) in _AUXILIARY:
                self._give("negated", self._forward(i + 2, "negated"), i, i + 1)
            elif self.words[i] == "longer" and self.name(i + 1) == "det":  # "no longer a problem"
                if self.name(i - 2) == "be":
                    self._give("historical", self._backward(i - 2, "is"), i - 1, i + 1)
            elif name in ("not", "fail"):
                self._negation(i)
            elif name in ("may", "can") or self.words[i] == "could":
                self._guess(i)
            elif name == "mark" and (status := self._marks.get(self.spans[i][0])):
                self._give(status, self._forward(i + 1, status), i, i + 1)
        return self.found

    def is_contrary(self, start: int) -> bool:
        """Whether a word before a mention ends what a head says: "but has"."""
        places = [place for place, _ in self.spans]
        before = range(bisect_left(places, start))
        return any(
            self.words[k] in _CONTRAST
            or (self._is_verb(k) and self.cues[k][1][0].says == "+" and not self._group(k).negated)
            for k in before
        )

    def says_only_cues(self, fillers: Container[str]) -> bool:
        """Whether all words are cues, relatives, or words without a meaning of their own."""
        inside = {n for start, (end, _) in self.cues.items() for n in range(start, end)}
        return all(
            k in inside or name not in ("word", "change", "say") or word in fillers
            for k, (word, name) in enumerate(zip(self.words, self.names, strict=True))
        )

    def is_of_patient(self, start: int) -> bool:
        """Whether the patient is named before a mention, as in a section about the family."""
        places = [place for place, _ in self.spans]
        return any(
            self.words[k] in ("patient", "pt", "proband", "himself", "herself")
            for k in range(bisect_left(places, start))
        )

    def goes_on(self, start: int) -> bool:
        """Whether the words behind a mention say that it is treated: "gout on allopurinol"."""
        places = [place for place, _ in self.spans]
        k = bisect_left(places, start) + 1
        is_treated = self.words[k : k + 1] == ["on"] and self.name(k + 1) in ("word", "m")
        inside = self.words[k : k + 4]
        return is_treated or any(
            w.startswith(("controlled", "ongoing", "stable", "uses", "takes")) for w in inside
        )

    def _give(self, status: str, targets: Sequence[int], first: int, last: int) -> bool:
        if status:
            cue = self.spans[first][0], self.spans[last - 1][1]
            for target in targets:
                for part in status.split():
                    self.found.setdefault(self.spans[target][0], []).append((*cue, part))
        return bool(targets)

    # Verbs and predicates

    def _group(self, i: int) -> _Group:
        """Return the group of the verb or predicate at a word."""
        group, k = _Group(i), i - 1
        while k >= 0:
            name, word = self.names[k], self.words[k]
            if k > 1 and self.words[k - 2 : k] == ["at", "no"]:  # "at no time"
                group.negated, group.start, k = not group.negated, k - 2, k - 3
                continue
            if word == "nor":
                group.negated, group.start = not group.negated, k
                break
            if self.words[k - 1 : k + 1] == ["long", "since"]:
                group.start, k = k - 1, k - 2
                continue
            if name == "not" or (word == "no" and self.words[k + 1] == "longer"):
                group.over |= word == "no"
                group.negated = not group.negated
            elif word in ("no", "without") and k + 1 == group.start:
                group.negated, group.start = not group.negated, k
                break
            elif name == "fail":
                group.negated = not group.negated
                group.modal = True
            elif name in _AUXILIARY:
                group.may |= name == "may"
                group.modal |= name in ("may", "modal")
                group.passive |= name == "be"
                group.has_subject = True
            elif name == "to":
                if not self._is_raised(k):
                    group.purpose = group.start == k + 1
                    if group.passive:  # "to be ruled out"
                        group.modal, group.start = True, k
                    if k > 1 and (self.words[k - 2] == "no" or "nothing" in self.words[k - 5 : k - 1]):
                        group.negated = not group.negated
                    if k and self.words[k - 1].startswith(("need", "remain", "yet")):
                        group.modal, group.start, k = True, k - 1, k - 2
                        continue
                    break
            elif k + 1 < i and self.name(k + 1) == "to" and k in self.cues:
                group.doubted |= any(cue.says == "uncertain" for cue in self.cues[k][1])
            elif (
                name in ("word", "det")
                and (self.name(k - 1) in (*_AUXILIARY, "not") or self._is_predicate(k - 1))
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

    def _is_raised(self, k: int) -> bool:
        """Whether "to" follows a verb with the same subject: "appears to have"."""
        if self.name(k - 1) in (*_AUXILIARY, "fail", "not"):
            return True
        return k - 1 in self.cues and self.cues[k - 1][1][0].kind in (
            "verb",
            "object",
            "adjective",
            "item",
        )

    def _status(self, cue: Cue, group: _Group) -> str:
        if group.over:
            return "historical" if cue.says == "+" else ""
        if group.negated and not (group.may and cue.says == "+"):
            return cue.negated
        if group.modal or group.doubted or (group.purpose and cue.says == "negated"):
            return cue.doubted
        return cue.says

    def _verb(self, i: int, end: int, cue: Cue) -> None:
        """A verb governs its object; a passive one, its subject."""
        if end - i == 1 and self.name(i - 1) in ("det", "own") and self.words[end - 1] != "had":
            return  # a noun: "the report"
        group = self._group(i)
        is_participle = self.words[i].endswith(_PARTICIPLE)
        after = self.name(end)
        is_last = after not in ("m", "word", "det", "own", "to", "pronoun", "number", "bare", "rel")
        if cue.says == "negated" and not group.has_subject and not is_participle:
            is_first = self.name(i - 1) in _STOPS or self.name(i - 1) in (",", "and", "-")
            group.modal |= is_first and not self.words[i].endswith("s")
        status = self._status(cue, group)
        given = status if status != "+" else ""
        is_this = self.words[group.start - 1] in ("this", "that", "which") and group.start > 0
        is_this |= self.words[group.start - 1].startswith(("diagnos", "possibil"))
        has_pronoun = any(word in ("it", "them") for word in self.words[i : end + 1])
        is_passive = (
            is_participle
            and not has_pronoun
            and (group.passive or (is_last and not group.has_subject))
        )
        if is_passive and cue.says == "uncertain" and after in ("det", "m"):
            is_passive = False  # "considered a seizure"
        if is_passive and (after != "to" or cue.says == "negated") and cue.kind == "verb":
            targets = self._backward(group.start, self.words[group.start])
            before = self.name(group.start - 1)
            if not targets and (before == "bare" or is_this):
                targets = self._last(i)
            if self._give(given, targets, i, end):
                return
            if is_last and self.words[end : end + 1] not in (
                ["with"],
                ["as"],
                ["by"],
                ["for"],
                [","],
                [":"],
            ):
                return
        first = group.start if group.negated or group.modal else i
        targets = self._asserted(end, self._forward(end, given, clause=cue.kind == "object"))
        if not targets and self.name(i - 1) == "to" and group.start < i - 1:
            targets = self._backward(group.start, "is")  # "is difficult to exclude"
        if not targets and self.name(group.start - 1) == "pronoun" and group.negated:
            targets = [k for k in [group.start - 2] if self.name(k) == "m"]  # "Ataxia she has not"
        if not targets and has_pronoun:
            targets = self._last(i)
        self._give(given, targets, first, end)

    def _state(self, i: int, end: int, cue: Cue) -> None:
        """A predicate governs its subject."""
        if self.words[i] == "none":
            if self.name(i - 1) in ("have", "be", "prep"):  # "he had none"
                self._give(cue.says, self._last(i), i, end)
                return
            if self.words[end : end + 1] in (["since"], ["subsequently"], ["after"]):
                self._give("historical", self._last(i), i, end)
                return
            if self.name(end) == "have" or self._is_verb(end):
                self._give(cue.says, self._forward(end + 1, cue.says), i, end)
                return
        group = self._group(i)
        if group.passive and self.words[i] == "stopped":  # a drug
            return
        if self.is_head and self.name(end) == "m":
            self._give(self._status(cue, group).strip("+"), [len(self.names) - 1], i, end)
            return
        is_verb = self.name(i - 1) == "m" and self.words[i].endswith(_PARTICIPLE)
        if not (group.has_subject or is_verb) and self.name(end) in ("m", "word", "bare"):
            return
        if self._status(cue, group) not in ("", "+"):
            targets = self._backward(group.start, self.words[group.start])
            self._give(self._status(cue, group), targets, group.start, end)

    def _asserted(self, k: int, targets: list[int]) -> list[int]:
        """Leave out the subject of a clause that begins at a word: "whether the cough is worse"."""
        if self.words[k : k + 1] == ["that"]:
            k += 1
        is_known = self.name(k) == "own" or self.words[k : k + 1] == ["the"]
        is_subject = self.name(k + 2) in _AUXILIARY and targets[:1] == [k + 1]
        return targets[1:] if is_known and is_subject else targets

    def _last(self, i: int) -> list[int]:
        """Return the last mention before a word, which a pronoun stands for."""
        return next(([k] for k in range(i - 1, -1, -1) if self.names[k] == "m"), [])

    def _adjective(self, i: int, end: int, cue: Cue) -> None:
        """An adjective governs the noun after it, or as a predicate its subject."""
        if self.words[end : end + 1] == ["that"]:
            status = self._status(cue, self._group(i))
            self._give(status, self._asserted(end, self._forward(end, status, clause=True)), i, end)
        elif self.words[end : end + 1] in (["due"], ["secondary"]):
            self._item(i, end, cue)
        elif self.name(end) in ("m", "word", "bare", "change", "-", "det"):
            if self.name(end) != "m" and not self._forward(end, "", item=True):
                group = self._group(i)
                if group.passive or (self.name(i - 1) == "det" and self.name(i - 2) == "m"):  # "is a less likely alternative"
                    self._give(self._status(cue, group), self._backward(group.start, "is"), i, end)
                return
            self._item(i, end, cue)
        elif self.name(end) == "to":
            group, verb = self._group(i), end + 1
            while self.name(verb) in ("have", "not"):
                verb += 1
            is_being = self.name(verb) == "be" and self.words[verb + 1 : verb + 2] != ["due"]
            if is_being or self.name(verb) == "m" or verb in self.cues:
                self._give(self._status(cue, group), self._forward(verb + 1, "", item=True), i, end)
        else:
            self._state(i, end, cue)

    def _item(self, i: int, end: int, cue: Cue) -> None:
        """Governs the noun phrase directly after it."""
        if self.words[i] == "non" and self.names[end : end + 2] != ["-", "m"]:
            return
        if self.words[i] == "old" and (
            self.name(i - 1) == "-" or self.words[i - 1][:2] in ("ye", "mo", "yr")
        ):
            return
        status = self._status(cue, self._group(i))
        if status == "negated" and "whether" in self.words[:i]:
            status = "uncertain"  # "whether A rather than B"
        self._give(status, self._forward(end, status, item=True), i, end)

    def _phrase(self, i: int, end: int, cue: Cue) -> None:
        """Governs the list of noun phrases after it."""
        status = self._status(cue, self._group(i))
        if status == "+" or (i > 1 and self.words[i - 2 : i + 1] == ["with", "or", "without"]):
            return
        for k in range(i - 1):  # "it is not that he has no pain": a negation of a clause
            if self.names[k] == "not" and self.words[k + 1] == "that" and status == "negated":
                status = "unknown"
        if self.words[i] == "neither":
            targets = self._forward(end, status)
            behind = targets[-1] + 1 if targets else 0
            if (
                self.words[behind : behind + 1]
                and self.words[behind].endswith("ed")
                and not self._is_predicate(behind)
            ):
                return  # "neither A nor B reduced"
        if self.words[i] == "none" and self.words[i - 1] == "in" and i:  # "in none of the samples"
            self._give(status, self._last(i), i, end)
            return
        is_asked = any(word.startswith(("ask", "question")) for word in self.words[:i])
        if self.words[i] == "no" and is_asked and self._is_end(end):
            self._give(status, self._last(i), i, end)  # "she answered no"
            return
        if self.words[i] == "no" and self.words[i - 1] == "at" and i:  # "at no time did he have"
            verb = next(
                (
                    n
                    for n in range(end, min(end + 3, len(self.names)))
                    if self.names[n] in _AUXILIARY
                ),
                0,
            )
            if verb:
                self._give(status, self._forward(verb + 1, status), i - 1, end)
            return
        if cue.says == "historical" and self.words[i - 1].startswith(_DURATIONS) and i:
            return  # "a two-day history of"
        if self.words[i] == "used" and self.name(i - 1) == "pronoun" and self.name(i - 2) == "m":
            self._give(status, [i - 2], i, end)
            return
        if end - i == 1 and self.name(i - 1) == "m" and self._is_end(end):  # "nystagmus no"
            self._give(status, [i - 1], i, end)
            return
        if self.words[i] == "no" and self.words[i + 1 : i + 2] == ["longer"]:
            if self.name(i + 2) not in ("m", "det"):
                return
            status = "historical"
        self._give(status, self._forward(end, status), i, end)

    def _clause(self, i: int, end: int, cue: Cue) -> None:
        """Governs the clause after it."""
        is_request = "let" in self.words[max(0, i - 4) : i]  # "let us know if"
        if (self.name(i - 1) == "ask" and not is_request) or self.name(end) == "ask":
            return
        is_first = all(name in _LIGHT for name in self.names[:i])
        status = self._status(cue, self._group(i))
        if self.words[i] == "whether" and {"modal", "may"} & {*self.names[end : end + 6]}:
            status = "hypothetical"
        targets = self._forward(end, status, clause=True, first=is_first)
        if status != "hypothetical":
            targets = self._asserted(end, targets)
        self._give(status, targets, i, end)

    def _query(self, i: int, end: int, cue: Cue) -> None:
        """A question mark before a mention, or behind the last one."""
        while self.name(end) == "?":
            end += 1
        is_attached = i > 0 and self.spans[i - 1][1] == self.spans[i][0]
        is_attached &= self.name(i - 1) not in ("(", "?")
        if not is_attached and self.name(end) in ("m", "word", "det", "adverb"):
            self._item(i, end, cue)
        elif self.name(i - 1) == "m" and is_attached and self._is_end(end):
            self._give(cue.says, [i - 1], i, end)

    def _negation(self, i: int) -> None:
        """ "Not" before what is no verb: "is not dyspneic", "not in distress", and "not ... any"."""
        ahead = self.words[i + 1 : i + 5]
        if "any" in ahead and "m" not in self.names[i : i + 1 + ahead.index("any")]:
            first = i + 1 + ahead.index("any")
            if not any(self.names[n] == "change" for n in range(i, first)):
                self._give("negated", self._forward(first, "negated", item=True), i, i + 1)
            return
        if self.words[i + 1 : i + 2] in (["only"], ["just"], ["necessarily"], ["all"], ["every"]):
            return
        k = i + 1
        while self.name(k) in ("adverb", "det", "be"):
            k += 1
        name, is_be = self.name(k), "be" in self.names[i + 1 : k]
        is_being = self.names[i] == "not" and self.name(i - 1) in (
            "be",
            "adverb",
            "m",
            ",",
            "and",
            "or",
            ".",
            ":",
            "end",
            "pronoun",
        )
        if self._is_end(i + 1) and self.name(i - 1) == "be":  # "nystagmus is not."
            self._give("negated", self._backward(i - 1, self.words[i - 1]), i - 1, i + 1)
        elif (
            self.words[k : k + 1] == ["in"]
            or (name == "m" and (k == i + 1 or is_be) and self.names[i] == "not")
            or (
                is_being
                and k not in self.cues
                and (name == "m" or (name == "word" and not self.words[k].endswith(("ed", "ing"))))
            )
        ):
            first = k + 1 if self.words[k : k + 1] == ["in"] else k
            targets = self._forward(first, "negated")
            behind = targets[0] + 1 if targets else 0
            is_subject = self.words[behind : behind + 1] and self.words[behind].endswith("ed")
            if not (is_subject or {"prep", ","} & {*self.names[first:behind]}):
                self._give("negated", targets, i, i + 1)

    def _guess(self, i: int) -> None:
        """ "May be" before a noun phrase."""
        k = i + 1
        while self.name(k) == "adverb":
            k += 1
        if self.name(k) == "be" and self.words[k + 1 : k + 2] == ["that"]:  # "may be that"
            self._give("uncertain", self._forward(k + 1, "", clause=True), i, k + 1)
            return
        noun = k + 1
        while self.name(noun) in ("adverb", "det"):
            noun += 1
        if (
            self.words[k].startswith(("caus", "lead", "produc", "induc"))
            if k < len(self.words)
            else False
        ):
            self._give("hypothetical", self._forward(k + 1, ""), i, k + 1)
            return
        if self.names[i] == "can":
            return
        is_noun = self.name(noun) == "m" or (self.name(noun) == "word" and noun not in self.cues)
        is_cause = self.words[noun : noun + 1] in (["due"], ["secondary"])
        is_verb = self.words[noun : noun + 1] and self.words[noun].endswith(("ed", "ing"))
        if self.name(k) == "be" and (is_cause or (is_noun and not is_verb)):
            self._give("uncertain", self._forward(noun, "uncertain", item=True), i, k + 1)

    def _is_end(self, k: int) -> bool:
        return self.name(k) in _STOPS or self.name(k) in (",", ")", "mark", "(", "end", "and")

    def _initial(self, i: int, end: int, cue: Cue) -> None:
        """Governs the clause if it is the first word, or as a verb before its subject."""
        if end - i > 1 and not (self.is_head or self.name(end) == ":"):
            return  # "side effects" as a title
        is_inverted = self.names[i] == "modal" and self.name(end) in ("m", "pronoun", "det")
        if is_inverted and self.words[end] in ("it", "they") and "m" not in self.names[end:]:
            self._give(cue.says, self._last(i), i, end)
        elif is_inverted or all(name in _LIGHT for name in self.names[:i]):
            self._clause(i, end, cue)

    def _behind(self, i: int, end: int, cue: Cue) -> None:
        """Governs the mention directly before it."""
        k = i - 1
        while k >= 0 and self.names[k] in ("-", "and", "or", "m") and self.words[k] != "with":
            k -= 1
        targets = [n for n in range(k + 1, i) if self.names[n] == "m"]
        if self.name(end) in ("m", "word") and self.words[i] == "free":
            return
        self._give(self._status(cue, self._group(k + 1)), targets, i, end)

    def _time(self, i: int, end: int, cue: Cue) -> None:
        """A time governs the mentions of its clause."""
        if self.words[end - 1] == "was" and self.name(end) not in ("number", "det"):
            return  # "when he was seen"
        if self.words[end - 1].endswith(("ties", "teens")) and end - i == 2:
            return  # an age: "a woman in sixties"
        if self.words[i] == "before" and not self._is_end(end):
            return
        if self.words[i] in ("ago", "earlier", "before") and not self.words[i - 1].startswith(
            ("year", "yr", "month", "week", "decade")
        ):
            return
        k, targets = i - 1, []
        while k >= 0 and self.names[k] not in _STOPS and self.names[k] not in ("end", "mark"):
            if self.names[k] == "begin" or (targets and self.names[k] in (",", "rel")):
                break
            if self.names[k] == "m":
                targets.append(k)
            k -= 1
        if self.name(k) == "begin":
            return
        if not targets:
            targets = self._forward(end, cue.says, clause=True)
        self._give(cue.says, targets, i, end)

    def _year(self, i: int) -> None:
        """A year behind a mention: "stroke 2012", "her last seizure was in 1994"."""
        k = i - 1
        while k >= 0 and (
            self.names[k] in ("be", "adverb", ",", "(") or self.words[k] in ("in", "on", "treated")
        ):
            k -= 1
        if self.name(k) == "m":
            if not any(word.startswith(("diagnos", "start", "beg")) for word in self.words[:i]):
                self._give("historical", [k], i, i + 1)

    # Scopes

    def _forward(
        self,
        start: int,
        status: str,
        *,
        item: bool = False,
        clause: bool = False,
        first: bool = False,
    ) -> list[int]:
        """Return the mentions in the list of noun phrases, or the clause, that begins at a word.

        item (bool): Only the first noun phrase, and those that "and" or "or" joins to it.
        first (bool): The clause ends at a comma.
        """
        found: list[int] = []
        last, blocked, comma, n_commas = "", False, -1, 0
        is_and = is_change = False
        is_negated, item_start = status == "negated", start
        k, stop = start, min(len(self.names), start + _MAX_WORDS)
        while k < stop:
            name = self.names[k]
            if self.words[k] == "other" and self.words[k + 1 : k + 2] == ["than"]:
                break
            if is_negated and (
                (name == "own" and last == "word") or (last and self.words[k] == "some")
            ):
                break
            if name in _LIGHT:
                pass
            elif name == "m":
                last = name
                if not (blocked or self._is_modifier(k)):
                    found.append(k)
            elif name in _STOPS or name in ("mark", ")"):
                is_colon = name == ":" and (not last or (clause and not found))
                if not (is_colon or (name == "." and self._is_abbreviated(k))):
                    break
            elif name == "(":
                close = next((n for n in range(k, stop) if self.names[n] == ")"), stop)
                inside = self.names[k + 1 : close]
                if last and not blocked and "number" not in inside:
                    found += [n for n in range(k + 1, close) if self.names[n] == "m"]
                k = close
            elif name == ",":
                is_closed = not self._closes(k)
                if (first or item) and is_closed:
                    break
                if not last or (not clause and self._is_own(k + 1, n_commas, is_negated)):
                    break
                if self._begins(k + 1):
                    break
                if (
                    is_negated
                    and not any(name == "m" for name in self.names[item_start:k])
                    and (self.n_mentions > 1 and not self._closes(k))
                ):
                    break
                item_start = k
                n_commas += 1
                comma, blocked, last, is_and = len(found), False, "m", False
            elif name in ("and", "or", "/"):
                after = k + 1
                while self.name(after) == "adverb":
                    after += 1
                is_phrase = self.name(after) == "prep" and self.words[after] not in (
                    "of",
                    "for",
                    "from",
                )
                if is_negated and self.name(after) == "own" and last == "m":
                    break
                is_clause = self._begins(after) and not (clause and self._is_verb(after))
                if is_clause or (is_phrase and last and not clause):
                    break
                comma = -1 if name == "or" else len(found) if name == "and" and comma < 0 else comma
                is_and, last = name == "and", ""
                blocked = blocked and is_change
            elif name == "end" and not (last == "" and self.words[k] in ("due", "secondary")):
                break
            elif name == "rel":
                if last:
                    break
            elif name == "to":
                blocked |= last not in ("", "bare") and not clause
            elif name == "prep":
                if self.words[k] == "as" and not (last or clause):
                    break
                if last == "m" and is_negated and self.words[k + 1 : k + 2] == ["the"]:
                    blocked = True  # "no fall with the seizures"
                elif self.words[k] == "about":
                    blocked |= bool(last)
                elif (
                    last == "bare" and self.words[k] == "for" and self.words[k - 1][:7] == "diagnos"
                ):
                    blocked = True
                elif item and last == "m":
                    blocked = self.words[k] != "of"
                elif item and last != "bare":
                    if not last:
                        break
                    blocked |= self.words[k] != "of"
                elif last in ("", "bare") or clause or (status[:4] == "hist" and last != "m"):
                    pass
                elif self.words[k] == "of" and last != "change":
                    blocked |= last != "m" and self.name(k + 1) in ("det", "own")
                elif last == "change" or not (
                    last == "m" and self.words[k] == "with" and is_negated
                ):
                    blocked = True
            elif name in _AUXILIARY or self._is_verb(k):
                is_having = name == "have" or (k in self.cues and self.cues[k][1][0].kind == "verb")
                if is_negated and not found and last in ("word", "kin") and is_having:
                    last, blocked = "", False  # "no patient had"
                elif last and not clause:
                    is_seen = is_and and name == "be"  # "no rash and fever were seen"
                    if comma >= 0 and not is_seen:
                        del found[comma:]
                    break
            elif name == "pronoun":
                if last and not clause:
                    break
            elif name == "change" and self.words[k] != "causing":
                last, is_change = name, True
                blocked |= is_negated
            elif k in self.cues and last and is_negated is False and self._negates(k):
                break
            else:
                last = name
            k += 1
        return found

    def _is_modifier(self, k: int) -> bool:
        """Whether a mention is part of a compound: "heparin-induced"."""
        return (
            self.name(k + 1) == "-"
            and self.name(k + 2) in ("word", "change")
            and (self.words[k + 2].endswith("ed"))
        )

    def _backward(self, start: int, verb: str) -> list[int]:
        """Return the mentions in the subject of the group that begins at a word."""
        k = start - 1
        if self.name(k) == ":" and self.name(k - 1) == "m":  # "ataxia: not seen"
            k -= 1
        if self.name(k) == ",":  # after a relative clause
            rel = next((n for n in range(k, max(0, k - 14), -1) if self.names[n] == "rel"), 0)
            k = rel - 1 if rel and self.name(rel - 1) in (",", "m") else k
        if k > 0 and self.words[k] == "that" and self.names[k - 1] == "m":
            k -= 1
        skipped = ("adverb", "time", ",", "rel", "and", "not", '"', "-")
        first = k
        while k >= 0 and (self.names[k] in skipped or self.words[k] in ("but", "then")):
            k -= 1
        if any(self.words[n] in ("and", "but", "then") for n in range(k + 1, first + 1)):
            # A predicate without a subject: "was looked for and not found".
            verb_at = next(
                (
                    n
                    for n in range(k, max(-1, k - 20), -1)
                    if self.names[n] in ("m", "end")
                    or self.names[n] in _STOPS
                    or self.names[n] == "be"
                ),
                -1,
            )
            k = verb_at if self.name(verb_at) == "be" else k
        while k >= 0 and (self.names[k] in _AUXILIARY or self._is_predicate(k)):
            group = self._group(k)
            k = group.start - 1
            while k >= 0 and self.names[k] in skipped:
                k -= 1
        found: list[int] = []
        is_plural = verb in ("are", "were", "have")
        n_complete = 0
        is_list, list_start, low = False, 0, max(0, k - _MAX_WORDS)
        while k >= low:
            name = self.names[k]
            if name == "m":
                found += [] if self._is_modifier(k) else [k]
            elif name == ")":
                opening = next((n for n in range(k, low - 1, -1) if self.names[n] == "("), low)
                inside = [n for n in range(opening, k) if self.names[n] == "m"]
                found += inside if len(inside) == 1 and k - opening < 4 else []
                k = opening
            elif name == ",":
                if not (is_plural or is_list):
                    break
                n_complete = len(found)
            elif name in ("and", "or", "/"):
                is_list, list_start, n_complete = True, list_start or k, len(found)
            elif name == "prep":
                head = self.name(k - 1)
                if head != "bare" and head in ("m", "word", "change", "kin", "adverb"):
                    del found[n_complete:]
            elif name == "pronoun" and self.name(k - 1) == "m":  # "the cough he came with"
                return [k - 1]
            elif name in _STOPS or name in ("end", "mark", "rel", "pronoun", "to", "("):
                break
            elif self.name(k - 1) == "m" and k in self.cues and self.words[k].endswith(_PARTICIPLE):
                pass  # "the mass seen on the scan"
            elif name in _AUXILIARY or (k in self.cues and self._ends_subject(k)):
                if verb in ("is", "was", "has") and list_start:  # the object of another verb
                    found = [n for n in found if n > list_start]
                break
            k -= 1
        return found

    def _is_abbreviated(self, k: int) -> bool:
        """Whether a full stop within a sentence belongs to an abbreviation: "resp. infection"."""
        return k + 1 < len(self.names) and len(self.words[k - 1]) < 6

    def _ends_subject(self, k: int) -> bool:
        return any(
            cue.kind not in ("item", "behind", "query", "time", "person") for cue in self.cues[k][1]
        )

    def _negates(self, k: int) -> bool:
        return any(cue.says == "negated" for cue in self.cues[k][1])

    def _is_predicate(self, k: int) -> bool:
        return k in self.cues and any(
            c.kind in ("verb", "object", "state", "adjective") for c in self.cues[k][1]
        )

    def _is_verb(self, k: int) -> bool:
        """Whether a word is a finite verb: after a noun, and no participle behind it."""
        if not self._is_predicate(k) or self.name(k - 1) in ("det", "own", "prep", "to", "bare"):
            return False
        is_participle = self.words[k].endswith(_PARTICIPLE)
        return not is_participle or self.name(k + 1) in ("m", "det", "own", "word")

    def _begins(self, k: int) -> bool:
        """Whether a clause begins at a word after a comma or a conjunction."""
        name = self.name(k)
        if name in _AUXILIARY or name in ("pronoun", "rel", "end") or self._is_verb(k):
            return True
        return k in self.cues and self._negates(k)

    def _is_own(self, k: int, n_before: int, is_negated: bool) -> bool:
        """Whether an item of a list says something of its own: "seizures daily"."""
        if self.name(k) == "prep":
            return True
        is_graded = self.name(k) == "degree"
        if self.words[k : k + 1] in (["only"], ["just"]):
            return True
        while k < len(self.names):
            name = self.names[k]
            if name in ("and", "or", "/"):
                return False
            if name in (",", ")") or name in _STOPS:
                return name == ":" or is_graded
            if name in ("time", "number") and n_before:  # "no fever, chills, cough for 3 days"
                return False
            if name in ("time", "number", "end", "+") or name in _AUXILIARY:
                return True
            if (
                is_negated
                and name == "word"
                and self.name(k - 1) == "m"
                and not self.words[k].endswith("s")
            ):
                return True  # "cough productive"
            if is_negated and self.words[k] == "still":
                return True
            if self._is_predicate(k) or (k in self.cues and self.cues[k][1][0].kind == "time"):
                return True
            k += 1
        return is_graded

    def _closes(self, k: int) -> bool:
        """Whether "or" or "and" closes the list that a comma continues."""
        for n in range(k + 1, min(len(self.names), k + 30)):
            if self.names[n] == "or" or (self.names[n] == "and" and not self._begins(n + 1)):
                return True
            if self.names[n] in _STOPS or self.names[n] in _AUXILIARY or self.names[n] == "end":
                return False
        return False

    # Persons

    def _person(self, i: int, end: int, cue: Cue) -> None:
        if self.name(end) == "-" and self.name(end + 1) == "word":  # "donor-derived"
            return
        self._experience(i, end, cue.says)

    def _relative(self, i: int) -> None:
        is_history = self.words[i + 1 : i + 2] in (["history"], ["hx"])
        if is_history or self.words[i] in ("fh", "fhx"):
            end = i + 1 + is_history
            self._give("family", self._of_person(end, False), i, end)
            return
        if not (self.name(i + 1) == "-" and self.name(i + 2) in ("word", "to")):
            self._experience(i, i + 1, "family")

    def _experience(self, i: int, end: int, status: str) -> bool:
        """A person has what follows "has" or "with", or stands after "'s" or "in her mother"."""
        if self.name(i - 2) == "and" and self.name(i - 3) == "pronoun":  # "he and his brother"
            return False
        k, n_words = i - 1, 0
        while self.name(k) in ("det", "own", "word", "bare", "number", "adverb", "-") and k >= 0:
            n_words += self.names[k] in ("word", "bare") and self.words[k] not in _OF_KIN
            if n_words > 2 or self.words[k].endswith("ed"):
                break
            k -= 1
        before = self.words[k] if k >= 0 and self.name(k) in ("prep", "to") else ""
        is_weak = self.words[i] in _WEAK_KIN and not any(
            self.names[n] in ("own", "number") or self.words[n] in _QUALIFIERS
            for n in range(k + 1, i)
        )
        if self.words[i] in ("child", "children"):
            is_weak = "own" not in self.names[k + 1 : i]
        is_weak &= not (self.words[i] == "family" and self.words[i - 1] == "the")
        if is_weak or (self.words[i] == "family" and before not in ("in", "of")):
            return False
        if before in ("in", "affecting"):
            targets = self._backward_of_person(k)
            if targets:
                return self._give(status, targets, i, end)
        elif before == "to" and self.words[i + 1 : i + 2] == ["with"]:
            pass  # "born to a mother with"
        elif before not in ("", "of", "after", "for") and not (
            before == "with" and status == "other"
        ):
            return False
        q = end
        while q < len(self.names):  # the rest of the subject
            name = self.names[q]
            if name == "(":
                q = next((n for n in range(q, len(self.names)) if self.names[n] == ")"), q) + 1
            elif name == "," and (behind := self._appositive(q)):
                q = behind
            elif name == "prep" and (verb := self._verb_behind(q)):
                q = verb
            elif name == "prep" and "side" in self.words[q : q + 6]:
                q += self.words[q:].index("side") + 1
            elif name in ("rel", "adverb", "own", "det", "number", "time", "kin") or (
                name in (",", "and", "or") and self._is_subject(q + 1)
            ):
                q += 1
            else:
                break
        name, item = self.name(q), False
        if self.words[q : q + 1] == ["'s"]:
            return self._give(status, self._forward(q + 1, "", item=True), i, q + 1)
        elif name in ("have", "be", "do", "may", "modal", "can", "not"):
            verb = q
            while self.name(verb) in ("have", "be", "do", "may", "modal", "can", "not", "adverb"):
                verb += 1
            if (
                self.name(verb) in ("say", "word")
                and name != "have"
                and self.words[verb].endswith("ing")
            ):
                return False
            is_raising = self.name(verb + 1) == "to" and self.name(verb + 2) in ("have", "be")
            is_saying = self.name(verb) == "say" or (
                self._is_verbal(verb) and self.name(verb - 1) != "det" and verb > q
            )
            if is_saying and not is_raising and not self._is_having(verb):
                return False
            item = name == "be" and not self.words[verb].endswith("ed")
            q = verb
        elif name in (":", "-"):
            q += 1
        elif name == "prep":
            if self.words[q] not in ("with", "of"):
                return self.is_head and self._give(status, [len(self.names) - 1], i, end)
            q += 1
        elif name == "word" and self.words[q + 1 : q + 2] == ["with"]:  # "home with"
            q += 2
        elif (
            name == "undergo"
            or (name in ("word", "change", "ask") and (self._is_action(q) or self._is_having(q)))
            or (
                q in self.cues
                and self._negates(q)
                and self.names[q] != "say"
                and self.cues[q][1][0].kind == "phrase"
            )
        ):
            pass
        elif name != "m":
            return self.is_head and self._give(status, [len(self.names) - 1], i, end)
        return self._give(status, self._of_person(q, item), i, end)

    def _verb_behind(self, k: int) -> int:
        """Return the auxiliary behind a short phrase: "a cousin in Canada is", or 0."""
        for n in range(k + 1, min(k + 5, len(self.names))):
            if self.names[n] in _AUXILIARY and self.words[k] != "with":
                return n
            if self.names[n] not in ("det", "own", "word", "number"):
                break
        return 0

    def _appositive(self, k: int) -> int:
        """Return the end of an apposition between commas before a verb: ", aged 12,", or 0."""
        for n in range(k + 1, min(k + 8, len(self.names))):
            if self.names[n] == ",":
                after = n + 1
                while self.name(after) == "adverb":
                    after += 1
                return after if self.name(after) in (*_AUXILIARY, "word") else 0
            if self.names[n] == "m" or self.names[n] in _AUXILIARY or self.names[n] == "kin":
                return 0
        return 0

    def _is_action(self, k: int) -> bool:
        """Whether a word after a person is a verb, but not one of saying or bringing."""
        is_noun = self.name(k + 1) in _AUXILIARY  # "daughter cysts are"
        return (
            k not in self.cues
            and self.words[k].endswith(("ed", "s", "nt", "ook", "ost"))
            and not is_noun
        )

    def _is_verbal(self, k: int) -> bool:
        return k in self.cues and self.cues[k][1][0].kind in ("verb", "object")

    def _is_having(self, k: int) -> bool:
        return self.words[k].startswith(_HAVING)

    def _is_subject(self, k: int) -> bool:
        """Whether another relative, an age or a relative clause follows."""
        while self.name(k) in ("own", "det", "adverb") or self.words[k : k + 1] in (
            ["maternal"],
            ["paternal"],
            ["both"],
        ):
            k += 1
        return self.name(k) in ("kin", "number", "rel")

    def _of_person(self, k: int, item: bool) -> list[int]:
        """Return the mentions that a person has, from a word on."""
        found = []
        stop = min(len(self.names), k + _MAX_WORDS)
        while k < stop:
            name = self.names[k]
            if name == "m":
                found.append(k)
            elif self.words[k] in _CONTRAST:
                if self.name(k + 1) in ("pronoun", "kin", "own", "det", "m"):
                    break
                item = False
            elif name in (".", ";", "!", "?", "|"):
                break
            elif name == "pronoun" or (name == "kin" and found):
                break
            elif name in (",", "and") and ((item and name == ",") or self._starts_clause(k + 1)):
                break
            k += 1
        return found

    def _starts_clause(self, k: int) -> bool:
        """Whether a new subject or a verb of the patient follows."""
        if self.name(k) in ("pronoun", "kin", "own", "say") or self.words[k : k + 1] == ["that"]:
            return True
        return self.name(k - 1) == "," and self.name(k) in ("have", "be")

    def _backward_of_person(self, k: int) -> list[int]:
        """Return the mentions before "in her mother"."""
        found: list[int] = []
        k -= 1
        while (
            k >= 0
            and self.names[k] not in _STOPS
            and self.names[k] not in ("end", "pronoun", "kin")
        ):
            if self.names[k] == "m":
                found.append(k)
            elif self.names[k] == "," and found and "and" not in self.names[k : found[0]]:
                break
            elif self.names[k] in _AUXILIARY and found:
                break
            k -= 1
        return found


_DURATIONS = ("minute", "hour", "day", "week", "month", "year", "yr")
_HAVING = (
    "had",
    "get",
    "suffer",
    "develop",
    "diagnos",
    "experienc",
    "got",
    "confirm",
    "document",
    "prov",
)
_WEAK_KIN = frozenset("relative relatives parent child children twin twins family".split())
_QUALIFIERS = frozenset("both neither no maternal paternal degree first affected".split())
_OF_KIN = frozenset(
    "maternal paternal older younger elder twin half great step first degree second identical late affected neither no".split()
)

KINDS: dict[str, Callable[[Sentence, int, int, Cue], None]] = {
    "verb": Sentence._verb,
    "object": Sentence._verb,
    "state": Sentence._state,
    "adjective": Sentence._adjective,
    "item": Sentence._item,
    "phrase": Sentence._phrase,
    "clause": Sentence._clause,
    "initial": Sentence._initial,
    "query": Sentence._query,
    "behind": Sentence._behind,
    "time": Sentence._time,
    "person": Sentence._person,
}

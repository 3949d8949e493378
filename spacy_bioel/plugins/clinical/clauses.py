"""Use sentence structure to decide which cue governs which mention.

A cue's grammatical kind (see `CUE_KINDS`) selects the mentions that it governs. A cue's scope ends
at the end of a list, phrase or clause.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Container

from spacy_bioel.plugins.clinical.persons import Persons
from spacy_bioel.plugins.clinical.words import (
    AUXILIARY,
    CONTRAST,
    LIGHT,
    PARTICIPLE,
    STOPS,
    Cue,
    Found,
)

_YEAR = re.compile(r"(?:19|20)\d\d")
_ACTIVE = frozenset(("kin", "number", "not", "fail", "may", "can", "mark"))
_DURATIONS = ("minute", "hour", "day", "week", "month", "year", "yr")


class Sentence(Persons):
    """A sentence, table cell or list item, with each mention treated as a single word."""

    def read(self) -> dict[int, list[Found]]:
        """Return the cues that govern each mention, keyed by the mention's start offset."""
        for i, (end, cues) in self.cues.items():
            for cue in cues:
                CUE_KINDS[cue.kind](self, i, end, cue)
        for i, (name, word) in enumerate(zip(self.names, self.words, strict=True)):
            if name not in _ACTIVE and word not in ("nor", "longer", "could"):
                continue
            if name == "kin":
                self.read_relative(i)
            elif name == "number" and self.word(i - 1) == "at" and self.name(i - 2) == "m":
                if "had" in self.words[max(0, i - 6) : i]:  # "she had mumps at 17"
                    self.give("historical", [i - 2], i - 1, i + 1)
            elif name == "number" and _YEAR.fullmatch(self.word(i)):
                self._year(i)
            elif word == "nor" and self.name(i + 1) in AUXILIARY:
                self.give("negated", self.forward(i + 2, "negated"), i, i + 1)
            elif word == "longer" and self.name(i + 1) == "det":  # "no longer a problem"
                if self.name(i - 2) == "be":
                    self.give("historical", self.backward(i - 2, "is"), i - 1, i + 1)
            elif name in ("not", "fail"):
                self._negation(i)
            elif name in ("may", "can") or word == "could":
                self._guess(i)
            elif name == "mark" and (status := self._marks.get(self.spans[i][0])):
                self.give(status, self.forward(i + 1, status), i, i + 1)
        return self.found

    def is_contrary(self, start: int) -> bool:
        """Whether words before a mention, such as "but has", override the mention's heading."""
        places = [place for place, _ in self.spans]
        before = range(bisect_left(places, start))
        return any(
            self.word(k) in CONTRAST
            or (self.is_verb(k) and self.cues[k][1][0].says == "+" and not self.group(k).negated)
            for k in before
        )

    def says_only_cues(self, fillers: Container[str]) -> bool:
        """Whether every word is a cue, a kinship term, a filler or a function word."""
        inside = {n for start, (end, _) in self.cues.items() for n in range(start, end)}
        return all(
            k in inside or name not in ("word", "change", "say") or word in fillers
            for k, (word, name) in enumerate(zip(self.words, self.names, strict=True))
        )

    def is_of_patient(self, start: int) -> bool:
        """Whether a word such as "patient" or "himself" comes before a mention."""
        places = [place for place, _ in self.spans]
        return any(
            self.word(k) in ("patient", "pt", "proband", "himself", "herself")
            for k in range(bisect_left(places, start))
        )

    def goes_on(self, start: int) -> bool:
        """Whether the words after a mention show that it is ongoing: "gout on allopurinol"."""
        places = [place for place, _ in self.spans]
        k = bisect_left(places, start) + 1
        is_treated = self.word(k) == "on" and self.name(k + 1) in ("word", "m")
        inside = self.words[k : k + 4]
        return is_treated or any(
            w.startswith(("controlled", "ongoing", "stable", "uses", "takes")) for w in inside
        )

    def _verb(self, i: int, end: int, cue: Cue) -> None:
        """Apply a verb cue to the verb's object or, in the passive, to its subject."""
        if end - i == 1 and self.name(i - 1) in ("det", "own") and self.word(end - 1) != "had":
            return  # a noun: "the report"
        group = self.group(i)
        is_participle = self.word(i).endswith(PARTICIPLE)
        after = self.name(end)
        is_last = after not in ("m", "word", "det", "own", "to", "pronoun", "number", "bare", "rel")
        if cue.says == "negated" and not group.has_subject and not is_participle:
            is_first = self.name(i - 1) in STOPS or self.name(i - 1) in (",", "and", "-")
            group.modal |= is_first and not self.word(i).endswith("s")
        if group.negated and "previously" in self.words[group.start : end + 1]:
            return  # "has not been reported previously"
        status = self.status(cue, group)
        given = status if status != "+" else ""
        is_this = self.word(group.start - 1) in ("this", "that", "which") and group.start > 0
        is_this |= self.word(group.start - 1).startswith(("diagnos", "possibil"))
        has_pronoun = any(word in ("it", "them") for word in self.words[i : end + 1])
        is_passive = (
            is_participle
            and not has_pronoun
            and (group.passive or (is_last and not group.has_subject))
        )
        if is_passive and cue.says == "uncertain" and after in ("det", "m"):
            is_passive = False  # "considered a seizure"
        if is_passive and (after != "to" or cue.says == "negated") and cue.kind == "verb":
            targets = self.backward(group.start, self.word(group.start))
            before = self.name(group.start - 1)
            if not targets and (before == "bare" or is_this):
                targets = self.last_mention(i)
            if self.give(given, targets, i, end):
                return
            if is_last and self.word(end) not in ("with", "as", "by", "for", ",", ":"):
                return
        first = group.start if group.negated or group.modal else i
        targets = self.asserted(end, self.forward(end, given, clause=cue.kind == "object"))
        if not targets and self.name(i - 1) == "to" and group.start < i - 1:
            targets = self.backward(group.start, "is")  # "is difficult to exclude"
        if not targets and self.name(group.start - 1) == "pronoun" and group.negated:
            targets = [k for k in [group.start - 2] if self.name(k) == "m"]  # "Ataxia she has not"
        if not targets and has_pronoun:
            targets = self.last_mention(i)
        self.give(given, targets, first, end)

    def _state(self, i: int, end: int, cue: Cue) -> None:
        """Apply a predicate cue, such as "is present", to its subject."""
        if self.word(i) == "none":
            if self.name(i - 1) in ("have", "be", "prep"):  # "he had none"
                self.give(cue.says, self.last_mention(i), i, end)
                return
            if self.word(end) in ("since", "subsequently", "after"):
                self.give("historical", self.last_mention(i), i, end)
                return
            if self.name(end) == "have" or self.is_verb(end):
                self.give(cue.says, self.forward(end + 1, cue.says), i, end)
                return
        group = self.group(i)
        if group.passive and self.word(i) == "stopped":  # "was stopped" refers to drugs
            return
        if self.is_head and self.name(end) == "m":
            self.give(self.status(cue, group).strip("+"), [len(self.names) - 1], i, end)
            return
        is_verb = self.name(i - 1) == "m" and self.word(i).endswith(PARTICIPLE)
        if not (group.has_subject or is_verb) and self.name(end) in ("m", "word", "bare"):
            return
        if self.status(cue, group) not in ("", "+"):
            targets = self.backward(group.start, self.word(group.start))
            self.give(self.status(cue, group), targets, group.start, end)

    def _adjective(self, i: int, end: int, cue: Cue) -> None:
        """Apply an adjective cue to the noun that follows it, or to its subject."""
        if self.word(end) == "that":
            status = self.status(cue, self.group(i))
            self.give(status, self.asserted(end, self.forward(end, status, clause=True)), i, end)
        elif self.word(end) in ("due", "secondary"):
            self._item(i, end, cue)
        elif self.name(end) in ("m", "word", "bare", "change", "-", "det"):
            if self.name(end) != "m" and not self.forward(end, "", item=True):
                group = self.group(i)  # "is a less likely alternative"
                if group.passive or (self.name(i - 1) == "det" and self.name(i - 2) == "m"):
                    self.give(self.status(cue, group), self.backward(group.start, "is"), i, end)
                return
            self._item(i, end, cue)
        elif self.name(end) == "to":
            group, verb = self.group(i), end + 1
            while self.name(verb) in ("have", "not"):
                verb += 1
            is_being = self.name(verb) == "be" and self.word(verb + 1) != "due"
            if is_being or self.name(verb) == "m" or verb in self.cues:
                self.give(self.status(cue, group), self.forward(verb + 1, "", item=True), i, end)
        else:
            self._state(i, end, cue)

    def _item(self, i: int, end: int, cue: Cue) -> None:
        """Apply a cue to the noun phrase directly after it."""
        if self.word(i) == "non" and self.names[end : end + 2] != ["-", "m"]:
            return
        if self.word(i) == "old" and (
            self.name(i - 1) == "-" or self.word(i - 1)[:2] in ("ye", "mo", "yr")
        ):
            return
        status = self.status(cue, self.group(i))
        if status == "negated" and "whether" in self.words[:i]:
            status = "uncertain"  # "whether A rather than B"
        self.give(status, self.forward(end, status, item=True), i, end)

    def _phrase(self, i: int, end: int, cue: Cue) -> None:
        """Apply a cue to the list of noun phrases after it."""
        status = self.status(cue, self.group(i))
        if status == "+" or (self.word(i) == "without" and self.word(i - 2) == "with"):
            return
        for k in range(i - 1):  # "it is not that he has no pain" negates a clause
            if self.names[k] == "not" and self.word(k + 1) == "that" and status == "negated":
                status = "unknown"
        if self.word(i) == "neither":
            if self.word(end).endswith("ed") and end not in self.cues:
                return  # "neither reduced nor"
            targets = self.forward(end, status)
            behind = targets[-1] + 1 if targets else 0
            if self.word(behind).endswith("ed") and not self.is_predicate(behind):
                return  # "neither A nor B reduced"
        if self.word(i) == "none" and self.word(i - 1) == "in" and i:  # "in none of the samples"
            self.give(status, self.last_mention(i), i, end)
            return
        is_asked = any(word.startswith(("ask", "question")) for word in self.words[:i])
        if self.word(i) == "no" and is_asked and self.is_end(end):
            self.give(status, self.last_mention(i), i, end)  # "she answered no"
            return
        if self.word(i) == "no" and self.word(i - 1) == "at" and i:  # "at no time did he have"
            verb = next(
                (
                    n
                    for n in range(end, min(end + 3, len(self.names)))
                    if self.names[n] in AUXILIARY
                ),
                0,
            )
            if verb:
                self.give(status, self.forward(verb + 1, status), i - 1, end)
            return
        if cue.says == "historical" and self.word(i - 1).startswith(_DURATIONS) and i:
            return  # "a two-day history of"
        if self.word(i) == "used" and self.name(i - 1) == "pronoun" and self.name(i - 2) == "m":
            self.give(status, [i - 2], i, end)
            return
        if end - i == 1 and self.name(i - 1) == "m" and self.is_end(end):  # "nystagmus no"
            self.give(status, [i - 1], i, end)
            return
        if self.word(i) == "no" and self.word(i + 1) == "longer":
            if self.name(i + 2) not in ("m", "det"):
                return
            status = "historical"
        self.give(status, self.forward(end, status), i, end)

    def _clause(self, i: int, end: int, cue: Cue) -> None:
        """Apply a cue to the clause after it."""
        is_request = "let" in self.words[max(0, i - 4) : i]  # "let us know if"
        if (self.name(i - 1) == "ask" and not is_request) or self.name(end) == "ask":
            return
        # A leading condition ("If it rains, ...") ends at a comma; an instruction does not.
        is_first = not cue.doubted and all(name in LIGHT for name in self.names[:i])
        status = self.status(cue, self.group(i))
        if self.word(i) == "whether" and {"modal", "may"} & {*self.names[end : end + 6]}:
            status = "hypothetical"
        targets = self.forward(end, status, clause=True, first=is_first)
        if status != "hypothetical":
            targets = self.asserted(end, targets)
        self.give(status, targets, i, end)

    def _query(self, i: int, end: int, cue: Cue) -> None:
        """Apply a question mark to the mention after it ("? gout") or before it ("gout?")."""
        while self.name(end) == "?":
            end += 1
        is_attached = i > 0 and self.spans[i - 1][1] == self.spans[i][0]
        is_attached &= self.name(i - 1) not in ("(", "?")
        if not is_attached and self.name(end) in ("m", "word", "det", "adverb"):
            self._item(i, end, cue)
        elif self.name(i - 1) == "m" and is_attached and self.is_end(end):
            self.give(cue.says, [i - 1], i, end)

    def _negation(self, i: int) -> None:
        """Apply "not" before a noun phrase: "is not dyspneic", "not in distress", "not ... any"."""
        if self.word(i) == "neither":
            return
        ahead = self.words[i + 1 : i + 5]
        if "any" in ahead and "m" not in self.names[i : i + 1 + ahead.index("any")]:
            first = i + 1 + ahead.index("any")
            if not any(self.names[n] == "change" for n in range(i, first)):
                self.give("negated", self.forward(first, "negated", item=True), i, i + 1)
            return
        if self.word(i + 1) in ("only", "just", "necessarily", "all", "every"):
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
        if self.is_end(i + 1) and self.name(i - 1) == "be":  # "nystagmus is not."
            self.give("negated", self.backward(i - 1, self.word(i - 1)), i - 1, i + 1)
        elif (
            (self.word(k) == "in" and self.names[i] == "not")
            or (name == "m" and (k == i + 1 or is_be) and self.names[i] == "not")
            or (
                is_being
                and k not in self.cues
                and (name == "m" or (name == "word" and not self.word(k).endswith(("ed", "ing"))))
            )
        ):
            first = k + 1 if self.word(k) == "in" else k
            targets = self.forward(first, "negated")
            behind = targets[0] + 1 if targets else 0
            is_subject = self.word(behind).endswith("ed")
            if not (is_subject or {"prep", ","} & {*self.names[first:behind]}):
                self.give("negated", targets, i, i + 1)

    def _guess(self, i: int) -> None:
        """Apply "may be", "may cause" and similar words to the noun phrase after them."""
        k = i + 1
        while self.name(k) == "adverb":
            k += 1
        if self.name(k) == "be" and self.word(k + 1) == "that":  # "may be that"
            self.give("uncertain", self.forward(k + 1, "", clause=True), i, k + 1)
            return
        noun = k + 1
        while self.name(noun) in ("adverb", "det"):
            noun += 1
        if (
            self.word(k).startswith(("caus", "lead", "produc", "induc"))
            if k < len(self.words)
            else False
        ):
            self.give("hypothetical", self.forward(k + 1, ""), i, k + 1)
            return
        if self.names[i] == "can":
            return
        is_noun = self.name(noun) == "m" or (self.name(noun) == "word" and noun not in self.cues)
        is_cause = self.word(noun) in ("due", "secondary")
        is_verb = self.word(noun).endswith(("ed", "ing"))
        if self.name(k) == "be" and (is_cause or (is_noun and not is_verb)):
            self.give("uncertain", self.forward(noun, "uncertain", item=True), i, k + 1)

    def _initial(self, i: int, end: int, cue: Cue) -> None:
        """Apply a cue that starts a clause: "Should seizures recur", "Side effects: rash"."""
        if end - i > 1 and not (self.is_head or self.name(end) == ":"):
            return  # "side effects" as a title
        is_inverted = self.names[i] == "modal" and self.name(end) in ("m", "pronoun", "det")
        if is_inverted and self.word(end) in ("it", "they") and "m" not in self.names[end:]:
            self.give(cue.says, self.last_mention(i), i, end)
        elif is_inverted or all(name in LIGHT for name in self.names[:i]):
            self._clause(i, end, cue)

    def _behind(self, i: int, end: int, cue: Cue) -> None:
        """Apply a cue to the mentions directly before it."""
        k = i - 1
        while k >= 0 and self.names[k] in ("-", "and", "or", "m") and self.word(k) != "with":
            k -= 1
        targets = [n for n in range(k + 1, i) if self.names[n] == "m"]
        if self.name(end) in ("m", "word") and self.word(i) == "free":
            return
        self.give(self.status(cue, self.group(k + 1)), targets, i, end)

    def _time(self, i: int, end: int, cue: Cue) -> None:
        """Apply a time expression, such as "two years ago", to the mentions in its clause."""
        if self.word(end - 1) == "was" and self.name(end) not in ("number", "det"):
            return  # "when he was seen"
        if self.word(i) == "before" and not self.is_end(end):
            return
        if self.word(i) in ("ago", "earlier", "before") and not self.word(i - 1).startswith(
            ("year", "yr", "month", "week", "decade")
        ):
            return
        k, targets = i - 1, list[int]()
        while k >= 0 and self.names[k] not in STOPS and self.names[k] not in ("end", "mark"):
            if self.names[k] == "begin" or (targets and self.names[k] in (",", "rel")):
                break
            if self.names[k] == "m":
                targets.append(k)
            k -= 1
        if self.name(k) == "begin":
            return
        if not targets:
            targets = self.forward(end, cue.says, clause=True)
        self.give(cue.says, targets, i, end)

    def _year(self, i: int) -> None:
        """Apply a year to the mention before it: "stroke 2012", "her last seizure was in 1994"."""
        k = i - 1
        while k >= 0 and (
            self.names[k] in ("be", "adverb", ",", "(") or self.word(k) in ("in", "on", "treated")
        ):
            k -= 1
        if self.name(k) == "m":
            if not any(word.startswith(("diagnos", "start", "beg")) for word in self.words[:i]):
                self.give("historical", [k], i, i + 1)


CUE_KINDS: dict[str, Callable[[Sentence, int, int, Cue], None]] = {
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
    "person": Sentence.read_person,
}

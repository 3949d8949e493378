"""Detect findings in a relative or another person: "her mother has gout", "her mother's gout".

A person who says, notices or brings something only reports a finding: "mother says", "per mom".
"""

from __future__ import annotations

from spacy_bioel.plugins.clinical.reach import Scopes
from spacy_bioel.plugins.clinical.words import AUXILIARY, CONTRAST, MAX_REACH, STOPS, Cue

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
_NEW = ("personal", "presented", "presents", "presenting", "admitted")  # describe the patient
_WEAK_KIN = frozenset("relative relatives parent child children twin twins family".split())
_QUALIFIERS = frozenset("both neither no maternal paternal degree first affected".split())
_OF_KIN = frozenset(
    "maternal paternal older younger elder twin half great step first degree second identical late"
    " affected neither no".split()
)


class Persons(Scopes):
    """The words of a sentence, and the findings of people other than the patient."""

    def read_person(self, i: int, end: int, cue: Cue) -> None:
        if self.name(end) == "-" and self.name(end + 1) == "word":  # "donor-derived"
            return
        self._experience(i, end, cue.says)

    def read_relative(self, i: int) -> None:
        is_history = self.word(i + 1) in ("history", "hx")
        if is_history or self.word(i) in ("fh", "fhx"):
            end = i + 1 + is_history
            self.give("family", self._of_person(end, False, is_history=True), i, end)
            return
        if not (self.name(i + 1) == "-" and self.name(i + 2) in ("word", "to")):
            self._experience(i, i + 1, "family")

    def _experience(self, i: int, end: int, status: str) -> bool:
        """Assign a person the mentions after "has", "with" or "'s", or before "in her mother"."""
        if self.name(i - 2) == "and" and self.name(i - 3) == "pronoun":  # "he and his brother"
            return False
        k, n_words = i - 1, 0
        while self.name(k) in ("det", "own", "word", "bare", "number", "adverb", "-") and k >= 0:
            n_words += self.names[k] in ("word", "bare") and self.word(k) not in _OF_KIN
            if n_words > 2 or self.word(k).endswith("ed"):
                break
            k -= 1
        before = self.word(k) if k >= 0 and self.name(k) in ("prep", "to") else ""
        is_weak = self.word(i) in _WEAK_KIN and not any(
            self.names[n] in ("own", "number") or self.word(n) in _QUALIFIERS
            for n in range(k + 1, i)
        )
        if self.word(i) in ("child", "children"):
            is_weak = "own" not in self.names[k + 1 : i]
        is_weak &= not (self.word(i) == "family" and self.word(i - 1) == "the")
        if is_weak or (self.word(i) == "family" and before not in ("in", "of")):
            return False
        if before in ("in", "affecting"):
            targets = self._backward_of_person(k)
            if targets:
                return self.give(status, targets, i, end)
        elif before == "to" and self.word(i + 1) == "with":
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
        if self.word(q) == "'s":
            return self.give(status, self.forward(q + 1, "", item=True), i, q + 1)
        elif name in ("have", "be", "do", "may", "modal", "can", "not"):
            verb = q
            while self.name(verb) in ("have", "be", "do", "may", "modal", "can", "not", "adverb"):
                verb += 1
            if (
                self.name(verb) in ("say", "word")
                and name != "have"
                and self.word(verb).endswith("ing")
            ):
                return False
            is_raising = self.name(verb + 1) == "to" and self.name(verb + 2) in ("have", "be")
            is_saying = self.name(verb) == "say" or (
                self._is_verbal(verb) and self.name(verb - 1) != "det" and verb > q
            )
            if is_saying and not is_raising and not self._is_having(verb):
                return False
            item = name == "be" and not self.word(verb).endswith("ed")
            q = verb
        elif name in (":", "-") or self.words[q : q + 2] == ["to", "have"]:
            q += 1
        elif name == "prep":
            if self.word(q) not in ("with", "of"):
                return self.is_head and self.give(status, [len(self.names) - 1], i, end)
            q += 1
        elif name == "word" and self.word(q + 1) == "with":  # "home with"
            q += 2
        elif (
            name == "undergo"
            or (
                name in ("word", "bare", "change", "ask")
                and (self._is_action(q) or self._is_having(q))
            )
            or (
                q in self.cues
                and self.negates(q)
                and self.names[q] != "say"
                and self.cues[q][1][0].kind == "phrase"
            )
        ):
            pass
        elif name != "m":
            return self.is_head and self.give(status, [len(self.names) - 1], i, end)
        return self.give(status, self._of_person(q, item), i, end)

    def _verb_behind(self, k: int) -> int:
        """Return the index of the auxiliary after a phrase, as in "a cousin in Canada is", or 0."""
        for n in range(k + 1, min(k + 5, len(self.names))):
            if self.names[n] in AUXILIARY and self.word(k) != "with":
                return n
            if self.names[n] not in ("det", "own", "word", "number"):
                break
        return 0

    def _appositive(self, k: int) -> int:
        """Return the end of an apposition between commas (", aged 12,") before a verb, or 0."""
        for n in range(k + 1, min(k + 8, len(self.names))):
            if self.names[n] == ",":
                after = n + 1
                while self.name(after) == "adverb":
                    after += 1
                return after if self.name(after) in (*AUXILIARY, "word") else 0
            if self.names[n] == "m" or self.names[n] in AUXILIARY or self.names[n] == "kin":
                return 0
        return 0

    def _is_action(self, k: int) -> bool:
        """Whether the word after a person is a verb, but not one like "says" or "brings"."""
        is_noun = self.name(k + 1) in AUXILIARY  # "daughter cysts are"
        is_noun |= self.word(k + 1) == "that"  # "her mother narrated that"
        return (
            k not in self.cues
            and self.word(k).endswith(("ed", "s", "nt", "ook", "ost"))
            and not is_noun
        )

    def _is_verbal(self, k: int) -> bool:
        return k in self.cues and self.cues[k][1][0].kind in ("verb", "object")

    def _is_having(self, k: int) -> bool:
        return self.word(k).startswith(_HAVING)

    def _is_subject(self, k: int) -> bool:
        """Whether another relative, an age or a relative clause continues the subject at `k`."""
        while self.name(k) in ("own", "det", "adverb") or self.word(k) in (
            "maternal",
            "paternal",
            "both",
        ):
            k += 1
        return self.name(k) in ("kin", "number", "rel")

    def _of_person(self, k: int, item: bool, *, is_history: bool = False) -> list[int]:
        """Return a person's mentions from word `k` onwards.

        item (bool): Stop at a comma.
        is_history (bool): The words follow "family history"; "and has" returns to the patient.
        """
        found = []
        stop = min(len(self.names), k + MAX_REACH)
        while k < stop:
            name = self.names[k]
            if name == "m":
                found.append(k)
            elif self.word(k) in CONTRAST:
                if self.name(k + 1) in ("pronoun", "kin", "own", "det", "m"):
                    break
                item = False
            elif name in (".", ";", "!", "?", "|") or self.word(k) in _NEW:
                break
            elif name == "pronoun" or (name == "kin" and found):
                break
            elif name in (",", "and") and found:
                is_verb = is_history and "have" in self.names[k + 1 : k + 3]
                if (item and name == ",") or is_verb or self._starts_clause(k + 1):
                    break
            elif name == "," and (item or self._starts_clause(k + 1)):
                break
            k += 1
        return found

    def _starts_clause(self, k: int) -> bool:
        """Whether a new subject, or a verb about the patient, begins at word `k`."""
        if self.name(k) in ("pronoun", "kin", "own", "say") or self.word(k) == "that":
            return True
        return self.name(k - 1) == "," and self.name(k) in ("have", "be")

    def _backward_of_person(self, k: int) -> list[int]:
        """Return the mentions before a phrase such as "in her mother"."""
        found: list[int] = []
        k -= 1
        while (
            k >= 0 and self.names[k] not in STOPS and self.names[k] not in ("end", "pronoun", "kin")
        ):
            if self.names[k] == "m":
                found.append(k)
            elif self.names[k] == "," and found and "and" not in self.names[k : found[0]]:
                break
            elif self.names[k] in AUXILIARY and found:
                break
            k -= 1
        return found

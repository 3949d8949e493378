"""Find how far a cue reaches into the words after it: across a list of noun phrases or a clause."""

from __future__ import annotations

from dataclasses import dataclass, field

from spacy_bioel.plugins.clinical.words import AUXILIARY, LIGHT, MAX_REACH, STOPS, Words


@dataclass(slots=True)
class Reach:
    """Collects the mentions after a cue, up to the end of the cue's scope.

    status (str): Status of the cue; a negation ends before an item with a statement of its own.
    item (bool): Include only the first noun phrase, and phrases joined to it by "and" or "or".
    clause (bool): Include the whole clause, with its verbs.
    first (bool): The clause precedes another clause, and ends at a comma.
    found (list[int]): The mentions so far.
    last (str): Class of the last noun, "m" for a mention; "" if the phrase has no noun yet.
    blocked (bool): Whether the next words are in a phrase outside the scope: "no change in".
    """

    words: Words
    status: str
    item: bool = False
    clause: bool = False
    first: bool = False
    found: list[int] = field(default_factory=list)
    last: str = ""
    blocked: bool = False
    is_change: bool = False
    is_and: bool = False
    n_before: int = -1  # number of mentions before the last comma or "and"; -1 if none
    n_commas: int = 0
    item_start: int = 0

    def over(self, start: int) -> list[int]:
        """Return the mentions that the cue governs from word `start` onwards."""
        names, self.item_start, k = self.words.names, start, start
        stop = min(len(names), start + MAX_REACH)
        while k < stop:
            if names[k] == "(":
                k = self._bracket(k, stop)
            elif not self._goes_on(k):
                break
            k += 1
        return self.found

    @property
    def _is_negated(self) -> bool:
        return self.status == "negated"

    def _goes_on(self, k: int) -> bool:
        """Process word `k`, and return whether the cue reaches beyond it."""
        name, word, words = self.words.names[k], self.words.word(k), self.words
        if self._is_negated and self._is_other_noun(k):
            return False
        if name in LIGHT:
            return True
        if name == "m":
            self.last = name
            if not (self.blocked or words.is_modifier(k)):
                self.found.append(k)
            return True
        if name in STOPS or name in ("mark", ")"):
            is_colon = name == ":" and (not self.last or (self.clause and not self.found))
            return is_colon or (name == "." and words.is_abbreviated(k))
        if name == ",":
            return self._comma(k)
        if name in ("and", "or", "/"):
            return self._conjunction(k)
        if name == "prep":
            return self._preposition(k)
        if self._is_negated and words.is_verb(k) and words.cues[k][1][0].says == "uncertain":
            self.last = ""  # "no diarrhea suggestive of malabsorption"
            return True
        if name in AUXILIARY or words.is_verb(k):
            return self._verb(k)
        if name in ("end", "rel", "pronoun"):
            is_cause = word in ("due", "secondary")
            is_free = self.clause and name == "pronoun"
            return is_free or (not self.last and (name != "end" or is_cause))
        if name == "to":
            self.blocked |= self.last not in ("", "bare") and not self.clause
            return True
        if name != "change" or word == "causing":
            is_clause = name == "word" and word.endswith("ing") and words.name(k + 1) == "m"
            self.blocked |= self._is_negated and is_clause and self.last == "word"
            self.last = name
            return not (k in words.cues and self.n_read(k) and words.negates(k))
        self.last, self.is_change = name, True
        self.blocked |= self._is_negated
        return True

    def n_read(self, k: int) -> bool:
        """Whether a negation after a noun would end a cue's scope: "possible A, no B"."""
        return not self._is_negated and k > self.item_start

    def _is_other_noun(self, k: int) -> bool:
        """Whether a noun phrase outside the negation's scope begins at word `k`."""
        word = self.words.word(k)
        if word == "other" and self.words.word(k + 1) == "than":
            return True
        is_own = self.words.names[k] == "own" and self.last == "word"
        return is_own or (word == "some" and self.last != "")

    def _bracket(self, k: int, stop: int) -> int:
        """Collect the mentions in a bracket unless it holds a value; return the bracket's end."""
        names = self.words.names
        close = next((n for n in range(k, stop) if names[n] == ")"), stop)
        if self.last and not self.blocked and "number" not in names[k:close]:
            self.found += [n for n in range(k, close) if names[n] == "m"]
        return close

    def _comma(self, k: int) -> bool:
        words, is_open = self.words, self.words.closes(k)
        if words.word(k + 1) in ("such", "including"):
            return True
        is_open &= not self.item or bool(self.found)
        if ((self.first or self.item) and not is_open) or not self.last or words.begins(k + 1):
            return False
        if not self.clause and words.is_own(k + 1, self.n_commas, self._is_negated):
            return False
        has_mention = "m" in words.names[self.item_start : k]
        if self._is_negated and not (has_mention or words.n_mentions < 2 or is_open):
            return False  # "no medication, seizures"
        self.item_start, self.n_before, self.is_and = k, len(self.found), False
        self.n_commas, self.blocked, self.last = self.n_commas + 1, False, "m"
        return True

    def _conjunction(self, k: int) -> bool:
        words, name = self.words, self.words.names[k]
        after = k + 1
        while words.name(after) == "adverb":
            after += 1
        is_phrase = words.name(after) == "prep" and words.word(after) not in ("of", "for", "from")
        if self._is_negated and words.name(after) == "own" and self.last == "m":
            return False  # "no fever, and his cough ..."
        is_clause = words.begins(after) and not (self.clause and words.is_verb(after))
        if is_clause or (is_phrase and self.last and not self.clause):
            return False
        if name == "or":
            self.n_before = -1
        elif name == "and" and self.n_before < 0:
            self.n_before = len(self.found)
        self.is_and, self.last = name == "and", ""
        self.blocked &= self.is_change
        return True

    def _preposition(self, k: int) -> bool:
        word, last, words = self.words.word(k), self.last, self.words
        if word == "as" and words.word(k - 1) == "such":
            self.last = ""
            return True
        if word == "as" and not (last or self.clause):
            return False
        is_free = last in ("", "bare") or self.clause
        if last == "m" and self._is_negated and words.word(k + 1) == "the":
            self.blocked = True  # "no fall with the seizures"
        elif word == "about":
            self.blocked |= bool(last)
        elif last == "bare" and word == "for" and words.word(k - 1).startswith("diagnos"):
            self.blocked = True
        elif self.item and last == "m":
            self.blocked = word != "of"
        elif self.item and last != "bare":
            self.blocked |= word != "of"
            return bool(last)
        elif is_free or (self.status.startswith("historical") and last != "m"):
            pass
        elif word == "of" and last != "change":
            self.blocked |= last != "m" and words.name(k + 1) in ("det", "own")
        else:
            self.blocked |= not (last == "m" and word == "with" and self._is_negated)
        return True

    def _verb(self, k: int) -> bool:
        name, words = self.words.names[k], self.words
        is_having = name == "have" or (k in words.cues and words.cues[k][1][0].kind == "verb")
        if self._is_negated and not self.found and self.last in ("word", "kin") and is_having:
            self.last, self.blocked = "", False  # "no patient had"
            return True
        if not self.last or self.clause:
            return True
        after = k + 1
        while words.name(after) in ("adverb", "be"):
            after += 1
        is_seen = after in words.cues and words.cues[after][1][0].says == "+"
        is_seen &= self.is_and and name == "be"  # "no rash and fever were seen"
        if self.n_before >= 0 and not is_seen:  # the subject of this verb
            del self.found[self.n_before :]
        return False


class Scopes(Words):
    """The words of a sentence, with a lookup of the mentions that a preceding cue governs."""

    def forward(
        self,
        start: int,
        status: str,
        *,
        item: bool = False,
        clause: bool = False,
        first: bool = False,
    ) -> list[int]:
        """Return the mentions that a cue governs from word `start` onwards (see `Reach`)."""
        return Reach(self, status, item=item, clause=clause, first=first).over(start)

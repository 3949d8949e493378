"""The words of the rules: closed classes of words, and cues, each with its grammar."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_MAX_KNOWN_WORDS = 20_000  # remembered, so that a text with new words only does not fill the memory
_MAX_BETWEEN = 2  # adverbs and pronouns within a cue: "ruled it out", "ruled completely out"
_MAX_STEM = 14


@dataclass(frozen=True, slots=True)
class Cue:
    """Words that give mentions a status.

    words (tuple[str, ...]): A stem ends with "*"; "<prep>" is any word of the class "prep".
    kind (str): What it governs; a key of `CUE_KINDS` in `clauses.py`.
    says, negated, doubted (str): The status that it gives plainly, under a negation, and under a
        modal verb ("must be ruled out"); "+" if it affirms, "" if it gives none.
    """

    words: tuple[str, ...]
    kind: str
    says: str = ""
    negated: str = ""
    doubted: str = ""


class CueWords:
    """Looks up words.

    classes (Mapping): The words of each closed class, such as "modal"; a stem ends with "*".
    """

    def __init__(self, classes: Mapping[str, Iterable[str]], cues: Sequence[Cue]) -> None:
        self._classes = {word: name for name, words in classes.items() for word in words}
        self._cues: dict[str, list[Cue]] = defaultdict(list)
        for cue in sorted(cues, key=lambda cue: -len(cue.words)):
            self._cues[cue.words[0]].append(cue)
        self.known: dict[str, tuple[str, str, Sequence[Cue]]] = {}  # what `look_up` returned

    def look_up(self, token: str) -> tuple[str, str, Sequence[Cue]]:
        """Return a word in lower case, its class, and the cues that it may begin."""
        word = token.lower().replace("’", "'")
        if "\n" in word:  # a word that a hyphen breaks
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
        """Return the end of a cue that begins at a word, or 0."""
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

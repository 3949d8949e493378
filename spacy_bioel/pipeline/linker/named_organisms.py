"""The places where a document names organisms: by mentions, and by words that stand for one."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import srsly
from spacy.tokens import Doc, Span

from spacy_bioel.pipeline.annotate import text_of
from spacy_bioel.text.context import sentence_borders

_WORDS = Path(__file__).parents[2] / "assets" / "organism_words.json"
# Between a gene and the organism that it is said to be of.
_OF = re.compile(
    r"\s(?:(?:genes?|proteins?|mRNAs?|expression|mutations?|homologu?es?|orthologu?es?)\s)?"
    r"(?:in|of|from)\s(?:the\s|both\s|adult\s|wild-type\s)?",
    re.IGNORECASE,
)
# Organisms that are a means, and whose genes are not meant: behind them, before them.
_MEANS = re.compile(
    r"[\s-](?:(?:two|2|one|three)[\s-]hybrid|anti-|anti\s|monoclonal|polyclonal|serum|"
    r"smok|chew|xenograft|mammary tumou?r virus)",
    re.IGNORECASE,
)
_HOST_OF_TUMOURS = re.compile(
    r"(?:\bnude|\bSCID|\bathymic|\bimmunodeficient|\bimmunocompromised|\bxenografts?(?:ed)?)[\s-]"
    r"(?:tumou?r\s)?(?:in\s(?:nude\s|SCID\s|athymic\s)?)?$",
    re.IGNORECASE,
)


class NamedOrganisms:
    """The places where a document names organisms, in order."""

    def __init__(self, doc: Doc, found: list[tuple[int, int, str]], n_cells: int) -> None:
        ends = {end for _, end, _ in found}
        text = text_of(doc)
        found = sorted([*found, *(word for word in organism_words(text) if word[1] not in ends)])
        self.starts, self.ends = [start for start, _, _ in found], [end for _, end, _ in found]
        self.ids = [id for _, _, id in found]
        self.counts, self.n_cells = Counter(self.ids), n_cells
        self.borders = sentence_borders(text)
        self.text = text
        self.heading = set(self.ids[: bisect_left(self.starts, (self.borders or [1 << 40])[0])])

    def sentence(self, at: int) -> int:
        return bisect_right(self.borders, at)

    def around(self, at: int) -> tuple[set[str], set[str]]:
        """Organisms that the sentence names before a place, and behind it."""
        borders = [0, *self.borders, 1 << 40]
        number = self.sentence(at)
        first, last = (bisect_left(self.starts, border) for border in borders[number : number + 2])
        middle = bisect_right(self.ends, at)
        return set(self.ids[first:middle]), set(self.ids[max(first, middle) : last])

    def behind(self, at: int) -> str:
        """The organism that a name that ends here is said to be of."""
        number = bisect_left(self.starts, at)
        is_named = number < len(self.starts) and _OF.fullmatch(self.text, at, self.starts[number])
        return self.ids[number] if is_named else ""

    def last(self, at: int, *, within: int = 1 << 40) -> str:
        """The organism that is the last named before a place, within so many characters."""
        number = bisect_right(self.ends, at)
        return self.ids[number - 1] if number and at - self.ends[number - 1] <= within else ""


def is_means(span: Span) -> bool:
    """Whether an organism is but a means: "yeast two-hybrid", "nude mice"."""
    text = text_of(span.doc)
    before = text[max(0, span.start_char - 40) : span.start_char]
    return bool(_MEANS.match(text, span.end_char) or _HOST_OF_TUMOURS.search(before))


@cache
def _words() -> tuple[re.Pattern[str], list[str]]:
    """Words that stand for an organism, whether a detector finds them or not: people, strains, cell
    lines that are not human; and the organism of each group of the pattern.
    """
    table: dict[str, list[str]] = srsly.read_json(_WORDS)
    groups = "|".join(f"({'|'.join(words)})" for words in table.values())
    return re.compile(rf"(?<![\w-])(?:{groups})(?!\w)", re.IGNORECASE), list(table)


def organism_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Such words of a text: start, end and organism of each."""
    pattern, organisms = _words()
    for match in pattern.finditer(text):
        yield (*match.span(), organisms[(match.lastindex or 1) - 1])

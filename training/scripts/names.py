"""Write the word lists in spacy_bioel/assets that the dictionary needs for any knowledge base.

words: counts of words in biomedical texts.
everyday: the common words that are everyday English and not words of the field.
english: other words of English, which are not typing errors.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Annotated

import srsly
import typer

from spacy_bioel.cli.console import show_note
from spacy_bioel.corpus import read_texts
from spacy_bioel.dictionary.unambiguous import common_words
from spacy_bioel.files import replacing_file
from spacy_bioel.kb.spelling import RARE, SHORTEST

ASSETS = Path("spacy_bioel") / "assets"
_MIN_COUNT = 3
# A word of the field is at least this many times as frequent in its texts as in everyday English.
_FIELD_RATIO = 15.0
_COMMON_FREQUENCY = 100.0  # of a common word, in a million words
TextsArgument = Annotated[list[Path], typer.Argument(help="Corpora; only their texts are read.")]
FrequenciesArgument = Annotated[
    Path, typer.Argument(help="large_en.msgpack.gz of the package wordfreq.")
]

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def words(texts: TextsArgument) -> None:
    """Count words, and write the counts of those that are not rare."""
    counts = Counter(
        word
        for path in texts
        for text in read_texts(path)
        for word in re.findall("[a-z]+", text.text.lower())
    )
    kept = {word: n for word, n in sorted(counts.items(), key=_most_first) if n >= _MIN_COUNT}
    table = {"total": counts.total(), "counts": kept}
    _write_json(ASSETS / "words.json.gz", table)
    show_note(f"{len(kept):,} of {len(counts):,} words")


@app.command()
def english(frequencies: FrequenciesArgument) -> None:
    """List the English words that the texts lack, if they are long enough to be corrected."""
    words = english_words(frequencies)
    frequent = {word for word, frequency in words.items() if frequency >= RARE}
    kept = sorted(
        word
        for word in frequent - common_words().keys()
        if len(word) >= SHORTEST and word.isascii() and word.isalpha()
    )
    _write_json(ASSETS / "english.json.gz", kept)
    show_note(f"{len(kept):,} words")


@app.command()
def everyday(frequencies: FrequenciesArgument) -> None:
    """List the common words that are about as frequent in everyday English."""
    english = english_words(frequencies)
    kept = [
        word
        for word, frequency in common_words().items()
        if _COMMON_FREQUENCY <= frequency < _FIELD_RATIO * english.get(word, 0.0)
    ]
    with replacing_file(ASSETS / "everyday.txt") as path:
        path.write_text("\n".join(sorted(kept)) + "\n", encoding="utf8")
    show_note(f"{len(kept):,} words")


def english_words(frequencies: Path) -> dict[str, float]:
    """Read how often words occur in a million words of everyday English, from wordfreq."""
    # Lists of words, the most frequent first; each list is 10 ** -0.01 as frequent as the last.
    steps = srsly.msgpack_loads(gzip.decompress(frequencies.read_bytes()))[1:]
    return {word: 1e6 * 10 ** (-i / 100) for i, words in enumerate(steps) for word in words}


def _write_json(path: Path, content: object) -> None:
    with replacing_file(path) as file:
        data = json.dumps(content, separators=(",", ":")).encode()
        file.write_bytes(gzip.compress(data, mtime=0))


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


if __name__ == "__main__":
    app()

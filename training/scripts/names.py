"""Make what finds names of any knowledge base without training: spacy_bioel/assets.

words: how often words are in texts.
everyday: which of the common ones are everyday English, and not words of the field.
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

ASSETS = Path("spacy_bioel") / "assets"
_FEWEST = 3  # times that a word is in the texts
# A word of the field is so many times as frequent in its texts as in everyday English.
_OF_THE_FIELD = 15.0
_COMMON = 100.0  # times in a million words, of a common word
TextsArgument = Annotated[list[Path], typer.Argument(help="Corpora; their mentions are not read.")]

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def words(texts: TextsArgument) -> None:
    """Count words, and write those that are not rare."""
    counts = Counter(
        word
        for path in texts
        for text in read_texts(path)
        for word in re.findall("[a-z]+", text.text.lower())
    )
    kept = {word: n for word, n in sorted(counts.items(), key=_most_first) if n >= _FEWEST}
    table = {"total": counts.total(), "counts": kept}
    with replacing_file(ASSETS / "words.json.gz") as path:
        data = json.dumps(table, separators=(",", ":")).encode()
        path.write_bytes(gzip.compress(data, mtime=0))
    show_note(f"{len(kept):,} of {len(counts):,} words")


@app.command()
def everyday(
    frequencies: Annotated[
        Path, typer.Argument(help="large_en.msgpack.gz of the package wordfreq.")
    ],
) -> None:
    """List the common words that the texts do not have far more often than everyday English."""
    english = english_words(frequencies)
    kept = [
        word
        for word, frequency in common_words().items()
        if _COMMON <= frequency < _OF_THE_FIELD * english.get(word, 0.0)
    ]
    with replacing_file(ASSETS / "everyday.txt") as path:
        path.write_text("\n".join(sorted(kept)) + "\n", encoding="utf8")
    show_note(f"{len(kept):,} words")


def english_words(frequencies: Path) -> dict[str, float]:
    """Read how often words are in a million of everyday English, as wordfreq has it."""
    # The words of each hundredth of a decade, the most frequent first.
    steps = srsly.msgpack_loads(gzip.decompress(frequencies.read_bytes()))[1:]
    return {word: 1e6 * 10 ** (-i / 100) for i, words in enumerate(steps) for word in words}


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


if __name__ == "__main__":
    app()

"""Beginnings of sentences."""

from __future__ import annotations

from spacy_bioel.text.windows import begins_sentence


def test_sentences_begin_after_full_stops_and_line_breaks() -> None:
    tokens = [
        "aspirin",
        "helps",
        ".",
        " ",
        "AKI",
        "is",
        "rare",
        "!",
        "he",
        "\n",
        "Gout",
        "E.",
        "Coli",
    ]
    begins = [
        token for token, begins in zip(tokens, begins_sentence(tokens), strict=True) if begins
    ]
    assert begins == ["aspirin", " ", "AKI", "Gout"]
    assert begins_sentence([]) == []

"""Short names of species."""

from __future__ import annotations

from spacy_bioel.text.abbreviations import find_short_binomials


def test_those_that_are_written_out_in_the_text() -> None:
    text = (
        "Flavobacterium johnsoniae glides. F. johnsoniae and F.johnsoniae, but not E. coli, "
        "S. aureus or a Foo johnsoniae. Was J. Smith here?"
    )
    assert find_short_binomials(text) == {
        "F. johnsoniae": "Flavobacterium johnsoniae",
        "F.johnsoniae": "Flavobacterium johnsoniae",
    }


def test_the_initial_counts() -> None:
    assert find_short_binomials("B. johnsoniae and Flavobacterium johnsoniae") == {}
    assert find_short_binomials("") == {}

"""Chains of retired ids."""

from __future__ import annotations

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build.merge import follow_chains


class Counted(dict[str, str]):
    """Retired ids that count how often one is followed."""

    followed = 0

    def __getitem__(self, key: str) -> str:
        self.followed += 1
        return super().__getitem__(key)


def test_each_retired_id_leads_to_the_end_of_its_chain() -> None:
    retired = {"B": "C", "A": "B", "C": "D", "X": "Y"}
    assert list(follow_chains(retired).items()) == [
        ("B", "D"), ("A", "D"), ("C", "D"), ("X", "Y"),
    ]  # fmt: skip


@pytest.mark.parametrize("order", [1, -1])
def test_each_retired_id_is_followed_once(order: int) -> None:
    ids = [str(number) for number in range(1001)]
    pairs = list(zip(ids, ids[1:], strict=False))[::order]
    retired = Counted(pairs)
    assert set(follow_chains(retired).values()) == {"1000"}
    assert retired.followed == 1000


def test_a_circle_is_named_from_where_it_was_entered() -> None:
    with pytest.raises(BioelError, match=r"\[B027\].*A -> B -> C -> B"):
        follow_chains({"X": "Y", "A": "B", "B": "C", "C": "B"})

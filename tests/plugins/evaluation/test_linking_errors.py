"""Each error has the kind and the marks that its definition says, compared by hand."""

import pytest

from spacy_bioel.plugins.evaluation.evaluate import (
    GoldLookup,
    confusions,
    find_errors,
    pair_mentions,
    strings_of,
)
from spacy_bioel.scoring.protocols import KINDS, MARKS, kind_of
from spacy_bioel.types import AnnotatedText, Candidate, Link, Mention

GOLD = Mention(0, 4, "D", ("A",))
NAMES = {"A": ["cold"], "B": ["cold", "flu"], "C": ["cough"]}
KNOWLEDGE = GoldLookup(
    canonical=lambda id: {"old": "A"}.get(id, id),
    knows=lambda id: id in NAMES,
    has_name=lambda id, name: name in NAMES.get(id, ()),
    is_seen=lambda string, ids: string == "cold" or "C" in ids,
)


def link(start: int = 0, end: int = 4, label: str = "D", *ids: str, names: str = "") -> Link:
    """names: Ids of further candidates, with their first names, as "B C"."""
    known = [*ids, *names.split()]
    candidates = tuple(Candidate(id, 0.5, NAMES.get(id, ["?"])[0]) for id in known)
    return Link(start, end, label, ids, candidates)


@pytest.mark.parametrize(
    ("gold", "predicted", "kind"),
    [
        (GOLD, None, "missed"),
        (None, link(), "spurious"),
        (GOLD, link(0, 5, "C", "A"), "wrong_borders"),
        (GOLD, link(0, 4, "C", "A"), "wrong_label"),
        (GOLD, link(0, 4, "C", "B"), "wrong_label"),
        (Mention(0, 4, "D"), link(0, 4, "D", "A"), "not_nil"),
        (GOLD, link(names="A B"), "nil_first_right"),
        (GOLD, link(names="B A"), "nil"),
        (GOLD, link(), "nil"),
        (Mention(0, 4, "D", ("A", "B")), link(names="A B"), "nil"),
        (GOLD, link(0, 4, "D", "B"), "wrong_id"),
        (Mention(0, 4, "D", ("A", "B")), link(0, 4, "D", "A"), "wrong_id"),
        (GOLD, link(0, 4, "D", "A"), ""),
        (Mention(0, 4, "D"), link(names="A"), ""),
    ],
)
def test_kinds(gold, predicted, kind):
    assert kind_of(gold, predicted) == kind
    assert kind in ("", *KINDS)
    if kind == "wrong_label":  # labels may be of another kind
        unlabelled = kind_of(gold, predicted, labels=False)
        assert unlabelled == ("" if predicted and predicted.ids == ("A",) else "wrong_id")


def found(
    text: str, gold: list[Mention], links: list[Link], **settings: object
) -> list[tuple[str, str, tuple[str, ...], int]]:
    annotated = AnnotatedText("1", text, tuple(gold))
    errors = find_errors([annotated], [links], **{"knowledge": KNOWLEDGE} | settings)  # type: ignore[arg-type]
    return [(e.string, e.kind, e.marks, e.rank) for e in errors]


def test_marks():
    def of_cold(gold: str, *ids: str, names: str = "") -> list:
        return found("cold", [Mention(0, 4, "D", (gold,))], [link(0, 4, "D", *ids, names=names)])

    # B matched by "cold", which is a name of A too.
    assert of_cold("A", "B", names="A") == [("cold", "wrong_id", ("homonym",), 2)]
    assert of_cold("A", "C") == [("cold", "wrong_id", (), 0)]
    assert of_cold("old", "C") == [("cold", "wrong_id", ("retired",), 0)]
    assert of_cold("old", "A") == []
    assert of_cold("X", "C") == [("cold", "wrong_id", ("missing",), 0)]
    assert found("flu", [Mention(0, 3, "D", ("A",))], []) == [("flu", "missed", ("unseen",), 0)]
    assert found("flu", [Mention(0, 3, "D", ("C",))], []) == [("flu", "missed", (), 0)]
    assert found("flu", [Mention(0, 3, "D", ())], []) == [("flu", "missed", (), 0)]
    assert found("flu", [], [link(0, 3, "D", "B")]) == [("flu", "spurious", (), 0)]
    assert list(MARKS) == ["homonym", "missing", "retired", "unseen"]


def test_pairs_are_one_to_one_equal_offsets_first_then_the_longest_overlap():
    gold = [Mention(0, 4, "D"), Mention(0, 10, "D"), Mention(20, 30, "D")]
    links = [link(0, 4), link(2, 9), link(20, 22), link(23, 30), link(40, 44)]
    places = [
        (m and (m.start, m.end), x and (x.start, x.end))
        for m, x in pair_mentions(gold, [*links, link()])
    ]
    first = [((0, 4), (0, 4)), ((0, 10), (2, 9)), ((20, 30), (23, 30))]
    assert places == [*first, (None, (20, 22)), (None, (40, 44))]
    # A link that begins far to the left overlaps too.
    far = pair_mentions([Mention(90, 99, "D")], [link(0, 91), link(5, 9)])
    assert [m is not None for m, _ in far] == [True, False]


def test_of_equal_offsets_the_right_id_is_paired():
    gold = [Mention(0, 4, "D", ("A",)), Mention(0, 4, "S", ("C",))]
    links = [link(0, 4, "S", "A"), link(0, 4, "D", "C")]
    assert found("cold", gold, links) == [("cold", "wrong_label", (), 1)] * 2


def test_without_a_linker_only_mentions_are_compared():
    gold = [Mention(0, 4, "D", ("A",)), Mention(5, 8, "D", ("B",))]
    links = [link(0, 4), link(5, 8, "S")]
    assert found("cold flu", gold, links, knowledge=None) == [("flu", "wrong_label", (), 0)]


def test_widened_mentions_count_as_the_gold_mentions():
    gold = [Mention(0, 4, "D", ("A",)), Mention(6, 9, "D", ("B",))]
    links = [link(0, 4, "D", "A"), link(5, 9, "D", "C")]
    assert found("cold xflu", gold, links, given=True) == [("flu", "wrong_id", ("unseen",), 0)]
    assert [kind for _, kind, *_ in found("cold xflu", gold, links)] == ["wrong_borders"]


def test_labels_that_are_not_annotated_are_not_spurious():
    text = AnnotatedText("1", "cold flu", (), annotates=("D",))
    links = [link(0, 4, "D"), link(5, 8, "S")]
    assert [e.string for e in find_errors([text], [links], knowledge=KNOWLEDGE)] == ["cold"]


def test_confusions_and_strings():
    text = AnnotatedText("1", "Cold cold flu", (GOLD, Mention(5, 9, "D", ("A",))))
    links = [link(0, 4, "D", "B"), link(5, 9, "D", "B"), link(10, 13, "D", "C")]
    errors = list(find_errors([text, text], [links, []], knowledge=KNOWLEDGE))
    assert confusions(errors) == {(("A",), ("B",)): 2}
    assert strings_of(errors, "missed") == {("cold", "D"): 2}
    assert strings_of(errors, "spurious") == {("flu", "D"): 1}

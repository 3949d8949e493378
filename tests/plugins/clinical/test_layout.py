"""The layout of notes: lists, tables, keys, boxes and questions, in any text."""

import random

import pytest
from tables import cases

from spacy_bioel.plugins.clinical.layout import Node, read_layout, units_of

LEVELS = "\n".join("  " * (n % 60) + "- x" for n in range(10_000))  # 60 of them


def outline(text: str) -> list[str]:
    """Return the kinds of the nodes in a text with their words, the inner ones indented."""

    def lines(node: Node, depth: int) -> list[str]:
        words = " ".join(text[node.start : node.end].split())
        below = [line for part in node.parts for line in lines(part, depth + 1)]
        return [f"{' ' * depth}{node.kind}: {words}", *below]

    return [line for part in read_layout(text).parts for line in lines(part, 0)]


def kinds(text: str, kind: str) -> list[str]:
    return [text[n.start : n.end] for n in read_layout(text) if n.kind == kind]


def heads(text: str) -> list[str]:
    """Return the heads of sections, lists and keys in a text."""
    nodes = (node for node in read_layout(text) if node.kind in ("section", "list", "pair"))
    return [text[slice(*node.head)] for node in nodes if node.head[0] < node.head[1]]


def test_a_list_with_a_head_ends_at_a_line_that_is_not_an_item():
    text, expected = cases(__file__, "outlined_list")
    assert outline(text) == expected.splitlines()


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "items"))
def test_items(text, expected):
    assert set(expected) <= set(kinds(text, "item"))
    assert bool(expected) == bool(kinds(text, "item"))


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "heads"))
def test_heads(text, expected):
    assert heads(text) == [*expected]


@pytest.mark.parametrize(("text", "rows", "has_header"), cases(__file__, "tables"))
def test_tables(text, rows, has_header):
    (table,) = (node for node in read_layout(text) if node.kind == "table")
    found = [tuple(text[slice(*cell.span)] for cell in row.parts) for row in table.parts]
    assert found == [*rows]
    assert (table.head[0] < table.head[1]) == has_header


def test_a_cell_between_gaps_belongs_to_the_column_above_it():
    text = "Item     Yes   No\nGout           x\nRash      x"
    (table,) = (node for node in read_layout(text) if node.kind == "table")
    assert [cell.column for row in table.parts[1:] for cell in row.parts] == [0, 2, 0, 1]


@pytest.mark.parametrize(("text", "n"), cases(__file__, "short_lines"))
def test_short_lines_in_lower_case_are_items_of_a_list(text, n):
    assert len(kinds(text, "paragraph")) == n


@pytest.mark.parametrize(("text", "kind", "expected"), cases(__file__, "kinds"))
def test_boxes_questions_and_wrapped_lines(text, kind, expected):
    assert kinds(text, kind) == [*expected]


@pytest.mark.parametrize("seed", range(20))
def test_nodes_lie_inside_their_parents_in_order(seed):
    rng = random.Random(seed)
    pieces = "- ;1. ;\n;\n\n;  ;\t; | ;Gout;fever;: ;? ;. ;[x] ;[ ];\r\n;\f;PMH;no;-\n;a) ;;é;"
    pieces += "---|---\n;    a) "
    text = "".join(rng.choice(pieces.split(";")) for _ in range(400))
    for node in read_layout(text):
        end = node.start
        for part in node.parts:
            assert end <= part.start <= part.end <= node.end
            end = part.end


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n\f\n",
        "no gout, " * 22_000,  # one line of 198,000 characters
        LEVELS,
        "- " * 10_000,
        "No signs of:\n" + "- rash\n" * 10_000,
        *cases(__file__, "bad_layouts"),
    ],
)
def test_bad_layout_is_plain_text(text, contexts):
    text += "\n\n\nThe foot shows "
    layout = read_layout(text)
    assert layout.end == len(text)
    assert max(len(list(layout.path(start))) for start in units_of(text)) <= 50
    assert contexts(f"{text}[gout].")[-1].assertion == "present"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No signs of:\n" + "- rash\n" * 9_999 + "- [gout]", "absent"),
        (f"No signs of:\n{LEVELS}\n- [gout]", "absent"),
        ("He is well and active, " * 9_000 + "no [rash], has [pain]", "absent present"),
    ],
    ids=["long list", "levels", "long line"],
)
def test_long_layouts(contexts, text, expected):
    assert [context.assertion for context in contexts(text)] == expected.split()


def test_extensions(telling):
    doc = telling.make_doc("Denies:\n- gout")
    assert [part.kind for part in doc._.layout.parts] == ["list"]
    doc.spans["bioel"] = [doc[-1:]]
    span = telling.get_pipe("bioel_context")(doc).spans["bioel"][0]  # type: ignore[operator]
    assert (span._.assertion, span._.relative, span._.negated) == ("absent", "", True)

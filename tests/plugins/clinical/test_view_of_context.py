"""HTML of mentions with a context."""

from typing import Any

from test_view import text_of

from spacy_bioel.export.html import render_document
from spacy_bioel.plugins.clinical.status import Context
from spacy_bioel.types import Link


def fact(context: Context) -> dict[str, Any]:
    return {"context": context.to_fact()}


def test_what_is_negated_is_struck_out_to_its_end():
    no, father = fact(Context(negated=True)), fact(Context(experiencer="family"))
    links = [Link(3, 12, "D", ("X:1",), facts=no), Link(3, 7, "D", ("X:2",), facts=father)]
    section = render_document("no cleft lip.", links)
    assert text_of(section) == (
        'no <mark class="negated">clef</mark><sup>D X:2</sup><mark class="negated">t lip</mark>'
        "<sup>D X:1</sup>."
    )
    assert "<small>Struck through: negated." in section


def test_the_table_has_the_status_with_its_cues_and_the_layout():
    text = "Father: fever\n\ncough"
    contexts = [
        fact(Context(False, False, False, False, "family", "father", "pair", ((0, 6, "family"),))),
        fact(Context(layout="<list>")),
        {},
    ]
    links = [Link(8, 13, "", facts=contexts[0]), Link(15, 20, "", facts=contexts[1])]
    section = render_document(text, [*links, Link(15, 20, "", facts=contexts[2])])
    assert "<small>family; father; family (&#34;Father&#34;); pair</small>" in section
    assert "<small>present; &lt;list&gt;</small>" in section
    assert section.count("<small>") == 3  # with the line about the marks

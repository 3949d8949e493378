"""What the tests of notes share: a pipeline that tells the context of marked mentions."""

from collections.abc import Callable, Iterable

import pytest
from spacy.language import Language
from tiny import blank

from spacy_bioel.doc import get_links
from spacy_bioel.plugins.clinical.status import Context

Contexts = Callable[..., list[Context]]


@pytest.fixture(scope="session")
def telling() -> Language:
    nlp = blank()
    nlp.add_pipe("bioel_context")
    return nlp


def contexts_in(
    nlp: Language, text: str, places: Iterable[tuple[int, int]] | None = None
) -> list[Context]:
    """Return the contexts of mentions: those at places, or those in brackets as in "No [fever]".

    Neither boxes ("[ ]" and "[x]") nor what has braces, which become brackets, are mentions.
    """
    if places is None:
        places, plain = [], ""
        for piece in text.replace("[ ]", "{ }").replace("[x]", "{x}").split("]"):
            before, _, mention = piece.partition("[")
            plain += before
            if mention:
                places.append((len(plain), len(plain) + len(mention)))
                plain += mention
        text = plain.replace("{", "[").replace("}", "]")
    doc = nlp.make_doc(text)
    doc.spans["bioel"] = [doc.char_span(*place, alignment_mode="expand") for place in places]
    found = [Context.of(link) for link in get_links(nlp.get_pipe("bioel_context")(doc))]  # type: ignore[operator]
    assert all(found)
    return found  # type: ignore[return-value]


@pytest.fixture(scope="session")
def contexts(telling) -> Contexts:
    return lambda text, places=None, nlp=telling: contexts_in(nlp, text, places)

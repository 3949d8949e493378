"""What an explanation says of organisms: which the document names, and whose gene was linked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spacy.tokens import Span

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.explanation import Explanation
from spacy_bioel.pipeline.linker.homologs import organism_in
from spacy_bioel.pipeline.linker.named_organisms import is_means, organism_words
from spacy_bioel.pipeline.linker.organisms import is_microbe
from spacy_bioel.types import ORGANISM, Link


def named_organisms(
    spans: Sequence[Span], links: Sequence[Link], text: str
) -> dict[str, list[str]]:
    """Organisms that the document names, by their ids, with the words that it uses."""
    organisms: dict[str, list[str]] = {}
    ends = set()
    for span, link in zip(spans, links, strict=True):
        for id in link.ids:
            if id.startswith(ORGANISM) and not is_means(span):
                organisms.setdefault(id, []).append(span.text)
                ends.add(span.end_char)
    for start, end, id in organism_words(text):
        if end not in ends:
            organisms.setdefault(id, []).append(text[start:end])
    return organisms


def organism_of(kb: KnowledgeBase, id: str) -> str:
    """The organism that a gene is of; "" for other concepts."""
    row = kb.find(id)
    return organism_in(kb.types_of(row)) if row >= 0 else ""


def organism_name(kb: KnowledgeBase, organism: str) -> str:
    row = kb.find(organism) if organism else -1
    return kb.preferred_name(row) if row >= 0 else organism


def of_document(
    about: Explanation, organisms: Mapping[str, list[str]], kb: KnowledgeBase, whole: KnowledgeBase
) -> str:
    """Sentence on what the document says of the best candidate.

    kb, whole (KnowledgeBase): What mentions of its label are linked to; what any are.
    """
    own = organism_of(kb, about.candidates[0].id) if about.candidates else ""
    if not own:
        return "The context, or other mentions of the document, changed that."
    if not organisms:
        return "The document names no organism."
    named = (f"{of[0]} ({len(of)} times)" if len(of) > 1 else of[0] for of in organisms.values())
    sentence = f"The document names {', '.join(named)}; "
    if own in organisms and about.ids:
        return f'{sentence}it is of the organism of "{organisms[own][0]}".'
    genes = f"{about.label.lower() or 'concept'}s"
    others = {id: of[0] for id, of in organisms.items() if id != own and not is_microbe(whole, id)}
    if not others and own not in organisms:
        return f"{sentence}{genes} beside microbes are mostly those of people."
    absent = [word for id, word in others.items() if id not in kb.type_names]
    if absent and not about.ids:
        return f"{sentence}{genes} of {', '.join(absent)} are not in this knowledge base."
    return f"{sentence}it is of {'another' if others else 'this'} organism."

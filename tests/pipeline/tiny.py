"""Small pipelines and their results in plain form, for the tests of the pipes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from spacy_bioel.pipeline.annotate import get_links
from spacy_bioel.pipeline.gold import add_gold
from spacy_bioel.types import AnnotatedText

TOKENIZER = {"nlp": {"tokenizer": {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}}}
DETECTOR: dict[str, Any] = {
    "model": {
        "max_width": 6,
        "hidden": 32,
        "tok2vec": {
            "embed": {"width": 32, "rows": [300, 100, 100, 100]},
            "encode": {"width": 32, "depth": 1},
        },
    }
}
LINKER: dict[str, Any] = {
    "model": {"dim": 32, "blocks": 1, "filters": 8},
    "training": {"synonyms": 16, "negatives": 1, "refresh_every": 5},
}
VOCABULARY = {"vocabulary": 300, "width": 32}


def blank() -> Language:
    return spacy.blank("en", config=TOKENIZER)


def linking_nlp(kb: Path, patterns: Sequence[str] = (), **settings: Any) -> Language:
    """The linker behind an entity ruler, untrained: `patterns` are found as "Thing"."""
    nlp = blank()
    if patterns:
        ruler = nlp.add_pipe("entity_ruler")
        ruler.add_patterns([{"label": "Thing", "pattern": pattern} for pattern in patterns])
    nlp.add_pipe("bioel_linker", config={"kb": str(kb)} | settings)
    return nlp


def with_entity(nlp: Language, text: str, mention: str) -> Doc:
    """A tokenised text with one entity, as some other pipe may have found it."""
    doc = nlp.make_doc(text)
    start = text.index(mention)
    doc.ents = [doc.char_span(start, start + len(mention), label="Thing")]
    return doc


def examples(nlp: Language, texts: Iterable[AnnotatedText]) -> list[Example]:
    result = []
    for text in texts:
        reference = nlp.make_doc(text.text)
        add_gold(reference, text)
        result.append(Example(nlp.make_doc(text.text), reference))
    return result


def train(nlp: Language, texts: Sequence[AnnotatedText], *, updates: int) -> None:
    """Learn a handful of documents by heart."""
    data = examples(nlp, texts)
    optimizer = nlp.initialize(lambda: data)
    optimizer.learn_rate = 0.01
    for _ in range(updates):
        nlp.update(examples(nlp, texts), sgd=optimizer)


def links(doc: Doc, key: str = "bioel") -> list[tuple[str, str]]:
    """(words, kb_id) of each link, with "|" between several ids."""
    text = doc.text  # put together from the tokens at each call
    return [(text[x.start : x.end], "|".join(x.ids)) for x in get_links(doc, key)]


def ents(doc: Doc) -> list[tuple[str, str]]:
    return [(ent.text, ent.kb_id_) for ent in doc.ents]

"""Cases in YAML files: texts, the mentions that other pipes have found, and what is expected.

A file has three parts:

kbs: Lists of concepts. `a+b` is a knowledge base of both lists. Without an id, concepts are X:00,
    X:01 and so on.
pipelines: Settings of `bioel_linker`, with knowledge bases by their names; `starter`: changes of
    the settings of the starter; `load`: a knowledge base to load as a pipeline;
    `patterns`: labels of strings that an entity ruler finds.
groups: Cases with a name and what they are about. What a group says holds for all of its cases that
    do not say otherwise: `check` (a function of the tests), `expected` (its result), `why`, and
    what the function takes, such as `pipeline`, `text` and `labels` (label of a string, wherever
    it occurs; or its label and the probability that a detector gave).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import srsly
from spacy.language import Language
from spacy.tokens import Doc, Span, SpanGroup
from tiny import blank

import spacy_bioel
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept, ScoredSpan

Labels = Mapping[str, Any]
TABLES = Path(__file__).parent / "pipeline" / "tables.yml"
NOT_OF_CASES = ("name", "about", "cases")


class Cases:
    """Cases of a file, with its knowledge bases and pipelines, each made when it is needed."""

    def __init__(self, path: Path) -> None:
        self._data = srsly.read_yaml(path)
        self.folder: Path  # of knowledge bases; a fixture sets it
        self.kb: Callable[[str], KnowledgeBase] = cache(self._kb)
        self.nlp: Callable[[str], Language] = cache(self._nlp)

    def __iter__(self) -> Iterator[Any]:
        for group in self._data["groups"]:
            shared = {key: group[key] for key in group if key not in NOT_OF_CASES}
            for case in group["cases"]:
                what = str(case.get("text", case.get("texts")))
                yield pytest.param(shared | case, id=f"{group['name']}: {what:.60}")

    def _kb(self, name: str) -> KnowledgeBase:
        rows = [row for part in name.split("+") for row in self._data["kbs"][part]]
        rows = [row if isinstance(row, dict) else {"names": row} for row in rows]
        build_kb(
            [
                Concept(
                    row.get("id", f"X:{number:02}"),
                    tuple(row["names"]),
                    tuple(row.get("types", ())),
                )
                for number, row in enumerate(rows)
            ],
            self.folder / name,
        )
        return KnowledgeBase.open(self.folder / name)

    def _nlp(self, name: str) -> Language:
        settings = dict(self._data["pipelines"][name])
        if "starter" in settings:
            return spacy_bioel.load(config=settings["starter"])
        if "load" in settings:
            return spacy_bioel.load(self.kb(settings["load"]).path)
        kb = settings["kb"]
        folders = (
            str(self.kb(kb).path)
            if isinstance(kb, str)
            else {label: str(self.kb(of_label).path) for label, of_label in kb.items()}
        )
        nlp = blank()
        if patterns := settings.pop("patterns", {}):
            ruler: Any = nlp.add_pipe("entity_ruler")
            ruler.add_patterns(
                [{"label": label, "pattern": words} for words, label in patterns.items()]
            )
        nlp.add_pipe("bioel_linker", config=settings | {"kb": folders})
        return nlp

    def doc(self, pipeline: str, text: str, labels: Labels) -> Doc:
        """Return a document with mentions, as a detector gives it to the linker."""
        doc = self.nlp(pipeline).make_doc(text)
        if "bioel_mentions" not in self.nlp(pipeline).pipe_names:
            found = spans_of(doc, labels)
            doc.spans["bioel"] = SpanGroup(
                doc,
                spans=[Span(doc, start, end, label=label) for start, end, label, _ in found],
                attrs={"scores": [probability for *_, probability in found]},
            )
        return doc

    def links(
        self,
        *,
        pipeline: str,
        text: str,
        labels: Labels = {},  # noqa: B006
        of: str = "",
    ) -> dict[str, Any]:
        """Return the ids of each mention with a label: a list if the same words are several."""
        return ids_of(self.nlp(pipeline)(self.doc(pipeline, text, labels)), of)


def ids_of(doc: Doc, label: str = "") -> dict[str, Any]:
    """Return the ids of each mention by its text: "NIL", "X:1|X:2" for a composite."""
    found: dict[str, Any] = {}
    for span in doc.spans["bioel"]:
        if label in ("", span.label_):
            found.setdefault(span.text, []).append(span.kb_id_)
    return {words: ids[0] if len(ids) == 1 else ids for words, ids in found.items()}


def spans_of(doc: Doc, labels: Labels) -> list[ScoredSpan]:
    """Return the strings in a document that have a label, where they are whole tokens."""
    found = []
    for words, label in labels.items():
        name, probability = label if isinstance(label, list) else (label, 0.9)
        for match in re.finditer(re.escape(words), doc.text):
            if (span := doc.char_span(*match.span())) is not None:
                found.append((span.start, span.end, name, probability))
    return sorted(found)


def check(case: Mapping[str, Any], checks: Mapping[str, Callable[..., Any]]) -> None:
    """Compare the result of the function that a case names; `partly`: others do not matter."""
    given = {k: v for k, v in case.items() if k not in ("check", "expected", "why", "partly")}
    expected, found = case["expected"], checks[case["check"]](**given)
    if case.get("partly"):
        found = {words: found.get(words) for words in expected}
    assert found == expected, case.get("why")


def table(name: str) -> pytest.MarkDecorator:
    """Run a test for each row of its table in pipeline/tables.yml."""
    found: Any = srsly.read_yaml(TABLES)
    return pytest.mark.parametrize(found[name]["columns"], found[name]["rows"])

"""Tokens, mentions, names of a knowledge base, decisions and links are as cases.yml says."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cases import Cases, check, spans_of
from tiny import blank, decide_by

from spacy_bioel.dictionary.lookup import DictionaryLookup
from spacy_bioel.entities import Query
from spacy_bioel.entities.composites import Composites
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.entities.variants import Variants
from spacy_bioel.found import FoundSpans
from spacy_bioel.mentions.find import find, steps_of_detector, trim_borders
from spacy_bioel.settings import DictionarySettings, MentionSettings
from spacy_bioel.text.normalize import normalize_name

pytestmark = pytest.mark.filterwarnings("ignore:.*W323")
CASES = Cases(Path(__file__).with_name("cases.yml"))


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory) -> None:
    CASES.folder = tmp_path_factory.mktemp("cases")


def by_words(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return what belongs to each string: a list if the string occurs several times."""
    found: dict[str, Any] = {}
    for words, value in pairs:
        found.setdefault(words, []).append(value)
    return {words: of[0] if len(of) == 1 else of for words, of in found.items()}


@cache
def lookup_in(kb: str) -> DictionaryLookup:
    return DictionaryLookup(CASES.kb(kb))


def found(text: str, kb: str, **options: bool) -> list[tuple[str, str]]:
    """Return words, and the name that a dictionary finds in them."""
    doc = blank().make_doc(text)
    (names,) = lookup_in(kb).find([doc], DictionarySettings(**options))
    return [(doc[start:end].text, names.names[start, end, ""]) for start, end, *_ in names.spans]


def names(text: str, kb: str, **options: bool) -> dict[str, Any]:
    return by_words(found(text, kb, **options))


def concepts(text: str, kb: str) -> dict[str, Any]:
    """Return the preferred name of the first concept of each name."""
    opened = CASES.kb(kb)
    rows = [
        (words, int(opened.concepts_of_names(opened.lookup_names([normalize_name(name)]))[1][0]))
        for words, name in found(text, kb)
    ]
    return by_words([(words, opened.preferred_name(row)) for words, row in rows])


def linked(pipeline: str, text: str, labels: Any = None, of: str = "") -> dict[str, Any]:
    """Return the ids of mentions that have one."""
    links = CASES.links(pipeline=pipeline, text=text, labels=labels or {}, of=of)
    return {words: ids for words, ids in links.items() if ids != "NIL"}


def linked_names(pipeline: str, text: str) -> dict[str, Any]:
    kb: Any = CASES.nlp(pipeline).get_pipe("bioel_linker").kb  # type: ignore[attr-defined]
    ids = linked(pipeline, text)
    return {words: kb.preferred_name(kb.find(id)) for words, id in ids.items()}


def labelled(pipeline: str, text: str, labels: Any = None) -> dict[str, Any]:
    """Return the label and the id of each mention."""
    doc = CASES.nlp(pipeline)(CASES.doc(pipeline, text, labels or {}))
    return by_words([(s.text, f"{s.label_} {s.kb_id_}") for s in doc.spans["bioel"]])


def decided(
    ranked: dict[str, dict[str, float]], threshold: float, parts_agree: bool = False
) -> list[str]:
    parts = ("breast cancer", "ovarian cancer"), ("breast", "ovarian cancer")
    query = Query("breast and ovarian cancer", parts, parts_agree=parts_agree)
    return list(decide_by(ranked, query, nil_threshold=threshold).ids)


def trimmed(text: str, mention: str) -> list[str]:
    spans = trim_borders(doc := blank().make_doc(text), spans_of(doc, {mention: "D"}))
    return [doc[start:end].text for start, end, *_ in spans]


RULES = RuleSet({"composites": Composites(), "variants": Variants()})


def selected(text: str, labels: Any, *, rules: bool = False, **settings: bool | None) -> list[str]:
    settings = MentionSettings.defaults() | {"allow_overlap": True} | settings
    doc = blank().make_doc(text)
    steps = steps_of_detector(settings, RULES if rules else RuleSet({}))
    (chosen,) = find([FoundSpans(doc, spans_of(doc, labels))], steps)
    return [doc[start:end].text for start, end, *_ in chosen.spans]


CHECKS = {
    "tokens": lambda text: [token.text for token in blank().make_doc(text)],
    "names": names,
    "name_list": lambda text, kb: [name for _, name in found(text, kb)],
    "words": lambda text, kb: [words for words, _ in found(text, kb)],
    "concepts": concepts,
    "links": CASES.links,
    "linked": linked,
    "linked_words": lambda **case: [*linked(**case)],
    "linked_names": linked_names,
    "labelled": labelled,
    "decided": decided,
    "trimmed": trimmed,
    "selected": selected,
}


@pytest.mark.parametrize("case", list(CASES))
def test_case(case):
    check(case, CHECKS)

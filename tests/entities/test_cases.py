"""Rules for kinds of entities find, read and link mentions as cases.yml says."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cases import Cases, check, spans_of
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_bioel.entities import patterns
from spacy_bioel.entities.composites import end_with_members, split_composite
from spacy_bioel.entities.genes import other_spellings
from spacy_bioel.entities.organism_genes import add_organism_genes
from spacy_bioel.entities.organisms import organism_words
from spacy_bioel.entities.patterns import find_words, is_code
from spacy_bioel.entities.variant_grammar import Variant, find_variants, read_variant
from spacy_bioel.entities.variants import rs_numbers
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.report import explain

pytestmark = pytest.mark.filterwarnings("ignore:.*W323")
CASES = Cases(Path(__file__).with_name("cases.yml"))


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory) -> None:
    CASES.folder = tmp_path_factory.mktemp("entities")


def marked(text: str) -> tuple[str, int, int]:
    """Return a text without the bars around a mention, and the place of the mention."""
    before, mention, behind = text.split("|") if "|" in text else ("", text, "")
    return before + mention + behind, len(before), len(before) + len(mention)


def read(text: str) -> Variant | None:
    return read_variant(*marked(text))


def of_all(read: Callable[[str], Any], texts: list[str]) -> Any:
    """Return what each text of a case results in, or all results that differ."""
    found = {text: read(text) for text in texts}
    first = found[texts[0]]
    return first if all(result == first for result in found.values()) else found


def is_variant(text: str) -> bool | list[str]:
    """Whether a text, before a comma and in brackets, is a variant; else what is found."""
    sentence = f"It had {text}, and ({text}) was new."
    found = [sentence[start:end] for start, end in find_variants(sentence)]
    return found if found not in ([], [text] * 2) else bool(found)


def in_order(text: str, mentions: list[str]) -> list[str]:
    places, end = [], 0
    for mention in mentions:
        start = text.index(mention, end)
        end = start + len(mention)
        places.append((start, end))
    return rs_numbers(text, places)


def words_of(text: str) -> Doc:
    return Doc(Vocab(), words=text.split())


def organism_genes(text: str, kb: str, labels: Any = None) -> list[str]:
    given = spans_of(doc := words_of(text), labels or {})
    places = {span[:2] for span in given if span[2] == "Species"}
    add_organism_genes(doc, found := FoundSpans(doc, given), CASES.kb(kb))
    return [doc[s:e].text for s, e, *_ in found.spans if (s, e) not in places]


def reason(pipeline: str, text: str, why_of: str, says: list[str]) -> str:
    """Return the ids of a mention whose explanation says this."""
    *_, mention = explain(CASES.nlp(pipeline), text, why_of).mentions
    assert [part for part in says if part not in mention.reason] == [], mention.reason
    return "|".join(mention.ids) or "NIL"


CHECKS = {
    "links": CASES.links,
    "reason": reason,
    "hgvs": partial(of_all, lambda text: getattr(read(text), "hgvs", None)),
    "component": partial(of_all, lambda text: getattr(read(text), "component", "")),
    "is_variant": partial(of_all, is_variant),
    "rs_numbers": in_order,
    "is_code": lambda text: is_code(*marked(text)),
    "first_reading": lambda text: list(split_composite(text)[0]),
    "readings": lambda text: [list(reading) for reading in split_composite(text)],
    "with_members": lambda text, mention: text[: end_with_members(text, 0, len(mention))],
    "has_spelling": lambda text, spelling: spelling in other_spellings(text),
    "organisms": lambda text: [organism for *_, organism in organism_words(text)],
    "organism_genes": organism_genes,
}


@pytest.mark.parametrize("case", list(CASES))
def test_case(case):
    check(case, CHECKS)


PATTERNS = (ASSETS_FOLDER / "patterns.tsv").read_text("utf8").splitlines()
ROWS = {f"patterns.tsv:{n} {row}": row for n, row in enumerate(PATTERNS, 1) if row[:1] != "#"}


@pytest.mark.parametrize("row", ROWS)
def test_row_of_patterns(row, monkeypatch):
    def finds(one, example):
        monkeypatch.setattr(patterns, "patterns", lambda: {use: patterns.joined(use, [one])})
        return find_words(use, *marked(example))

    use, pattern, *examples = ROWS[row].split("\t")
    assert any(line.startswith(f"## {use}: ") for line in PATTERNS), "a use that the file lists"
    assert len(examples) == 2, "four columns, with tabs between them"
    bare = re.sub(r"\(.*\)|\[.*?\]", "", pattern)
    assert not bare.startswith(r"\b") or "|" not in bare, "alternatives after \\b are in (?:...)"
    needs_bars = use.startswith(("before ", "after "))
    assert [one.count("|") for one in examples] == [2 * needs_bars] * 2, "bars around the name"
    assert finds(pattern, examples[0]), "the row matches its example"
    matching = [one for one in patterns.pattern_rows()[use] if finds(one, examples[1])]
    assert matching == [], "no row of the use matches the counterexample"

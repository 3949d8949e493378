"""Rows for the table NOTE_NLP of OMOP's Common Data Model."""

import csv
import io
import re
from datetime import date, datetime

import pytest
from athena import write_athena
from kb_files import made_kb
from tables import cases

from spacy_bioel.errors import BioelError
from spacy_bioel.export.formats import format_of
from spacy_bioel.export.rows import Failure, LinkedText
from spacy_bioel.io.omop import read_athena
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.clinical.status import Context
from spacy_bioel.types import Candidate, Concept, Link

TEXT = "No MI."
COLUMNS = cases(__file__, "columns_of_note_nlp")
CODES = cases(__file__, "codes_of_omop")


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> KnowledgeBase:
    folder = tmp_path_factory.mktemp("omop")
    concepts = [*read_athena(write_athena(folder / "athena")), Concept("X:1", ("Ache",))]
    return made_kb(folder / "kb", concepts)


def rows_of(*documents: LinkedText, **options: bool) -> list[dict[str, str]]:
    out = io.StringIO()
    with format_of(".note_nlp.csv", **options).writing(out) as write:  # type: ignore[union-attr]
        for document in documents:
            write(document)
    assert out.getvalue().splitlines()[0] == COLUMNS.replace(" ", ",")
    return list(csv.DictReader(io.StringIO(out.getvalue(), newline="")))


def linked(kb: KnowledgeBase, *ids: str, context: Context | None = None) -> LinkedText:
    facts = {"context": context.to_fact()} if context else {}
    found = tuple(Candidate(id, 0.9, "MI", "exact", kb.fingerprint) for id in ids)
    return LinkedText("7", TEXT, (Link(3, 5, "Condition", ids, found, facts),))


@pytest.mark.parametrize("code", CODES)
def test_standard_and_source_concepts(kb, code):
    rows = rows_of(linked(kb, code))
    pairs = [(row["note_nlp_concept_id"], row["note_nlp_source_concept_id"]) for row in rows]
    assert pairs == [*CODES[code]]


def test_the_cells_of_a_row(kb):
    (row,) = rows_of(linked(kb, "SNOMED:22298006", context=Context(negated=True)))
    assert date.fromisoformat(row.pop("nlp_date")) == date.today()
    assert datetime.fromisoformat(row.pop("nlp_datetime")).date() == date.today()
    assert re.fullmatch(r"spacy-bioel \d+\.\d+\.\d+", row.pop("nlp_system"))
    assert row == cases(__file__, "note_nlp_row")


@pytest.mark.parametrize("context, exists, temporal, modifiers", cases(__file__, "note_nlp"))
def test_what_the_text_says(kb, context, exists, temporal, modifiers):
    """Nothing, if the context was not determined or is in doubt."""
    found = None if context is None else Context(**context)
    (row,) = rows_of(linked(kb, "SNOMED:22298006", context=found))
    said = row["term_exists"], row["term_temporal"], row["term_modifiers"]
    assert said == (exists, temporal, modifiers)


def test_several_documents_nil_and_composites(kb):
    both = linked(kb, "SNOMED:22298006", "RxNorm:1191")
    nil = LinkedText(None, TEXT, (Link(0, 2, "Condition"),))
    variant = LinkedText("9", TEXT, (Link(0, 2, "Variant", ("dbSNP:rs1",)),))
    failed = LinkedText("10", TEXT, error=Failure("E088", "too long"))
    rows = rows_of(both, nil, variant, failed)
    keys = ("note_nlp_id", "note_id", "note_nlp_concept_id")
    # Documents without an id are numbered.
    assert [tuple(row[key] for key in keys) for row in rows] == [*cases(__file__, "several_notes")]


def test_lengths_of_the_columns(kb):
    text = "A b\tc\n" * 100 + "MI" + " d" * 200
    start = text.index("MI")
    long = Link(start, start + 300, "Condition")
    short = Link(start, start + 2, "Condition")
    for row in rows_of(LinkedText("1", text, (long, short))):
        assert row["offset"] == str(start)
        assert len(row["snippet"]) <= 250 and len(row["lexical_variant"]) <= 250
        assert row["lexical_variant"][:100] in row["snippet"] and "\n" not in row["snippet"]


def test_cells_that_spreadsheets_would_run(kb):
    document = LinkedText("1", "=1+1 MI", (Link(0, 4, "Condition"),))
    assert rows_of(document)[0]["lexical_variant"] == "'=1+1"
    assert rows_of(document, raw=True)[0]["lexical_variant"] == "=1+1"


@pytest.mark.parametrize("id", ["case-1", "1.0", "²", "-1"])
def test_note_ids_are_integers(kb, id):
    with pytest.raises(BioelError, match="B607.*note_id"):
        rows_of(LinkedText(id, TEXT, (Link(3, 5, "Condition"),)))


def test_the_context_is_determined(kb, tmp_path, bioel):
    (tmp_path / "notes.txt").write_text("No heart attack.\nTakes ASA; mother had a heart attack.\n")
    out = tmp_path / "x.NOTE_NLP.csv"
    shown = bioel("link", kb.path, tmp_path / "notes.txt", "-o", out, "-o", tmp_path / "x.pubtator")
    assert "W303" not in shown.err  # which is about the context that was asked for
    with out.open(encoding="utf8", newline="") as file:
        rows = list(csv.DictReader(file))
    keys = ("note_id", "lexical_variant", "note_nlp_concept_id", "term_exists", "term_modifiers")
    assert [tuple(row[key] for key in keys) for row in rows] == [*cases(__file__, "notes_on_disk")]


def test_a_knowledge_base_without_ids_of_omop(kb, tmp_path, bioel):
    build_kb([Concept("X:1", ("Heart attack",), xrefs=("NOT_OMOP:1",))], tmp_path / "kb")
    (tmp_path / "notes.txt").write_text("No heart attack.\nA heart attack.\n")
    out = tmp_path / "x.note_nlp.csv"
    shown = bioel("link", tmp_path / "kb", tmp_path / "notes.txt", "-o", out)
    assert shown.err.count("W415") == 1
    assert str(tmp_path / "kb") in shown.words and "bioel kb build kb/omop athena/" in shown.words
    with out.open(encoding="utf8", newline="") as file:
        assert {row["note_nlp_concept_id"] for row in csv.DictReader(file)} == {"0"}
    for model, to in ((kb.path, out), (tmp_path / "kb", tmp_path / "x.csv")):
        assert "W415" not in bioel("link", model, tmp_path / "notes.txt", "-o", to).err

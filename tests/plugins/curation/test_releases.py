"""Two releases of a knowledge base are compared, and annotations are moved to the new one."""

import pytest
from kb_files import made_kb
from tables import cases, concepts_of

from spacy_bioel.io.ontology import read_obo
from spacy_bioel.io.open import Place
from spacy_bioel.plugins.curation.releases import compare_releases, migrated_lines
from spacy_bioel.types import Concept


def releases(folder, old, new):
    """Build an old and a new release of a knowledge base, from names or other values by id."""
    return [made_kb(folder / n, concepts_of(rows)) for n, rows in (("old", old), ("new", new))]


@pytest.fixture(scope="module")
def kbs(tmp_path_factory):
    tables = (cases(__file__, name) for name in ("old_release", "new_release"))
    return releases(tmp_path_factory.mktemp("releases"), *tables)


@pytest.fixture(scope="module")
def changes(kbs):
    return {(change.kind, change.id, change.to) for change in compare_releases(*kbs)}


def test_changes(changes):
    assert changes >= {*cases(__file__, "changes")}


def test_only_what_changed_is_listed(changes, kbs):
    assert not {change for change in changes if change[1] in ("X:01", "X:03")}
    assert not list(compare_releases(kbs[0], kbs[0]))
    assert ("replaced", "X:25", ("X:01",)) not in changes


def test_an_id_with_a_new_number(tmp_path, kbs):
    new = made_kb(tmp_path, [Concept("X:30", ("ague",)), Concept("X:07", (), replaced_by="X:30")])
    found = list(compare_releases(kbs[0], new))
    assert [(c.kind, c.to) for c in found if c.id == "X:07"] == [("replaced", ("X:30",))]


def names_that_changed(folder, old, new):
    changes = compare_releases(*releases(folder, old, new))
    return [tuple(change[:4]) for change in changes if "name " in change.kind]


def test_names_that_come_and_go(tmp_path):
    old, new = {"X:1": ("fever", "hot body")}, {"X:1": ("fever", "pyrexia")}
    found = names_that_changed(tmp_path, old | (same := {"X:2": ("gout",)}), new | same)
    assert [change[:3] for change in found] == [
        ("name gone", "X:1", "hot body"), ("name added", "X:1", "pyrexia")
    ]  # fmt: skip


SHARED_NAMES = cases(__file__, "shared_names")  # names by id, in both releases; changes


@pytest.mark.parametrize("case", SHARED_NAMES)
def test_a_name_of_two_concepts(tmp_path, case):
    old, new, expected = SHARED_NAMES[case]
    assert [c for c in names_that_changed(tmp_path, old, new) if c[2] == "ague"] == [*expected]


# Old and new names by id, the id that is looked up, and the ids that took its meaning.
MEANINGS = cases(__file__, "meanings")


@pytest.mark.parametrize("case", MEANINGS)
def test_an_id_whose_meaning_changed(tmp_path, case):
    *rows, others = MEANINGS[case]
    kbs = releases(tmp_path, *({f"X:{n}": of for n, of in names.items()} for names in rows))
    (tmp_path / "a.csv").write_text("id\nX:1\n")
    (move,) = (m for _, moves, _ in migrated_lines(tmp_path / "a.csv", *kbs) for m in moves)
    expected = ("needs a person", others) if others else ("unchanged", ("X:1",))
    assert (move.status, move.to) == expected
    changes = [c for c in compare_releases(*kbs) if c.id == "X:1"]
    assert [c.to for c in changes if c.kind == "meaning changed"] == [others] * bool(others)
    is_listed_once = {c.kind for c in changes}.isdisjoint({"renamed", "name moved"})
    assert is_listed_once == bool(others)


def test_several_replacements_are_a_decision_for_a_person(tmp_path, kbs):
    (tmp_path / "new.obo").write_text(
        "[Term]\nid: X:07\nname: obsolete ague\nis_obsolete: true\n"
        "replaced_by: X:3\nreplaced_by: X:2\n\n[Term]\nid: X:2\nname: cleft lip\n\n"
        "[Term]\nid: X:3\nname: cleft palate\nalt_id: X:08\n\n"
        "[Term]\nid: X:4\nname: c\nalt_id: X:08\n\n"
    )
    new = made_kb(tmp_path / "new", read_obo(tmp_path / "new.obo"))
    found = {c.id: (c.kind, c.to) for c in compare_releases(kbs[0], new)}
    assert found["X:07"] == ("consider", ("X:2", "X:3"))
    assert found["X:08"] == ("consider", ("X:3", "X:4"))
    (tmp_path / "a.csv").write_text("id\nX:07\n")
    ((_, moves, _), *_) = list(migrated_lines(tmp_path / "a.csv", kbs[0], new))[1:]
    assert [(move.status, move.to) for move in moves] == [("needs a person", ("X:2", "X:3"))]


LINKED = cases(__file__, "migrated")


@pytest.mark.parametrize("name", LINKED)
def test_only_the_ids_of_links_are_changed(kbs, tmp_path, name):
    before, after = LINKED[name]
    (tmp_path / name).write_bytes(before.encode())
    lines = list(migrated_lines(tmp_path / name, *kbs))
    assert "".join(line for line, *_ in lines) == after
    n_in = sum(len(moves) for _, moves, _ in lines)
    (tmp_path / name).write_bytes(after.encode())
    again = list(migrated_lines(tmp_path / name, *kbs))
    assert "".join(line for line, *_ in again) == after
    assert sum(len(moves) for _, moves, _ in again) == n_in - sum(n for *_, n in lines)


def test_what_becomes_of_each_id(kbs, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id\nX:01\nX:02\nX:05\nX:06\nX:07\nX:99\nword\n")
    moves = [move for _, moves, _ in migrated_lines(path, *kbs) for move in moves]
    found = [(move.status, move.id, move.to) for move in moves]
    assert found == [*cases(__file__, "moves_of_ids")]
    assert moves[1].place == Place(path, 3) and moves[1].name == "high fever"


def test_bare_ids_with_a_prefix(kbs, tmp_path):
    path = tmp_path / "a.pubtator"
    path.write_text("1|t|a\n1|a|b\n1\t0\t1\ta\tDisease\t02|07\n")
    lines = list(migrated_lines(path, *kbs, prefix="X"))
    assert lines[-1][0] == "1\t0\t1\ta\tDisease\t01|07\n"
    assert [move.status for move in lines[-1][1]] == ["moved", "gone"]


FOREIGN = cases(__file__, "foreign")


@pytest.mark.parametrize("name", FOREIGN)
def test_ids_that_are_not_in_the_old_release_are_counted(kbs, tmp_path, name):
    path = tmp_path / name
    path.write_text(FOREIGN[name])
    lines = list(migrated_lines(path, *kbs))
    assert "".join(line for line, *_ in lines) == FOREIGN[name]
    found = [(move.status, move.id, move.to) for _, moves, _ in lines for move in moves]
    # An id in neither release has the prefix of OLD; X:25 is new.
    in_neither = [("in neither release", "X:2:3", ())] if name == "a.csv" else []
    known = [("not in OLD", "UMLS:C1", ()), ("not in OLD", "C0011849", ())]
    assert found == [*known, *in_neither, ("not in OLD", "X:25", ("X:25",))]


def test_words_are_no_ids_with_a_prefix(kbs, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"ids": ["02", "99"], "label": "X", "evidence": "exact", "hgvs": "p.V600E"}\n')
    ((line, moves, _),) = migrated_lines(path, *kbs, prefix="X")
    assert line == path.read_text().replace('"02"', '"01"')
    found = [(move.status, move.id) for move in moves]
    assert found == [("moved", "X:02"), ("in neither release", "X:99")]


def test_chosen_columns(kbs, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("id\tHPO\nX:02\tX:02\nX:02\tX:07\n")
    for column in ("HPO", 2):
        lines = list(migrated_lines(path, *kbs, columns={"id": column}))
        assert "".join(line for line, *_ in lines) == "id\tHPO\nX:02\tX:01\nX:02\tX:07\n"
        assert [move.status for _, moves, _ in lines for move in moves] == ["moved", "gone"]

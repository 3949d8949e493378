"""`bioel relink` links only what a new release can change, and gives the links of a full run."""

import json
from pathlib import Path

import pytest

from spacy_bioel.cli import main
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

TERMS = [
    Concept("X:01", ("fever", "pyrexia")),
    Concept("X:02", ("cleft lip",)),
    Concept("X:03", ("osteoporosis",)),
    Concept("X:04", ("renal cyst",)),
    Concept("X:05", ("headache",)),
    Concept("X:06", ("Decreased circulating potassium concentration",)),
    Concept("X:07", ("cardiac arrest",)),
    Concept("X:08", ("stroke", "apoplexy"), parents=("X:07",)),
    Concept("X:09", ("heat stroke", "apoplexy"), parents=("X:01",)),
    Concept("X:10", ("pain in the neck",), parents=("X:05",)),
    Concept("X:12", ("trabecula", "trabeculae")),
]
OTHER = "Nothing to see here, except an old headache."


def with_names(id: str, *names: str, **values: object) -> list[Concept]:
    return [*(c for c in TERMS if c.id != id), Concept(id, names, **values)]


CHANGES = {
    "a new synonym": (with_names("X:01", "fever", "pyrexia", "hot body"), "A hot body, not fever."),
    "a name that is gone": (with_names("X:01", "fever"), "Pyrexia is back."),
    "a plural that was a name": (with_names("X:12", "trabecula"), "Trabeculae."),
    "a new preferred name": (with_names("X:08", "apoplexy", "stroke"), "Apoplexy."),
    "a new id": (
        [c for c in TERMS if c.id != "X:03"] + [Concept("X:33", ("osteoporosis",))],
        "Osteoporosis.",
    ),
    "a merged concept": (
        [c for c in TERMS if c.id != "X:03"] + [Concept("X:03", (), replaced_by="X:01")],
        "Osteoporosis (osteoporoses).",
    ),
    "another spelling of a code": (with_names("X:11", "IL-6"), "IL6 rose, and IL 6."),
    "a plural": (with_names("X:11", "ulna fracture"), "Two ulna fractures."),
    "another word order": (with_names("X:11", "fracture of the ulna"), "An ulna fracture."),
    "words of a family": (
        with_names("X:11", "hypoplasia of the fibula"),
        "Fibular hypoplasia.",
    ),
    "a typing error": (with_names("X:11", "thrombocytopenia"), "Thrombocytopnia."),
    "a word with two readings": (with_names("X:11", "osteoporosum"), "Osteoporosus."),
    "a word that is correct now": (with_names("X:11", "osteoporasis"), "Osteoporasis."),
    "an adjective": (with_names("X:11", "kidney stone"), "A renal stone."),
    "a noun": (
        [*TERMS, Concept("X:11", ("renal agenesis",)), Concept("X:13", ("bone of the kidney",))],
        "Kidney agenesis.",
    ),
    "both sides of and": (with_names("X:11", "cleft palate"), "Cleft lip and palate."),
    "a defined abbreviation": (
        with_names("X:11", "marfan syndrome"),
        "Marfan syndrome (MFS). MFS.",
    ),
    "a known abbreviation": (with_names("X:11", "gastroesophageal reflux disease"), "GERD."),
    "a word broken by a line": (with_names("X:11", "encephalopathy"), "Encephalo-\npathy."),
    "an amount": (with_names("X:11", "Increased circulating sodium level"), "High serum sodium."),
    "an acronym": (with_names("X:11", "attention deficit", "ADHD"), "ADHD, adhd."),
    "an order of synonyms": (
        [*TERMS[:-1], Concept("X:11", ("a b", "bowing of ulna", "bowed ulna"))],
        "Bow ulna, trabeculae.",
    ),
    "a second meaning": ([*TERMS, Concept("X:11", ("fever",))], "A fever."),
    "a tie that parents break": (
        with_names("X:09", "heat stroke", "apoplexy", parents=("X:07",)),
        "Cardiac arrest and apoplexy. Fever.",
    ),
    "a type": (with_names("X:03", "osteoporosis", types=("bone",)), "Osteoporosis."),
    "capitals": (with_names("X:03", "OSTEOPOROSIS"), "An osteoporosis."),
    "new pairs of words": (
        [
            *TERMS,
            *(Concept(f"X:2{i}", (f"gyral {w}", f"sulcal {w}")) for i, w in enumerate("abcd")),
            Concept("X:30", ("gyral headache",)),
        ],
        "A sulcal headache.",
    ),
}


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    return int(exit.value.code or 0)


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("old") / "kb"
    build_kb(TERMS, folder)
    return folder


def write_texts(path: Path, *texts: str) -> Path:
    path.write_text(
        "".join(json.dumps({"id": f"d{i}", "text": t}) + "\n" for i, t in enumerate(texts))
    )
    return path


@pytest.mark.parametrize("name", CHANGES)
def test_the_links_of_a_full_run(old, tmp_path, capsys, name):
    concepts, text = CHANGES[name]
    new = tmp_path / "new" / ("kb-2026" if name == "a type" else "kb")
    build_kb(concepts, new)
    texts = write_texts(tmp_path / "texts.jsonl", text, OTHER, "Neck pain", OTHER)
    links, full, out = (tmp_path / f"{name}.jsonl" for name in ("links", "full", "out"))
    assert run("link", old, texts, "-o", links) == run("link", new, texts, "-o", full) == 0
    capsys.readouterr()
    assert run("relink", links, texts, old, new, "-o", out) == 0
    assert out.read_text() == full.read_text()
    n_linked = int(capsys.readouterr().err.split(" of ")[0])
    # The label of a concept without types is the name of its knowledge base.
    now = full.read_text().replace('"kb-2026"', '"KB"').splitlines()
    assert n_linked == len(set(now) - set(links.read_text().splitlines()))
    assert n_linked > 0


def test_what_did_not_change_is_not_linked(old, tmp_path, capsys):
    texts = write_texts(tmp_path / "texts.jsonl", "Fever.", "Ulna fracture.", OTHER)
    run("link", old, texts, "-o", tmp_path / "links.jsonl")
    capsys.readouterr()
    assert run("relink", tmp_path / "links.jsonl", texts, old, old, "-o", tmp_path / "o.jsonl") == 0
    assert capsys.readouterr().err.startswith("0 of 3 documents linked")
    assert (tmp_path / "o.jsonl").read_text() == (tmp_path / "links.jsonl").read_text()


def test_new_texts_are_linked(old, tmp_path, capsys):
    texts = write_texts(tmp_path / "texts.jsonl", "Fever.", OTHER)
    run("link", old, texts, "-o", tmp_path / "links.jsonl")
    more = write_texts(tmp_path / "more.jsonl", "Fever.", OTHER, "Osteoporosis.")
    run("link", old, more, "-o", tmp_path / "full.jsonl")
    capsys.readouterr()
    assert run("relink", tmp_path / "links.jsonl", more, old, old, "-o", tmp_path / "o.jsonl") == 0
    assert capsys.readouterr().err.startswith("1 of 3 documents linked")
    assert (tmp_path / "o.jsonl").read_text() == (tmp_path / "full.jsonl").read_text()


def changed_links(path: Path, **changes: object) -> None:
    record = json.loads(path.read_text().splitlines()[0])
    record["links"][0] |= changes
    path.write_text(json.dumps(record) + "\n")


@pytest.mark.parametrize(
    "changes, code",
    [
        ({"ids": ["Y:1"], "id": "Y:1"}, "B635"),
        (
            {"candidates": [{"id": "X:01", "score": 1, "name": "fever", "evidence": "dense"}]},
            "B636",
        ),
        ({"context": {"negated": True}}, "B636"),
        ({"candidates": [{"id": "X:01", "evidence": "exact", "xrefs": []}]}, "B636"),
        ({"candidates": None}, "B636"),
    ],
)
def test_links_of_another_run_are_refused(old, tmp_path, capsys, changes, code):
    texts, links = write_texts(tmp_path / "texts.jsonl", "Fever."), tmp_path / "links.jsonl"
    run("link", old, texts, "-o", links)
    changed_links(links, **changes)
    assert run("relink", links, texts, old, old, "-o", tmp_path / "o.jsonl") == 2
    assert code in capsys.readouterr().err and not (tmp_path / "o.jsonl").exists()


def test_texts_that_changed_are_linked(old, tmp_path, capsys):
    texts, links = write_texts(tmp_path / "texts.jsonl", "Fever.", OTHER), tmp_path / "links.jsonl"
    run("link", old, texts, "-o", links)
    write_texts(texts, "A fever.", OTHER)
    run("link", old, texts, "-o", tmp_path / "full.jsonl")
    capsys.readouterr()
    assert run("relink", links, texts, old, old, "-o", tmp_path / "o.jsonl") == 0
    assert (tmp_path / "o.jsonl").read_text() == (tmp_path / "full.jsonl").read_text()
    assert capsys.readouterr().err.startswith("1 of 2 documents")


def test_a_pipeline_is_refused(old, tmp_path, capsys):
    links = write_texts(tmp_path / "links.jsonl", "Fever.")
    assert run("relink", links, links, old, "starter", "-o", tmp_path / "o.jsonl") == 2
    shown = capsys.readouterr().err
    assert "B636" in shown and "NEW is a pipeline" in shown


def test_swapped_releases(old, tmp_path, capsys):
    new = tmp_path / "new"
    build_kb([*TERMS, Concept("X:50", ("gout",))], new)
    texts, links = write_texts(tmp_path / "texts.jsonl", "Gout."), tmp_path / "links.jsonl"
    run("link", new, texts, "-o", links)
    assert run("relink", links, texts, old, new, "-o", tmp_path / "o.jsonl") == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "X:50, which OLD (" in shown and "NEW has it: perhaps they are swapped" in shown
    assert run("relink", links, texts, new, old, "-o", tmp_path / "o.jsonl") == 0
    assert f"the others have their links of OLD ({new})" in capsys.readouterr().err

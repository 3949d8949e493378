"""`bioel relink` links only what a new release can change, and gives the links of a full run."""

import json
import re
from pathlib import Path

import pytest
from tables import cases, concepts_of

from spacy_bioel.cli import main
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

TERMS = concepts_of(cases(__file__, "terms"))
OTHERS = ("Nothing to see here, except an old headache.", "Neck pain")


CHANGES = cases(__file__, "relinked")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    return int(exit.value.code or 0)


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("old") / "kb"
    build_kb(TERMS, folder)
    return folder


@pytest.fixture(scope="module")
def links_of_old(old, tmp_path_factory) -> dict[str, str]:
    """Lines with the links of the old release, by text."""
    folder = tmp_path_factory.mktemp("links")
    texts = write_texts(folder / "texts.jsonl", *(text for _, text in CHANGES.values()), *OTHERS)
    run("link", old, texts, "-o", folder / "links.jsonl")
    lines = [re.sub(r'"d\d+"', '"d*"', line, count=1) for line in (folder / "links.jsonl").open()]
    return {json.loads(line)["text"]: line for line in lines}


def write_texts(path: Path, *texts: str) -> Path:
    path.write_text(
        "".join(json.dumps({"id": f"d{i}", "text": t}) + "\n" for i, t in enumerate(texts))
    )
    return path


@pytest.mark.parametrize("name", CHANGES)
def test_the_links_of_a_full_run(old, links_of_old, tmp_path, capsys, name):
    changes, text = CHANGES[name]
    new = tmp_path / "new" / ("kb-2026" if name == "a type" else "kb")
    build_kb([*(term for term in TERMS if term.id not in changes), *concepts_of(changes)], new)
    texts = write_texts(tmp_path / "texts.jsonl", text, *OTHERS, OTHERS[0])
    links, full, out = (tmp_path / f"{name}.jsonl" for name in ("links", "full", "out"))
    lines = [links_of_old[text] for text in (text, *OTHERS, OTHERS[0])]
    links.write_text("".join(line.replace("d*", f"d{i}") for i, line in enumerate(lines)))
    assert run("link", new, texts, "-o", full) == 0
    capsys.readouterr()
    assert run("relink", links, texts, old, new, "-o", out) == 0
    assert out.read_text() == full.read_text()
    n_linked = int(capsys.readouterr().err.split(" of ")[0])
    # The label of a concept without types is the name of its knowledge base.
    now = full.read_text().replace('"kb-2026"', '"KB"').splitlines()
    assert n_linked == len(set(now) - set(links.read_text().splitlines()))
    assert n_linked > 0


def test_what_did_not_change_is_not_linked(old, tmp_path, capsys):
    texts = write_texts(tmp_path / "texts.jsonl", "Fever.", "Ulna fracture.", OTHERS[0])
    run("link", old, texts, "-o", tmp_path / "links.jsonl")
    capsys.readouterr()
    assert run("relink", tmp_path / "links.jsonl", texts, old, old, "-o", tmp_path / "o.jsonl") == 0
    assert capsys.readouterr().err.startswith("0 of 3 documents linked")
    assert (tmp_path / "o.jsonl").read_text() == (tmp_path / "links.jsonl").read_text()


def test_new_texts_are_linked(old, tmp_path, capsys):
    texts = write_texts(tmp_path / "texts.jsonl", "Fever.", OTHERS[0])
    run("link", old, texts, "-o", tmp_path / "links.jsonl")
    more = write_texts(tmp_path / "more.jsonl", "Fever.", OTHERS[0], "Osteoporosis.")
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
    texts, links = (
        write_texts(tmp_path / "texts.jsonl", "Fever.", OTHERS[0]),
        tmp_path / "links.jsonl",
    )
    run("link", old, texts, "-o", links)
    write_texts(texts, "A fever.", OTHERS[0])
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

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
    with pytest.raises(SystemExit):
        main(["link", str(old), str(texts), "-o", str(folder / "links.jsonl")])
    lines = [re.sub(r'"d\d+"', '"d*"', line, count=1) for line in (folder / "links.jsonl").open()]
    return {json.loads(line)["text"]: line for line in lines}


def write_texts(path: Path, *texts: str) -> Path:
    path.write_text(
        "".join(json.dumps({"id": f"d{i}", "text": t}) + "\n" for i, t in enumerate(texts))
    )
    return path


@pytest.mark.parametrize("name", CHANGES)
def test_the_links_of_a_full_run(old, links_of_old, tmp_path, bioel, name):
    changes, text = CHANGES[name]
    new = tmp_path / "new" / ("kb-2026" if name == "a type" else "kb")
    build_kb([*(term for term in TERMS if term.id not in changes), *concepts_of(changes)], new)
    texts = write_texts(tmp_path / "texts.jsonl", text, *OTHERS, OTHERS[0])
    links, full, out = (tmp_path / f"{name}.jsonl" for name in ("links", "full", "out"))
    lines = [links_of_old[text] for text in (text, *OTHERS, OTHERS[0])]
    links.write_text("".join(line.replace("d*", f"d{i}") for i, line in enumerate(lines)))
    bioel("link", new, texts, "-o", full)
    n_linked = int(bioel("relink", links, texts, old, new, "-o", out).err.split(" of ")[0])
    assert out.read_text() == full.read_text()
    # The label of a concept without types is the name of its knowledge base.
    now = full.read_text().replace('"kb-2026"', '"KB"').splitlines()
    assert n_linked == len(set(now) - set(links.read_text().splitlines()))
    assert n_linked > 0


@pytest.mark.parametrize(
    ("before", "after", "n"),
    [
        (["Fever.", "Ulna fracture.", OTHERS[0]], ["Fever.", "Ulna fracture.", OTHERS[0]], 0),
        (["Fever.", OTHERS[0]], ["Fever.", OTHERS[0], "Osteoporosis."], 1),
        (["Fever.", OTHERS[0]], ["A fever.", OTHERS[0]], 1),
    ],
    ids=["the same", "one more", "one changed"],
)
def test_only_texts_that_are_new_or_changed_are_linked(old, tmp_path, bioel, before, after, n):
    texts = tmp_path / "texts.jsonl"
    for name, of in (("links", before), ("full", after)):
        bioel("link", old, write_texts(texts, *of), "-o", tmp_path / f"{name}.jsonl")
    links, out = tmp_path / "links.jsonl", tmp_path / "o.jsonl"
    shown = bioel("relink", links, texts, old, old, "-o", out).err
    assert shown.startswith(f"{n} of {len(after)} documents linked")
    assert out.read_text() == (tmp_path / "full.jsonl").read_text()


@pytest.mark.parametrize("changes, code", cases(__file__, "links_of_another_run"))
def test_links_of_another_run_are_refused(old, tmp_path, bioel, changes, code):
    texts, links = write_texts(tmp_path / "texts.jsonl", "Fever."), tmp_path / "links.jsonl"
    bioel("link", old, texts, "-o", links)
    record = json.loads(links.read_text())
    record["links"][0] |= changes
    links.write_text(json.dumps(record) + "\n")
    out = tmp_path / "o.jsonl"
    assert code in bioel("relink", links, texts, old, old, "-o", out, status=2).err
    assert not out.exists()


def test_swapped_releases(old, tmp_path, bioel):
    new = tmp_path / "new"
    build_kb([*TERMS, Concept("X:50", ("gout",))], new)
    texts, links = write_texts(tmp_path / "texts.jsonl", "Gout."), tmp_path / "links.jsonl"
    bioel("link", new, texts, "-o", links)
    out = tmp_path / "o.jsonl"
    shown = bioel("relink", links, texts, old, new, "-o", out, status=2).words
    assert "X:50, which OLD (" in shown and "NEW has it: perhaps they are swapped" in shown
    shown = bioel("relink", links, texts, new, old, "-o", out).err
    assert f"the others keep their links from OLD ({new})" in shown

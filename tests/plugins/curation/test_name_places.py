"""The names of ids are found in any layout, whether the ids are right or wrong."""

import json
from collections.abc import Callable

import pytest
from tables import cases

from spacy_bioel.kb.build import build_kb
from spacy_bioel.plugins.curation.check import Checker
from spacy_bioel.plugins.curation.sources import read_pairs
from spacy_bioel.types import Concept

NAMES = (
    "Ataxia", "Seizure", "Tremor", "Dystonia", "Myopia, high", "Short stature", "Wide nose",
    "Cleft palate", "Hearing loss", "Long face", "Thin hair", "Night blindness",
)  # fmt: skip
Pairs = list[tuple[str, str]]
RIGHT = [(f"HP:{n:07}", name) for n, name in enumerate(NAMES, 1)]


def lines(template: str) -> Callable[[Pairs], str]:
    return lambda pairs: "".join(
        template.format(id=id, name=name, n=n) for n, (id, name) in enumerate(pairs)
    )


def rows_of(size: int, write: Callable[[Pairs], str]) -> Callable[[Pairs], str]:
    return lambda pairs: "".join(write(pairs[i : i + size]) for i in range(0, len(pairs), size))


LAYOUTS: dict[str, Callable[[Pairs], str]] = {
    **{name: lines(template) for name, template in cases(__file__, "layouts").items()},
    "list of pairs.md": rows_of(4, lambda p: ", ".join(f"{name}: {id}" for id, name in p) + "\n"),
    "two pairs.csv": rows_of(2, lambda p: ",".join(f'{id},"{name}"' for id, name in p) + "\n"),
    "turned.csv": rows_of(
        4,
        lambda p: f"name,{','.join(json.dumps(n) for _, n in p)}\nid,{','.join(i for i, _ in p)}\n",
    ),
    "table.md": lambda p: "| P | HPO | finding |\n|-|-|-|\n" + lines("|P{n}|{id}|{name}|\n")(p),
    "links.md": lambda p: lines("| {name} | [{id}](https://hpo.jax.org/browse/term/{id}) |\n")(p),
    "keys.json": lambda p: json.dumps({id: name for id, name in p}),
    "values.json": lambda p: json.dumps({name: id for id, name in p}),
    "lists.json": lambda p: json.dumps({"ids": [i for i, _ in p], "terms": [n for _, n in p]}),
    "split.json": lambda p: json.dumps({"data": [[4, id, "F", name] for id, name in p]}),
    "above.json": lambda p: json.dumps([{"label": n, "xref": {"hp": i}} for i, n in p]),
    "beside.json": lambda p: json.dumps([{"a": {"value": i}, "b": {"value": n}} for i, n in p]),
    "inside.json": lambda p: json.dumps({i: {"status": "ok", "label": n} for i, n in p}),
    "underscores.bed": lambda p: "".join(
        f"chr1\tID={i};AF=0.1;PHENO={n.replace(' ', '_')}\n" for i, n in p
    ),
    "turtle.ttl": lambda p: "".join(
        f'obo:{i.replace(":", "_")} a :Site ;\n  rdfs:label "{n}"@en .\n\n' for i, n in p
    ),
    "far above.md": lambda p: "".join(
        f"## {n}\n\n{'This is seen. ' * k}\n" + "- HPO\n" * (k % 3) + f"- code: {i}\n\n"
        for k, (i, n) in enumerate(p)
    ),
    "page.txt": lambda p: "".join(
        f"{i}\n{n}\n" + "Also as a word, with others\n" * (k % 2) + f"{k} genes\n\n"
        for k, (i, n) in enumerate(p)
    ),
    "wrapped.txt": lambda p: "".join(
        f"{n.replace(',', '').partition(' ')[0]:<20}{k}  {i}\n  {n.partition(' ')[2]}\n"
        for k, (i, n) in enumerate(p)
    ),
    "nested.json": lambda p: json.dumps([{"type": {"id": i, "label": n}, "n": 1} for i, n in p]),
}


@pytest.fixture(scope="module")
def checker(tmp_path_factory) -> Checker:
    concepts = [Concept(id, (name,)) for id, name in RIGHT]
    concepts.append(Concept("HP:0000013", ("Abnormality of glands",)))
    build_kb(concepts, kb := tmp_path_factory.mktemp("kb") / "hp")
    return Checker([kb])


@pytest.mark.parametrize("step", [0, 1, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(checker, tmp_path, layout, step):
    """The ids are right, or those of the name that is `step` further."""
    ids = [id for id, _ in RIGHT]
    pairs = [(id, name) for id, name in zip(ids[step:] + ids[:step], NAMES, strict=True)]
    (path := tmp_path / layout).write_text(LAYOUTS[layout](pairs))
    found = [checker.check(pair) for pair in read_pairs(path, checker.ids, values=checker.values)]
    expected = "other concept" if step else "agrees"
    shown = [(x.id, x.name.replace(",", ""), x.verdict.value) for x in found]
    assert sorted(row for row in shown if row[0].startswith("HP")) == [
        (id, name.replace(",", ""), expected) for id, name in sorted(pairs)
    ]


@pytest.mark.parametrize(("text", "name", "verdict"), cases(__file__, "single_lines"))
def test_single_lines(checker, text, name, verdict):
    first = checker.check_text(text)[0]
    assert (first.name, first.verdict.value) == (name, verdict)


@pytest.mark.parametrize("row", ["SIL1,{}", "{},PCS", "S1,{},A"])
def test_cells_that_are_no_names(checker, tmp_path, row):
    (path := tmp_path / "a.csv").write_text(
        "a,hpo_id,b\n".replace("a,", "gene,") + row.format("HP:0000002")
    )
    [pair] = read_pairs(path, checker.ids, values=checker.values)
    assert checker.check(pair).verdict.value == "exists"


def test_columns_that_the_user_chose(checker, tmp_path):
    """Also if another column has better names."""
    rows = "".join(f"{id},{name},note on {name}\n" for id, name in RIGHT)
    (path := tmp_path / "a.csv").write_text(
        f"id,finding,remark\n{rows}".replace("Myopia, high", "x")
    )
    chosen = {"id": "id", "name": "remark"}
    pairs = read_pairs(path, checker.ids, columns=chosen, values=checker.values)
    assert {pair.names[0].text.partition(" ")[0] for pair in pairs} == {"note"}


def test_prefixes_with_a_hyphen_or_a_space(checker):
    found = checker.check_text("SNOMED-CT:160903007, SNOMED CT 160903007 and HPO-ID: 0000002")
    assert [x.id for x in found] == ["SNOMED-CT:160903007", "SNOMED CT 160903007", "HP:0000002"]

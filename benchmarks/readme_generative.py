"""Tables of docs/generative.md, from benchmarks/results/generative.json and trie.json."""

from __future__ import annotations

from benchmarks.markdown import (
    CORPORA,
    Row,
    commands_note,
    in_order,
    mean_of,
    seeds_of,
    select,
    table,
)
from benchmarks.record import load

_SYSTEMS = {
    "generated": "written names alone",
    "strings": "strings alone, default weights",
    "both": "both, weighed on other folds",
}
_ABLATIONS = {
    "ablation: mentions": "as it is, trained on mentions alone",
    "ablation: random target": "a random name of the concept as target",
    "ablation: no prompt": "no prompt (but pre-trained with one)",
    "ablation: one name a concept": "one name a concept",
    "ablation: no pre-training": "no pre-training",
}
_SUBSETS = ("", "seen string", "unseen string")


def generative_table(rows: list[Row]) -> str:
    """Names that are written, evidence of strings, and both, on gold mentions."""
    first = select(rows, system="generated", corpus="ncbi_disease")
    return f"{_table(rows, _SYSTEMS)}\n\n{commands_note(first, 'generative')}"


def ablations_table(rows: list[Row]) -> str:
    """Trainings of few updates that differ in one thing, and the speed of the search."""
    trie = load("trie")[0]
    note = (
        f"The trie of {trie['names']:,} names takes {trie['built_s']:.0f} seconds and "
        f"{trie['built_extra_mb']:.0f} MB to make, and is opened in {1000 * trie['opened_s']:.0f} "
        f"ms. The search is {trie['times_as_fast']} times as fast as one with nested "
        f"dictionaries, one mention at a time and without a cache; the first name is the same for "
        f"{trie['same_best_name']} of {trie['mentions_of_reference']} mentions "
        f"(`{trie['command']}`)."
    )
    ablated = [row for row in rows if row["system"] in _ABLATIONS]
    return f"{_table(rows, _ABLATIONS)}\n\n{commands_note(ablated, 'generative')}\n\n{note}"


def _table(rows: list[Row], names: dict[str, str]) -> str:
    lines = []
    for corpus in in_order(CORPORA, rows, "corpus"):
        for system, name in names.items():
            found = select(rows, corpus=corpus, system=system, metric="recall@1")
            if not found:
                continue
            parts = [select(found, subset=subset) for subset in _SUBSETS]
            cells = map(mean_of, parts)
            lines.append([CORPORA.get(corpus, corpus), name, seeds_of(found), *cells])
    head = ["dev", "first candidate from", "seeds", "all: any id right, % (n)"]
    return table([*head, "string seen in training", "unseen string"], lines)

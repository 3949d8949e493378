"""Blocks of the README that no other page has: three results, the size of an installation, and
the addresses of links.
"""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from benchmarks.markdown import Row, seeds_of, select, table
from benchmarks.record import load

ROOT = Path(__file__).parents[1]
# Label of a link in README.md -> page of the repository.
LINKS = {
    "install": "docs/install.md",
    "starter": "docs/tutorials/starter.md",
    "ner": "docs/tutorials/starter.md#link-the-entities-of-your-ner",
    "ontology": "docs/tutorials/ontology.md",
    "corpus": "docs/tutorials/corpus.md",
    "transformer": "docs/tutorials/transformer.md",
    "scale": "docs/scale.md",
    "migration": "docs/migration.md",
    "results": "docs/results.md",
    "service": "docs/guides/service.md",
    "negation": "docs/guides/negation.md",
    "sharing": "docs/concepts/sharing.md",
    "evidence": "docs/concepts/evidence.md",
    "docs": "docs/",
    "settings": "docs/reference/settings.md",
    "cli": "docs/reference/cli.md",
    "codes": "docs/reference/error_codes.md",
    "glossary": "docs/glossary.md",
    "answers": "docs/answers.md",
    "changes": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "sources": "spacy_bioel/assets/SOURCES.md",
}


def address() -> str:
    """Beginning of each link: what `docs_url` of setup.cfg says, or "" for links inside the
    repository.

    A package index does not know the files of the repository, so its README needs the address.
    """
    setup = ConfigParser(delimiters=("=",))
    setup.read(ROOT / "setup.cfg", encoding="utf8")
    return setup.get("tool:readme", "address", fallback="")


def links_block() -> str:
    """Definitions of the links of the README."""
    base = address()
    return "\n".join(f"[{label}]: {base}{page}" for label, page in LINKS.items())


def front_table(starter: list[Row]) -> str:
    """Three results: the pipeline of the package, one trained on a corpus, and no training.

    starter (list[Row]): Of starter.json; the other files are read here.
    """
    wanted = {"protocol": "end_to_end", "metric": "f1"}
    ours = select(starter, system="light", corpus="bc5cdr", subset="", **wanted)
    given = {"protocol": "gold", "metric": "accuracy@1_nil_ignored"}
    trained = select(load("main_job"), system="rescnn", corpus="bc5cdr", **given)
    names = select(
        load("no_labels"), system="ours", corpus="hpo_dev", protocol="mention", metric="f1"
    )
    lines = [
        _line(
            "pipeline of the package, BC5CDR dev",
            "end to end: mentions and ids from bare text, strict F1",
            ours,
        ),
        _line(
            "trained on BC5CDR by `project run all`, dev",
            "mentions given; the first candidate has all ids right, accuracy@1, NIL ignored",
            trained,
        ),
        _line(
            "no training: names of HPO in 62 texts",
            "mentions and ids from bare text, strict F1",
            names,
        ),
    ]
    return table(["system and texts", "protocol", "n mentions", "seed", "%"], lines)


def _line(system: str, protocol: str, rows: list[Row]) -> list[str]:
    (row,) = rows
    interval = f" ({row['low']:.1f}-{row['high']:.1f})" if "low" in row else ""
    return [system, protocol, f"{row['n']:,}", seeds_of(rows), f"{row['value']:.1f}{interval}"]


def install_table(rows: list[Row]) -> str:
    """Megabytes on disk of the package with all that it needs, and of each extra."""
    sizes = {row["system"]: row["value"] for row in rows}
    columns = ["spacy-bioel with all that it needs"]
    columns += [f"extra `{extra}` adds" for extra in sizes if extra != "package"]
    return table(columns, [[f"{value:,.0f} MB" for value in sizes.values()]])

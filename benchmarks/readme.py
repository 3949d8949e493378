"""Write the tables and charts of README.md, CONTRIBUTING.md and docs/.

python -m benchmarks.readme
"""

import re
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

from benchmarks.charts import write_charts
from benchmarks.record import load
from benchmarks.tables import SPECS, Rows, install_table, linking_tables, render

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "spacy_bioel/assets/starter/README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
# Block -> result file and function that makes the table; other tables are in tables.yml.
_CODED_TABLES: dict[str, tuple[str, Callable[[Rows], str]]] = {
    "INSTALL SIZE": ("install_size", install_table),
    "LINKING": ("linking", linking_tables),
}
# Label of a link in README.md -> page of the repository.
LINKS = {
    "install": "docs/install.md",
    "starter": "docs/tutorials/starter.md",
    "ner": "docs/tutorials/starter.md#link-the-entities-of-your-ner",
    "ontology": "docs/tutorials/ontology.md",
    "corpus": "docs/tutorials/corpus.md",
    "transformer": "docs/tutorials/transformer.md",
    "scale": "docs/guides/scale.md",
    "migration": "docs/guides/migration.md",
    "results": "docs/results.md",
    "peers": "docs/results.md#compared-with-other-tools",
    "untrained": "docs/concepts/dictionary.md#how-good-it-is",
    "speed": "docs/results.md#speed",
    "accuracy": "docs/img/accuracy.svg",
    "service": "docs/guides/service.md",
    "negation": "docs/guides/negation.md",
    "sharing": "docs/concepts/sharing.md",
    "evidence": "docs/concepts/evidence.md",
    "docs": "docs/README.md",
    "settings": "docs/reference/settings.md",
    "cli": "docs/reference/cli.md",
    "codes": "docs/reference/error_codes.md",
    "glossary": "docs/concepts/glossary.md",
    "answers": "docs/guides/answers.md",
    "changes": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "sources": "spacy_bioel/assets/SOURCES.md",
}
# The first picture of README.md, made by benchmarks/screenshots.py.
_PICTURE = (
    '<picture><source media="(prefers-color-scheme: dark)" srcset="{base}docs/img/links-dark.png">'
    '<img src="{base}docs/img/links-light.png" alt="Texts with coloured mentions and their ids. '
    'The mention melanoma is selected; its candidates and their scores are next to the text.">'
    "</picture>"
)


def address() -> str:
    """Return the address before each link of the README; "" for links inside the repository.

    On a package index, links to files of the repository need its address.
    """
    setup = ConfigParser(delimiters=("=",))
    setup.read(ROOT / "setup.cfg", encoding="utf8")
    return setup.get("tool:readme", "address", fallback="")


def base_of(file: str) -> str:
    """Return the address before a file; for a picture, of the file itself instead of its page."""
    is_picture = file.endswith((".png", ".svg"))
    return address().replace("/blob/", "/raw/") if is_picture else address()


def block(name: str) -> str:
    """Return the current content of a block, from results and settings."""
    if name == "LINKS":
        return "\n".join(f"[{label}]: {base_of(page)}{page}" for label, page in LINKS.items())
    if name == "PICTURE":
        return _PICTURE.format(base=base_of("links.png"))
    if name in _CODED_TABLES:
        file, make = _CODED_TABLES[name]
        return make(load(file))
    spec = SPECS[name]
    return "\n\n".join(map(render, spec if isinstance(spec, list) else [spec]))


def write_block(text: str, name: str, content: str) -> str:
    """Return the text with new content between the comments NAME START and NAME END."""
    new = f"<!-- {name} START -->\n{content}\n<!-- {name} END -->"
    pattern = rf"<!-- {name} START -->.*?<!-- {name} END -->"
    return re.sub(pattern, lambda _: new, text, flags=re.DOTALL)


def filled(text: str) -> str:
    """Return a page with current tables."""
    for name in re.findall(r"<!-- ([A-Z ]+) START -->", text):
        if name in SPECS or name in _CODED_TABLES or name in ("LINKS", "PICTURE"):
            text = write_block(text, name, block(name))
    return text


if __name__ == "__main__":
    write_charts()
    for page in PAGES:
        page.write_text(filled(page.read_text("utf8")), encoding="utf8")

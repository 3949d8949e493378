"""Hooks of mkdocs.yml that add pages from outside docs/ and adapt links."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from benchmarks.notebook import markdown_of
from benchmarks.readme import base_of

ROOT = Path(__file__).parents[1]
# File of the repository -> page of the site; other files of docs/ keep their paths.
PAGES = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "spacy_bioel/assets/SOURCES.md": "sources.md",
    "training/assets/SOURCES.md": "sources_embedded.md",
    "docs/tutorials/notebook.ipynb": "tutorials/notebook.md",
}
_SOURCE_OF = {page: file for file, page in PAGES.items()}
# An inline link or picture, the definition of a link, and a picture in HTML.
_LINK = re.compile(
    r"(?<=\]\()(?P<target>[^)\s#]+)|(?<=^\[)(?P<label>[^\]]+\]: )(?P<url>[^\s#]+)"
    r"|(?P<attribute>\bsrc(?:set)?=\")(?P<file>[^\"]+)",
    re.M,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for file, page in PAGES.items():
        path = ROOT / file
        content = markdown_of(path) if path.suffix == ".ipynb" else path.read_text("utf8")
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    here = page.file.src_uri
    return with_links_of_the_site(markdown, source=_SOURCE_OF.get(here, f"docs/{here}"), page=here)


def with_links_of_the_site(text: str, *, source: str, page: str) -> str:
    """Return the text of a file with links between pages of the site.

    source (str): Path of the file in the repository.
    page (str): Path of its page in the site.
    """

    def moved(match: re.Match[str]) -> str:
        target = match["target"] or match["url"] or match["file"]
        target = target.removeprefix(base_of(target) or "\0")
        if re.match(r"[a-z]+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = PAGES.get(file, file.removeprefix("docs/"))
        relative = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"{match['label'] or match['attribute'] or ''}{relative}"

    return _LINK.sub(moved, text)

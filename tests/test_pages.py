"""Every page of the documentation and the README: blocks run as they stand, and print what the
page says. Blocks that cannot run say why.
"""

import contextlib
import importlib.util
import io
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import spacy
from tiny import is_installed

from spacy_bioel.cli import main
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.kb.build import Branches, build_kb

pytestmark = pytest.mark.pages

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))]
# Pages that are read, not run.
READ = [
    *PAGES,
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "spacy_bioel/assets/SOURCES.md",
    "spacy_bioel/assets/starter/README.md",
    "training/assets/SOURCES.md",
]
# The package that the project makes of the embedded corpus, and its pipeline.
PACKAGE, TRAINED = "en_core_link", ROOT / "models" / "embedded" / "final"
SLOW = ("docs/tutorials/own_label.md",)  # trains a pipeline
# Files that the README takes from elsewhere.
GIVEN = {
    "README.md": {
        "hp.obo": "format-version: 1.2\n\n[Term]\nid: HP:0000118\nname: Abnormality\n\n[Term]\n"
        "id: HP:0001250\nname: Seizure\nis_a: HP:0000118\n",
    }
}
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|needs): (?P<about>[^>]+) -->\n+)?"
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.M | re.S,
)


class Block(NamedTuple):
    """A fenced block: `title` is the file that it is, which other blocks of the page read; `reason`
    why it cannot be run here; `needs` a package without which it is left out; "": none.
    """

    language: str
    text: str
    title: str = ""
    reason: str = ""
    needs: str = ""
    line: int = 0

    @property
    def runs(self) -> bool:
        if self.reason or self.title:
            return False
        is_made = self.needs == PACKAGE and TRAINED.is_dir()
        if self.needs and not is_made and not is_installed(self.needs):
            return False
        # Commands of other programs (pip, python -m spacy) are for the reader, and not run here.
        is_ours = re.search(r"^(bioel|echo|cat) ", self.text, re.M)
        return self.language == "python" or bool(self.language == "bash" and is_ours)


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text("utf8")
    for match in BLOCK.finditer(text):
        marks = {match["mark"]: match["about"]}
        about = (match["title"] or "", marks.get("not run", ""), marks.get("needs", ""))
        line = text.count("\n", 0, match.start()) + 1
        yield Block(match["language"], match["text"], *about, line)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in PAGES],
)
def test_page(page, tmp_path, monkeypatch):
    """The blocks of a page run in their order, in one folder and one namespace. What a block prints
    has to be in the block of text after it.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # where Python looks first, of a reader
    if not importlib.util.find_spec(PACKAGE):
        load = spacy.load
        monkeypatch.setattr(spacy, "load", lambda name: load(TRAINED if name == PACKAGE else name))
    for name, text in GIVEN.get(page, {}).items():
        Path(name).write_text(text, encoding="utf8")
    names: dict[str, object] = {"__name__": "page"}
    for block, following in pairwise([*blocks(page), Block("", "")]):
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf8")
        if not block.runs:
            continue
        is_shown = following.language == "text" and not following.title
        expected = following.text if is_shown else "" if block.language == "python" else None
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf8", write_through=True)
        with contextlib.redirect_stdout(out):
            if block.language == "python":
                code = "\n" * block.line + block.text  # tracebacks have the lines of the page
                exec(compile(code, str(ROOT / page), "exec"), names)
            else:
                for line in block.text.replace("\\\n", "").splitlines():
                    run_line(line.partition(" #")[0].strip(), monkeypatch)
        out.seek(0)
        printed = out.read()
        assert expected in (None, printed), f"{page}, line {block.line} printed:\n{printed}"


def run_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one command: `bioel ...`, `echo TEXT | bioel ...` or `cat FILE`."""
    *before, command = line.split(" | ")
    for echo in before:
        text = " ".join(shlex.split(echo)[1:]) + "\n"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    program, *arguments = shlex.split(command)
    if program == "cat":
        print(Path(arguments[0]).read_text("utf8"), end="")
        return
    assert program == "bioel", line
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert not done.value.code, line


def test_pages_have_one_title():
    for page in PAGES:
        text = (ROOT / page).read_text("utf8")
        assert text.count("```") % 2 == 0, page
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        assert len(re.findall(r"^# ", prose, re.M)) == 1, page
    assert len((ROOT / "README.md").read_text("utf8").splitlines()) <= 150


def slugs(text: str) -> set[str]:
    """Anchors of a page, as code hosts make them of its headings, and those that it sets itself."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    anchors = set(re.findall(r'\bid="([^"]+)"', prose))
    counts: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", prose, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        n = counts[slug] = counts.get(slug, -1) + 1
        anchors.add(f"{slug}-{n}" if n else slug)
    return anchors


@pytest.mark.parametrize("page", READ)
def test_pages_can_be_read_in_the_repository(page):
    """A page has a text of its own, without the site, and its links lead somewhere."""
    text = (ROOT / page).read_text("utf8")
    assert not re.search(r"^:::|<!-- built:", text, re.M)
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)
    # A section without a line of its own is empty, unless smaller headings follow.
    sections = re.split(r"^(#+) .*$", re.sub(r"<!--.*?-->", "", text, flags=re.S), flags=re.M)
    levels = [len(marks) for marks in sections[1::2]]
    for level, content, following in zip(levels, sections[2::2], [*levels[1:], 0], strict=True):
        assert content.strip() or following > level, f"{page} has an empty section"
    pattern = r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)|\bsrc(?:set)?=\"([^\"]+)"
    broken = []
    for link in filter(None, map("".join, re.findall(pattern, prose, re.M))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (ROOT / page).parent / file if file else ROOT / page
        is_there = target.exists() and target.resolve().is_relative_to(ROOT)
        if is_there and target.is_dir():
            is_there = (target / "README.md").is_file()  # what a code host shows
        if is_there and anchor:
            is_there = anchor in slugs(target.read_text("utf8"))
        if not is_there:
            broken.append(link)
    assert broken == []


@pytest.mark.realdata
def test_ontology_page(data_folder, tmp_path, monkeypatch):
    page = (ROOT / "docs/concepts/dictionary.md").read_text("utf8")
    ((code, printed),) = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", page, re.DOTALL)
    concepts = read_ontology(data_folder / "names/obo/hp.obo.gz")
    build_kb(concepts, tmp_path / "kb/hp", branches=Branches(under=("HP:0000118",)))
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "docs/concepts/dictionary.md", "exec"), {})
    assert out.getvalue() == printed

"""Take pictures of the HTML pages for the documentation, and check their accessibility.

python -m benchmarks.run screenshots writes the pages, starts `bioel serve`, builds the
documentation, and opens each page in headless Chromium, in light and dark mode. Pictures go to
docs/img; findings of axe-core at three widths and of keyboard navigation, with digests of templates
and pictures, go to benchmarks/results/accessibility.json. Needs Chromium and the extra `look`.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import typer
from jinja2 import meta

from benchmarks.browser import (
    SCHEMES,
    WIDTHS,
    chromium,
    controls,
    is_too_wide,
    unreached,
    violations,
    watch,
)
from benchmarks.record import Row, question, rows_of
from spacy_bioel import load
from spacy_bioel.cli.console import show_note
from spacy_bioel.export.pages import PAGES as TEMPLATES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "spacy_bioel"
IMAGES = ROOT / "docs" / "img"
TEXT = (
    "Human BRAF V600E is common in melanoma, as in the cell line A375. "
    "Loss of mouse Pten did not change the effect of vemurafenib."
)
# Commands run this package, whatever is installed.
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
_MEGABYTES = 50  # of a large page of links
# Files that the commands read.
_FILES = {
    "example.txt": f"{TEXT}\n"
    "Acute kidney injury (AKI) was reported in two patients who took ibuprofen. "
    "AKI resolved after nausea had stopped.\n"
    "Zebrafish with Dravet syndrome had fewer seizures after fenfluramine.\n",
    "answer.md": "* Gaucher disease (MESH:D000795)\n* Fabry disease (MESH:D000795)\n"
    "* Angelman syndrome (MESH:D017204)\n* Wilson disease (MESH:D999999)\n",
    "patients/Ann/2023-05-02.txt": "PMH: seizures. No fever.\nMother had migraine.\n",
    "patients/Ann/2024-01-10.txt": "No seizures since May. Possible asthma. Headache.\n",
    "patients/Ann/2024-06-21.txt": "Asthma. Headache resolved. No migraine.\n",
}


class Shown(NamedTuple):
    """A page, as the documentation shows it.

    name (str): Of its file and its pictures.
    templates (str): What it is made from, relative to the package; templates that these include
        need not be listed. "": it has no picture.
    command (str): Arguments of `bioel` that write NAME.html, or pipeline/card.html.
    click (str): Element that is selected before the picture is taken.
    height (int): Of the picture, at most.
    """

    name: str
    templates: str = ""
    command: str = ""
    click: str = ""
    height: int = 760


PAGES = (
    Shown(
        "links",
        "templates/links.html",
        "link example.txt -o links.html",
        "mark:text('melanoma')",
        height=600,  # README.md begins with it
    ),
    Shown("explain", "templates/explain.html", f"explain '{TEXT}' --html explain.html"),
    Shown(
        "errors",
        "templates/errors.html",
        "evaluate starter dev.pubtator.txt --prefix MESH --annotates Disease --annotates Chemical"
        " --json scores.json --html errors.html",
        "a[href='#counts']",
    ),
    # After "errors", which writes the scores.
    Shown("card", "templates/card.html", "card pipeline scores.json --name small --replace", "svg"),
    Shown("check", "templates/table.html", "check answer.md --all -o check.html"),
    Shown(
        "corpus",
        "templates/report.html",
        "corpus check train.pubtator.txt dev.pubtator.txt --kb starter:mesh --prefix MESH"
        " --html corpus.html",
    ),
    Shown(
        "patient",
        "templates/patients.html templates/patient.html",
        "patient starter patients -o patient.html",
    ),
    Shown("service", "plugins/service/templates/service.html"),
    Shown("documentation"),
)


def digest_of(templates: str) -> str:
    """Return a digest of templates and of all that they include."""
    texts: dict[str, str] = {}
    left = templates.split()
    while left:
        name = left.pop()
        if name not in texts:
            texts[name] = (PACKAGE / name).read_text("utf8")
            folders = (Path(name).parent, Path("templates"))  # of a plugin, and of the engine
            for other in filter(None, meta.find_referenced_templates(TEMPLATES.parse(texts[name]))):
                places = (folder / other for folder in folders)
                left.append(next(str(p) for p in places if (PACKAGE / p).is_file()))
    names = sorted(texts, key=lambda name: Path(name).name)
    return sha256("".join(texts[name] for name in names).encode()).hexdigest()[:16]


def digests(page: Shown, scheme: str) -> dict[str, str]:
    """Return digests of what a picture was made from, and of its file."""
    picture = IMAGES / f"{page.name}-{scheme}.png"
    return {
        "templates": digest_of(page.templates),
        "picture": sha256(picture.read_bytes()).hexdigest()[:16],
    }


@question("accessibility")
def screenshots(
    path: str = typer.Option("", "--chromium", help="Path of Chromium; default: searched for."),
) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, chromium(path) as browser:
        with _addresses(Path(folder)) as addresses:
            for shown in PAGES:
                for scheme in SCHEMES:
                    page = browser.new_page(
                        viewport={"width": 1000, "height": 760}, color_scheme=scheme
                    )
                    errors, requests = watch(page)
                    page.goto(addresses[shown.name])
                    _use(page, shown)
                    if shown.templates:
                        _take(page, IMAGES / f"{shown.name}-{scheme}.png", shown.height)
                    found = _measure(page, f"{shown.name}, {scheme}")
                    own = addresses[shown.name].rpartition("/")[0]
                    found["other_requests"] = sum(
                        not u.startswith((own, "data:")) for u in requests
                    )
                    found["errors"] = len(errors)
                    about = digests(shown, scheme) if shown.templates else {}
                    yield from rows_of(shown.name, found, scheme=scheme, **about, n=1)
                    page.close()
            values = {f"seconds_for_{_MEGABYTES}_megabytes": _open_large(browser, Path(folder))}
            yield from rows_of("large page of links", values, digits=1, scheme="light", n=1)


@contextmanager
def _addresses(folder: Path) -> Iterator[dict[str, str]]:
    """Write all pages, and yield their addresses by name while the service runs."""
    for name, text in _FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf8")
    shutil.copytree(ROOT / "training/assets/corpus", folder, dirs_exist_ok=True)
    load().to_disk(folder / "pipeline")
    # Run in the folder, so that the pages do not show paths of this machine.
    for shown in PAGES:
        if shown.command:
            command = [sys.executable, "-m", "spacy_bioel", *shlex.split(shown.command)]
            done = subprocess.run(command, cwd=folder, env=_ENVIRONMENT, stdout=subprocess.DEVNULL)
            assert done.returncode in (0, 1), shown.command  # 1: `check` found something
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", f"{folder}/site"]
    subprocess.run(mkdocs, cwd=ROOT, check=True)
    addresses = {shown.name: (folder / f"{shown.name}.html").as_uri() for shown in PAGES}
    addresses["card"] = (folder / "pipeline" / "card.html").as_uri()
    addresses["documentation"] = (folder / "site" / "index.html").as_uri()
    with _service() as address:
        yield {**addresses, "service": address}


@contextmanager
def _service() -> Iterator[str]:
    command = [sys.executable, "-m", "spacy_bioel", "serve", "--port", "0"]
    with subprocess.Popen(command, env=_ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            address = address or (re.findall(r"http://[\d.:]+", line) or [""])[0]
            if "ready" in line.lower():
                break
        try:
            yield f"{address}/"
        finally:
            process.terminate()


def _open_large(browser: Any, folder: Path) -> float:
    """Return the seconds until a browser shows a page of links with many documents."""
    start, *documents, rest = re.split(
        r"(?m)(?=^<script)", (folder / "links.html").read_text("utf8")
    )
    n = 1_000_000 * _MEGABYTES // sum(len(text.encode()) for text in documents)
    path = folder / "large.html"
    path.write_text("".join([start, *documents * n, rest]), encoding="utf8")
    page = browser.new_page()
    began = perf_counter()
    page.goto(path.as_uri())
    page.get_by_text(f"of {n * len(documents):,} documents").wait_for()
    seconds = perf_counter() - began
    page.close()
    return seconds


def _use(page: Any, shown: Shown) -> None:
    if shown.name == "service":
        _use_service(page)
    elif shown.click:
        page.locator(shown.click).first.click()


def _use_service(page: Any) -> None:
    """Link a text and open its first candidates with the keyboard only."""
    page.locator("#limit").get_by_text("characters").wait_for()
    page.focus("#text")
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(TEXT)
    page.keyboard.press("Control+Enter")
    page.locator("#text-linked mark").first.press("Enter")
    page.locator("#concept h3").wait_for()


def _take(page: Any, picture: Path, height: int) -> None:
    """Take a picture of a page, without the empty space below it."""
    content = page.evaluate("document.body.getBoundingClientRect().bottom")
    page.set_viewport_size({"width": 1000, "height": min(height, round(content))})
    page.screenshot(path=picture)


def _measure(page: Any, name: str) -> dict[str, float]:
    """Count violations and overflow at all widths, and controls that Tab does not reach."""
    broken = wide = 0
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 760})
        wide += is_too_wide(page)
        for rule, impact, html in violations(page):
            broken += 1
            show_note(f"{name}, {width}: {rule} ({impact}): {html}")
    n = controls(page)
    missed = unreached(page)
    return {"violations": broken, "too_wide": wide, "controls": n, "unreached": len(missed)}

"""Take screenshots of the HTML pages, and check their accessibility.

python -m benchmarks.run screenshots links an example text, explains it, lists errors on the
embedded corpus, starts `bioel serve` and builds the documentation. Each page is opened in headless
Chromium, in light and dark mode. Screenshots go to docs/img, results of axe-core and of keyboard
navigation to benchmarks/results/accessibility.json. Needs Chromium and the extra `look`.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

from benchmarks.record import Row, question, rows_of
from spacy_bioel.cli.console import show_note

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "img"
SCHEMES = ("light", "dark")
TEXT = (
    "The BRAF V600E mutation is common in melanoma, as in the cell line A375. "
    "Mice were treated with vemurafenib."
)
_SERIOUS = {"serious", "critical"}
_SIZE = {"width": 1000, "height": 760}
_MAX_TABS = 400
# Number of focusable elements; and whether the focused one shows an outline.
_FOCUSABLE = """() => [...document.querySelectorAll(
  'a[href], button, input, textarea, select, summary, [tabindex="0"]')]
  .filter(e => !e.disabled && e.checkVisibility()).length"""
_OUTLINED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  if (!e.dataset.seen) e.dataset.seen = "yes";
  const style = getComputedStyle(e), after = document.querySelectorAll('[data-seen]').length;
  return [after, style.outlineStyle !== 'none' || style.boxShadow !== 'none'];
}"""


@question("accessibility")
def screenshots(
    chromium: str = typer.Option("", help="Path of Chromium; default: searched for."),
) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = chromium or next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        with _pages(Path(folder)) as pages:
            for name, address in pages:
                for scheme in SCHEMES:
                    page = browser.new_page(viewport=_SIZE, color_scheme=scheme)
                    page.goto(address)
                    yield from _look(page, name, scheme)
                    page.close()
        browser.close()


@contextmanager
def _pages(folder: Path) -> Iterator[list[tuple[str, str]]]:
    """Yield names and addresses of the pages while the service runs."""
    gold = "dev.pubtator.txt"
    shutil.copy(ROOT / "training/assets/corpus" / gold, folder)
    (folder / "example.txt").write_text(TEXT + "\n", encoding="utf8")
    labels = ("--annotates", "Disease", "--annotates", "Chemical")
    bioel = (sys.executable, "-m", "spacy_bioel")
    # Run in the folder, so that the pages do not show paths of this machine.
    _run(folder, *bioel, "link", "example.txt", "--html", "links.html", "-o", "links.json")
    _run(folder, *bioel, "explain", TEXT, "--html", "explain.html")
    errors = ("--prefix", "MESH", *labels, "--html", "errors.html")
    _run(folder, *bioel, "evaluate", "starter", gold, *errors)
    _run(ROOT, sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", f"{folder}/site")
    names = ("links", "explain", "errors")
    pages = [(name, (folder / f"{name}.html").as_uri()) for name in names]
    pages.append(("documentation", (folder / "site" / "index.html").as_uri()))
    with _service() as address:
        yield [*pages, ("service", address)]


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _service() -> Iterator[str]:
    command = [sys.executable, "-m", "spacy_bioel", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            address = address or (re.findall(r"http://[\d.:]+", line) or [""])[0]
            if "ready" in line.lower():
                break
        try:
            yield address
        finally:
            process.terminate()


def _look(page: Page, name: str, scheme: str) -> Iterator[Row]:
    """Take a screenshot of a page, and count accessibility problems and reachable elements."""
    if name == "service":
        _use_service(page)
    elif name in ("links", "explain"):
        page.locator("summary").evaluate_all("all => all.slice(0, 1).forEach(e => e.click())")
    IMAGES.mkdir(exist_ok=True)
    page.screenshot(path=IMAGES / f"{name}-{scheme}.png")
    found = Axe().run(page).response["violations"]
    serious = [rule for rule in found if rule["impact"] in _SERIOUS]
    for rule in serious:
        show_note(f"{name}, {scheme}: {rule['id']}: {rule['help']} ({len(rule['nodes'])})")
    reached, outlined, n = _tab_through(page)
    values = {
        "serious_violations": len(serious),
        "focusable": n,
        "reached_by_keyboard": reached,
        "with_visible_focus": outlined,
    }
    return rows_of(name, values, scheme=scheme, n=1)


def _use_service(page: Page) -> None:
    """Link a text and open its first candidates with the keyboard only."""
    page.locator("#limit").get_by_text("characters").wait_for()
    page.focus("#text")
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(TEXT)
    page.keyboard.press("Control+Enter")
    page.locator("#text-linked mark").first.press("Enter")
    page.locator("#concept h3").wait_for()


def _tab_through(page: Page) -> tuple[int, int, int]:
    """Return the numbers of elements that Tab reaches, with visible focus, and in all."""
    n = int(page.evaluate(_FOCUSABLE))
    page.evaluate("() => { document.activeElement.blur(); window.scrollTo(0, 0) }")
    reached = outlined = 0
    for _ in range(min(n, _MAX_TABS) + 2):
        page.keyboard.press("Tab")
        found = page.evaluate(_OUTLINED)
        if found is not None and found[0] > reached:
            reached, outlined = found[0], outlined + bool(found[1])
    return reached, outlined, n

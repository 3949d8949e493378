"""Open pages in headless Chromium, and list what is wrong with them.

Screenshots and tests use it. Needs Chromium and the extra `look`.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WIDTHS, SCHEMES = (320, 768, 1280), ("light", "dark")
# Elements that Tab must reach; arrows reach the other radio buttons of a group.
FOCUSABLE = (
    'a[href], button:enabled, input:not([type="radio"]:not(:checked)), textarea, select, summary, '
    '[tabindex="0"]'
)
_MOST_TABS = 600


@contextmanager
def chromium(path: str = "") -> Iterator[Any]:
    """Yield a browser. RAISES FileNotFoundError: Chromium is missing."""
    from playwright.sync_api import sync_playwright

    path = path or shutil.which("chromium") or shutil.which("google-chrome") or ""
    if not path:
        raise FileNotFoundError("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def watch(page: Any) -> tuple[list[str], list[str]]:
    """Return lists that fill with errors of a page's scripts, and with the page's requests."""
    errors: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.on("request", lambda request: requests.append(request.url))
    return errors, requests


def violations(page: Any) -> list[tuple[str, str, str]]:
    """Return rules of accessibility that a page violates: id, impact, and the first element."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(rule["id"], rule["impact"], rule["nodes"][0]["html"]) for rule in found]


def is_too_wide(page: Any) -> bool:
    content, window = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    return bool(content > window)


def controls(page: Any) -> int:
    """Return the number of visible elements that Tab must reach."""
    return len(page.evaluate(_LEFT))


def unreached(page: Any) -> list[str]:
    """Press Tab through a page; return controls that it does not reach, or without an outline."""
    page.evaluate("() => { document.activeElement.blur(); window.scrollTo(0, 0) }")
    for _ in range(min(_MOST_TABS, controls(page)) + 2):
        page.keyboard.press("Tab")
        page.evaluate(_SEE)
    return [html[:200] for html in page.evaluate(_LEFT)]


_SEE = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  const visible = style.outlineStyle !== "none" || style.boxShadow !== "none";
  e.dataset.seen = visible ? "yes" : "without outline";
}"""
_LEFT = f"""() => [...document.querySelectorAll('{FOCUSABLE}')]
  .filter(e => e.checkVisibility() && e.dataset.seen !== "yes").map(e => e.outerHTML)"""

"""Open pages in headless Chromium, at three widths, in light and dark mode."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

WIDTHS, SCHEMES = (320, 768, 1280), ("light", "dark")
# Elements that Tab must reach.
FOCUSABLE = 'a[href], button:enabled, input, textarea, select, summary, [tabindex="0"]'


@contextmanager
def chromium() -> Iterator:
    """Yield a browser; skip the test if Playwright or Chromium is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra `look` is missing")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("Chromium is missing")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def watch(page) -> tuple[list[str], list[str]]:
    """Return lists that fill with errors of a page's scripts, and with the page's requests."""
    errors, requests = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.on("request", lambda request: requests.append(request.url))
    return errors, requests


def check_page(browser, address: str, *, use=lambda page: None) -> None:
    """Check that a page works at every width and in both schemes.

    No script fails, nothing else is requested, no accessibility rule of axe is violated, nothing is
    wider than the page, and Tab reaches every control and shows where it is.

    use (Callable): Uses the page before it is checked, e.g. selects a mention.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for scheme in SCHEMES:
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            errors, requests = watch(page)
            page.goto(address)
            use(page)
            own = address.partition("#")[0].rpartition("/")[0]
            assert [url for url in requests if not url.startswith((own, "data:"))] == []
            assert errors == []
            violations = axe.run(page).response["violations"]
            found = [(rule["id"], rule["nodes"][0]["html"]) for rule in violations]
            assert found == [], (scheme, width, found)
            sizes = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            content, window = page.evaluate(sizes)
            assert content <= window, (scheme, width)
            page.close()
    page = browser.new_page()
    page.goto(address)
    use(page)
    check_keyboard(page)
    page.close()


def check_keyboard(page) -> None:
    """Check that Tab reaches each control, and that its focus is visible."""
    seen = """() => {
      const e = document.activeElement, style = getComputedStyle(e);
      e.dataset.seen = style.outlineStyle !== "none" ? "yes" : "without outline";
    }"""
    left = f"""() => [...document.querySelectorAll('{FOCUSABLE}')]
      .filter(e => e.checkVisibility() && e.dataset.seen !== "yes").map(e => e.outerHTML)"""
    page.evaluate("() => { document.activeElement.blur(); window.scrollTo(0, 0) }")
    for _ in range(min(600, len(page.evaluate(left))) + 2):
        page.keyboard.press("Tab")
        page.evaluate(seen)
    missed = [html[:200] for html in page.evaluate(left)]
    assert missed == [], missed

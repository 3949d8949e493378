"""Check pages in headless Chromium, at three widths, in light and dark mode."""

from contextlib import ExitStack, contextmanager

import pytest

from benchmarks import browser as browsers
from benchmarks.browser import SCHEMES, WIDTHS, is_too_wide, unreached, violations, watch


@contextmanager
def chromium():
    """Yield a browser; skip the test if Playwright or Chromium is missing."""
    pytest.importorskip("playwright.sync_api", reason="the extra `look` is missing")
    pytest.importorskip("axe_playwright_python", reason="the extra `look` is missing")
    with ExitStack() as stack:
        try:
            browser = stack.enter_context(browsers.chromium())
        except FileNotFoundError:
            pytest.skip("Chromium is missing")
        yield browser


def check_page(browser, address: str, *, use=lambda page: None) -> None:
    """Check that a page works at every width and in both schemes.

    No script fails, nothing else is requested, no accessibility rule of axe is violated, nothing is
    wider than the page, and Tab reaches every control and shows where it is.

    use (Callable): Uses the page before it is checked, e.g. selects a mention.
    """
    for scheme in SCHEMES:
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            errors, requests = watch(page)
            page.goto(address)
            use(page)
            own = address.partition("#")[0].rpartition("/")[0]
            assert [url for url in requests if not url.startswith((own, "data:"))] == []
            assert errors == []
            assert violations(page) == [], (scheme, width)
            assert not is_too_wide(page), (scheme, width)
            page.close()
    page = browser.new_page()
    page.goto(address)
    use(page)
    check_keyboard(page)
    page.close()


def check_keyboard(page) -> None:
    """Check that Tab reaches each control, and that its focus is visible."""
    assert unreached(page) == []

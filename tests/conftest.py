"""Options and markers that the whole test suite shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow; run with --slow"))
        if item.get_closest_marker("realdata") and (reason := _no_data()):
            item.add_marker(pytest.mark.skip(reason=reason))


def _no_data() -> str:
    """Why the tests on real corpora cannot run; "" if they can."""
    folder = os.environ.get("BIOEL_DATA", "")
    if not folder:
        return "needs real corpora: set BIOEL_DATA to the folder where they lie"
    return "" if Path(folder).is_dir() else f"BIOEL_DATA is {folder}, which is no folder"


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with real corpora, for tests marked realdata."""
    return Path(os.environ["BIOEL_DATA"])

"""Disk that an installation takes: `python -m benchmarks.run install_size`.

Adds up the installed files of the package and of all that it requires, and what each extra adds.
Run it where all extras are installed; an extra of which a package is missing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks.record import measurement, save

PACKAGE = Path(__file__).parents[1] / "spacy_bioel"
EXTRAS = ("train", "transformers", "ann", "parquet", "serve", "plot")


def required(name: str, extra: str = "") -> Iterator[str]:
    """Names of the packages that a package, or one of its extras, asks for on this machine."""
    for line in distribution(name).requires or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield re.sub(r"[-_.]+", "-", requirement.name).lower()


def closure(name: str, extra: str = "") -> set[str]:
    """All packages that are installed with one.

    RAISES PackageNotFoundError: If one of them is not installed here.
    """
    found: set[str] = set()
    waiting = list(required(name, extra))
    while waiting:
        package = waiting.pop()
        if package not in found:
            found.add(package)
            waiting.extend(required(package))
    return found


def size(one: Distribution) -> int:
    """Bytes of the installed files."""
    return sum(file.size or 0 for file in one.files or [])


def main() -> None:
    package = closure("spacy-bioel")
    own = sum(f.stat().st_size for f in PACKAGE.rglob("*") if f.is_file())
    parts = {"package": (own, package)}
    for extra in EXTRAS:
        try:
            parts[extra] = (0, closure("spacy-bioel", extra) - package)
        except PackageNotFoundError as missing:
            print(f"{extra}: {missing} is not installed, left out")
    rows = [
        measurement(
            "install_size",
            system,
            metric="megabytes",
            value=round((bytes_ + sum(size(distribution(name)) for name in names)) / 1e6),
        )
        for system, (bytes_, names) in parts.items()
    ]
    print(save("install_size", rows))


if __name__ == "__main__":
    main()

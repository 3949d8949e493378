"""Find files in folders, and download those that have an address in project.yml."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import srsly

from spacy_bioel.cli.console import show_note
from spacy_bioel.errors import BioelError
from spacy_bioel.files import replacing_file

Spec = dict[str, Any]

DOWNLOADS = Path("assets") / "downloads"

MISSING = (
    "[T002] {file} was not found in {folders}, and {reason}. Put the file into a folder and "
    "specify that: --vars.data FOLDER."
)


@cache
def parse_yaml(text: str) -> Any:
    """Parse YAML, once for each text, since that takes half a second. The result is shared."""
    return srsly.yaml_loads(text)


class Finder:
    """Finder of files by name, in some folders or at the addresses of project.yml."""

    def __init__(self, folders: Iterable[Path], *, may_download: bool) -> None:
        self.folders = list(folders)
        self.may_download = may_download
        self.urls: dict[str, str] = {}
        if may_download:
            project = parse_yaml(Path("project.yml").read_text(encoding="utf8"))
            for asset in project.get("assets", []):
                self.urls[Path(asset["dest"]).name] = asset["url"]

    def find(self, pattern: str) -> Path | None:
        """Return the file that matches; of several the last name, which is the latest release."""
        for folder in self.folders:
            if files := _files_below(folder, pattern):
                return max(files, key=lambda path: (path.name, str(path)))
        return None

    def find_all(self, pattern: str) -> list[Path]:
        """Return all files that match.

        pattern (str): A name, or the end of a path: "stratified_general/train.csv".
        """
        return [path for folder in self.folders for path in _files_below(folder, pattern)]

    def choose(self, choices: list[list[Spec]]) -> list[tuple[Spec, Path]]:
        """Return the files of the first choice that is complete here, or else can be downloaded.

        RAISES BioelError: [T002] if none is, on the choice with the fewest missing files.
        """
        for files in choices:
            found = [(file, self.find(file["file"])) for file in files]
            if all(path or file.get("optional") for file, path in found):
                return [(file, path) for file, path in found if path]
        needed = [[file for file in files if not file.get("optional")] for files in choices]
        missing = [sum(not self._has(file) for file in files) for files in needed]
        if min(missing):
            needed, missing = needed[::-1], missing[::-1]  # on a tie, the last choice is public
        return [(file, self.download(file)) for file in needed[missing.index(min(missing))]]

    def _has(self, file: Spec) -> bool:
        """Tell whether a file, or its archive, is here or has an address."""
        archive = archive_of(file)
        return archive in self.urls or bool(self.find(file["file"]) or self.find(archive))

    def download(self, file: Spec) -> Path:
        """Find or download a file. RAISES BioelError: [T002] with the reason for a failure."""
        name, archive = file["file"], archive_of(file)
        folders = ", ".join(map(str, self.folders))
        reason = "there is no address to download it from"
        if not self.may_download:
            reason = "files are not downloaded when a folder is specified"
        try:
            path = self.find(name)
            if path is None and (packed := self.find(archive) or self._from_url(archive)):
                if packed.suffix == ".zip":
                    shutil.unpack_archive(packed, DOWNLOADS / packed.stem)
                reason = f"{packed} does not contain it"
                path = self.find(name)
        except (OSError, HTTPException, shutil.ReadError) as error:
            reason = f"{self.urls.get(archive, archive)} failed ({error})"
            raise BioelError(MISSING.format(file=name, folders=folders, reason=reason)) from error
        if path is None:
            raise BioelError(MISSING.format(file=name, folders=folders, reason=reason))
        return path

    def _from_url(self, name: str) -> Path | None:
        if name not in self.urls:
            return None
        show_note(f"Downloading {self.urls[name]}")
        return download(self.urls[name], DOWNLOADS / name)


def _files_below(folder: Path, pattern: str) -> list[Path]:
    """Return files, and BRAT folders, each of which is one corpus."""
    paths = [path for path in folder.rglob("*") if path.match(pattern)]
    return [path for path in paths if path.is_file() or any(path.glob("*.ann"))]


def archive_of(file: Spec) -> str:
    """Return the name of the asset of project.yml that is or contains a file."""
    return file.get("archive", file["file"])


def download(url: str, path: Path) -> Path:
    """Download to a temporary name, and rename the file when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    request = Request(url, headers={"User-Agent": "spacy-bioel"})
    with (
        replacing_file(path) as temporary,
        urlopen(request, timeout=60) as response,
        temporary.open("wb") as file,
    ):
        shutil.copyfileobj(response, file)
        expected, n_bytes = response.headers.get("Content-Length"), file.tell()
        if expected is not None and int(expected) != n_bytes:
            raise OSError(f"{n_bytes} of {expected} bytes arrived")
    return path

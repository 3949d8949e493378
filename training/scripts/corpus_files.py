"""Find files below folders, and download those that project.yml has an address for."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
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
    "[T002] {file} is not below {folders}, and {reason}. Put it into a folder and name that: "
    "--vars.data FOLDER."
)


class Finder:
    """Finds files by name, below some folders or behind the addresses of project.yml."""

    def __init__(self, folders: Iterable[Path], *, may_download: bool) -> None:
        self.folders = list(folders)
        self.may_download = may_download
        self.urls: dict[str, str] = {}
        if may_download:
            for asset in srsly.read_yaml("project.yml").get("assets", []):
                self.urls[Path(asset["dest"]).name] = asset["url"]

    def find(self, pattern: str) -> Path | None:
        """The file of that name; of several names the last, which is the latest release."""
        for folder in self.folders:
            if files := _files_below(folder, pattern):
                return max(files, key=lambda path: (path.name, str(path)))
        return None

    def find_all(self, pattern: str) -> list[Path]:
        """All files of that name.

        pattern (str): A name, or the end of a path: "stratified_general/train.csv".
        """
        return [path for folder in self.folders for path in _files_below(folder, pattern)]

    def choose(self, choices: list[list[Spec]]) -> list[tuple[Spec, Path]]:
        """The files of the first choice that is complete here, or else can be downloaded.

        RAISES BioelError: [T002] when neither is so, about the choice of which most is here.
        """
        for files in choices:
            found = [(file, self.find(file["file"])) for file in files]
            if all(path or file.get("optional") for file, path in found):
                return [(file, path) for file, path in found if path]
        needed = [[file for file in files if not file.get("optional")] for files in choices]
        missing = [sum(not self._has(file) for file in files) for files in needed]
        if min(missing):
            needed, missing = needed[::-1], missing[::-1]  # of equals, the last is for the public
        return [(file, self.download(file)) for file in needed[missing.index(min(missing))]]

    def _has(self, file: Spec) -> bool:
        """Whether a file, or what contains it, is here or has an address."""
        archive = archive_of(file)
        return archive in self.urls or bool(self.find(file["file"]) or self.find(archive))

    def download(self, file: Spec) -> Path:
        """RAISES BioelError: [T002] with the reason why there is no such file."""
        name, archive = file["file"], archive_of(file)
        folders = ", ".join(map(str, self.folders))
        reason = "there is no address to download it from"
        if not self.may_download:
            reason = "with a folder given it is not downloaded"
        try:
            path = self.find(name)
            if path is None and (packed := self.find(archive) or self._from_url(archive)):
                if packed.suffix == ".zip":
                    shutil.unpack_archive(packed, DOWNLOADS / packed.stem)
                reason = f"{packed} does not contain it"
                path = self.find(name)
        except (OSError, HTTPException, shutil.ReadError) as error:
            reason = f"{self.urls.get(archive, archive)} fails ({error})"
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
    """Files, and folders of BRAT, which are one corpus."""
    found = [path for path in folder.rglob("*") if path.match(pattern)]
    return [path for path in found if path.is_file() or any(path.glob("*.ann"))]


def archive_of(file: Spec) -> str:
    """The asset of project.yml that is or contains a file."""
    return file.get("archive", file["file"])


def download(url: str, path: Path) -> Path:
    """Download to a temporary name, and rename when all of it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    request = Request(url, headers={"User-Agent": "spacy-bioel"})
    with (
        replacing_file(path) as temporary,
        urlopen(request, timeout=60) as response,
        temporary.open("wb") as file,
    ):
        shutil.copyfileobj(response, file)
        expected, found = response.headers.get("Content-Length"), file.tell()
        if expected is not None and int(expected) != found:
            raise OSError(f"{found} of {expected} bytes arrived")
    return path

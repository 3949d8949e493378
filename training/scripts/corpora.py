"""The corpora of `training/corpora.yml`: find or download them, convert them, build their KB.

Keys of a corpus there: `splits` and `kb.choices` list alternatives, of which the first is taken
whose files are all found. A file has a name pattern (`file`), the asset of project.yml that is or
contains it (`archive`, if not the file itself), the ids of the documents to keep (`ids`), the
`columns` of a table. `labels` renames mention labels, `prefix` is for ids that name no vocabulary,
`label_types` and `settings` are for `train.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any
from urllib.request import Request, urlopen

import srsly
import typer

from spacy_bioel.cli.console import show_error, show_note
from spacy_bioel.cli.convert import convert as convert_corpus
from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_corpus, read_ontology
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.io.open import numbered_lines
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.columns import replacing_folder
from spacy_bioel.types import AnnotatedText, Concept

Spec = dict[str, Any]

CORPORA = Path(__file__).parents[1] / "corpora.yml"
ASSETS = Path("assets")
DOWNLOADS = ASSETS / "downloads"
SPLITS = ("train", "dev", "test")

UNKNOWN = "[T001] There is no corpus '{corpus}' in {path}. Choose from: {known}."
MISSING = (
    "[T002] {file} is not below {folders}, and {reason}. Put it into a folder and name that: "
    "--vars.data FOLDER."
)
NO_SPLIT = (
    "[T003] There is no {split} split in {folder}. Run the step fetch; if the corpus comes "
    "without it, it cannot be used."
)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def load_spec(corpus: str) -> Spec:
    """The entry of a corpus. RAISES BioelError: [T001] when there is none."""
    specs = srsly.read_yaml(CORPORA)
    if corpus not in specs:
        known = ", ".join(specs)
        raise BioelError(UNKNOWN.format(corpus=corpus, path=CORPORA, known=known))
    return specs[corpus]


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
            found = [path for path in folder.rglob("*") if fnmatch(path.name, pattern)]
            if files := [path for path in found if path.is_file()]:
                return max(files, key=lambda path: (path.name, str(path)))
        return None

    def choose(self, choices: list[list[Spec]]) -> list[tuple[Spec, Path]]:
        """The files of the first choice that is complete here, or else can be downloaded.

        RAISES BioelError: [T002] when neither is so, about the last choice.
        """
        for files in choices:
            found = [(file, self.find(file["file"])) for file in files]
            if all(path or file.get("optional") for file, path in found):
                return [(file, path) for file, path in found if path]
        for files in choices[:-1]:
            if all(_archive(file) in self.urls for file in files):
                return [(file, self.download(file)) for file in files]
        return [(file, self.download(file)) for file in choices[-1]]

    def download(self, file: Spec) -> Path:
        """RAISES BioelError: [T002] with the reason why there is no such file."""
        name, archive = file["file"], _archive(file)
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


def _archive(file: Spec) -> str:
    return file.get("archive", file["file"])


def download(url: str, path: Path) -> Path:
    """Download to a temporary name, and rename when all of it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        request = Request(url, headers={"User-Agent": "spacy-bioel"})
        with urlopen(request, timeout=60) as response, temporary.open("wb") as file:
            shutil.copyfileobj(response, file)
            expected, found = response.headers.get("Content-Length"), file.tell()
            if expected is not None and int(expected) != found:
                raise OSError(f"{found} of {expected} bytes arrived")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


@app.command()
def fetch(corpus: str, data: Annotated[str, typer.Option()] = "") -> None:
    """Place the splits of a corpus and the sources of its KB in assets/CORPUS."""
    spec, target = load_spec(corpus), ASSETS / corpus
    folder = spec.get("folder", data)
    if not folder and target.is_dir() and all(path.exists() for path in target.rglob("*")):
        show_note(f"{target} is complete.")
        return
    if folder and not Path(folder).is_dir():
        raise BioelError(
            MISSING.format(file=corpus, folders=folder, reason="there is no such folder")
        )
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    folders = [Path(folder)] * bool(folder) + [DOWNLOADS]
    finder = Finder(folders, may_download=True)
    # A folder that was given is all there is of the test documents: often they are kept elsewhere.
    test_finder = Finder(folders, may_download=not folder)
    with replacing_folder(target) as staging:
        for split in SPLITS:
            choices = [[choice, *_ids_file(choice)] for choice in spec["splits"][split]]
            try:
                files = (test_finder if split == "test" else finder).choose(choices)
            except BioelError as error:
                if split != "test":
                    raise
                show_note(f"Without the test split: {error}")
                continue
            place_split(files, staging, split, spec=spec)
        (staging / "kb").mkdir()
        if spec["kb"]["choices"]:
            for _, path in finder.choose([choice["files"] for choice in spec["kb"]["choices"]]):
                link_or_copy(path, staging / "kb" / path.name)
    placed = sorted(p.relative_to(target) for p in target.rglob("*") if p.is_file())
    show_note(f"{target}: {', '.join(map(str, placed))}")


def _ids_file(choice: Spec) -> list[Spec]:
    return [{"file": choice["ids"]}] if "ids" in choice else []


def place_split(files: list[tuple[Spec, Path]], folder: Path, split: str, *, spec: Spec) -> None:
    """Link to the file, or write what it says to JSON lines where ids or labels have a say.

    files (list): The corpus, and the ids of its documents if it holds several splits.
    """
    path = files[0][1]
    labels = spec.get("labels", {})
    if not labels and len(files) == 1:
        link_or_copy(path, folder / f"{split}.{path.name.partition('.')[2]}")
        return
    ids = None if len(files) == 1 else {line.strip() for _, line in numbered_lines(files[1][1])}
    texts = read_corpus(path, prefix=spec["prefix"])
    write_texts_jsonl(folder / f"{split}.jsonl", _selected(texts, ids, labels))


def _selected(
    texts: Iterable[AnnotatedText], ids: Collection[str] | None, labels: dict[str, str]
) -> Iterator[AnnotatedText]:
    for text in texts:
        if ids is None or text.id in ids:
            mentions = (replace(m, label=labels.get(m.label, m.label)) for m in text.mentions)
            yield replace(text, mentions=tuple(mentions))


def link_or_copy(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:  # Windows, unless the user may
        shutil.copyfile(source, target)


@app.command()
def convert(corpus: str, split: str) -> None:
    """Convert a split: train for training, test for measuring, dev for both."""
    source, prefix = find_split(corpus, split), load_spec(corpus)["prefix"]
    if split != "test":
        convert_corpus(source, Path("corpus") / corpus / f"{split}.spacy", prefix=prefix)
    if split != "train":
        convert_corpus(source, Path("corpus") / corpus / f"{split}.jsonl", prefix=prefix)


def find_split(corpus: str, split: str) -> Path:
    """RAISES BioelError: [T003] when it was not fetched."""
    files = sorted((ASSETS / corpus).glob(f"{split}.*"))
    if not files:
        raise BioelError(NO_SPLIT.format(split=split, folder=ASSETS / corpus))
    return files[0]


@app.command()
def kb(corpus: str, umls: Annotated[str, typer.Option()] = "") -> None:
    """Build kb/CORPUS from the sources in assets/CORPUS/kb."""
    spec = load_spec(corpus)
    about = {key: spec["kb"].get(key, "") for key in ("source", "release", "licence")}
    if spec["kb"]["choices"]:
        concepts, types = read_sources(ASSETS / corpus / "kb", spec)
    elif umls:
        concepts, types = read_ontology(umls, format="umls"), None
    else:
        concepts = concepts_of_mentions(
            read_corpus(find_split(corpus, "train"), prefix=spec["prefix"])
        )
        types, about["source"] = None, "mentions of the training documents"
        show_note("Without --vars.umls, the concepts are those of the training documents.")
    report = build_kb(concepts, Path("kb") / corpus, types=types, **about)
    show_note(f"kb/{corpus}: {report.concepts:,} concepts, {report.names:,} names.")


def read_sources(folder: Path, spec: Spec) -> tuple[Iterator[Concept], list[str] | None]:
    """The concepts of the choice whose files are there, and the types to keep (None: all)."""
    choices = spec["kb"]["choices"]
    found = Finder([folder], may_download=False).choose([choice["files"] for choice in choices])
    chosen = next(choice for choice in choices if found[0][0] in choice["files"])

    def read() -> Iterator[Concept]:
        for file, path in found:
            yield from read_ontology(path, prefix=spec["prefix"], columns=file.get("columns"))

    return read(), chosen.get("types")


def concepts_of_mentions(texts: Iterable[AnnotatedText]) -> Iterator[Concept]:
    """A concept for each id, named and typed as the mentions that have no other id are."""
    for text in texts:
        for mention in text.mentions:
            if len(mention.ids) == 1:
                name = text.text[mention.start : mention.end]
                yield Concept(mention.ids[0], (name,), types=(mention.label,))


def main() -> None:
    """Run a command. Exits with status 2 and one line on stderr when something is missing."""
    try:
        app()
    except BioelError as error:
        show_error(str(error))
        sys.exit(2)


if __name__ == "__main__":
    main()

"""Whether a saved pipeline or a knowledge base is as it was saved: every byte is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.layout import has_columns
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.stored import verify_vectors
from spacy_bioel.kb.words.trie import verify_tries
from spacy_bioel.pipeline.loading import load_model
from spacy_bioel.pipeline.stored_pipe import CFG, MANIFEST, SavedFiles


@dataclass(frozen=True)
class Verification:
    """What was found in each folder.

    whole (list[str]): All files are as they were saved; of the pipeline itself: it loads.
    without (list[str]): Pipes of earlier versions, which wrote no manifest to compare with.
    failed (dict[str, str]): Folder -> the first thing that is wrong.
    """

    whole: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def _add(self, folder: Path, check: Callable[[Path], bool]) -> None:
        try:
            (self.whole if check(folder) else self.without).append(str(folder))
        except BioelError as error:
            self.failed[str(folder)] = str(error)


def verify(path: Path) -> Verification:
    """Compare what is saved in a folder with its digests, to the last byte.

    Of a pipeline its pipes of this package and their knowledge bases; the rest of it, which has no
    digests, is only loaded.

    path (Path): Folder of a pipeline or of a knowledge base.
    RAISES BioelError: [B468] when it is neither.
    """
    found = Verification()
    pipes = sorted({file.parent for name in (CFG, MANIFEST) for file in path.glob(f"*/{name}")})
    if pipes or (path / "config.cfg").is_file():
        for pipe in pipes:
            found._add(pipe, _verify_pipe)
            for kb in sorted(home for home in pipe.iterdir() if has_columns(home)):
                found._add(kb, _verify_folder)
        if not found.failed:
            found._add(path, _load)
    elif has_columns(path):
        found._add(path, _verify_folder)
    else:
        raise BioelError(Errors.B468.format(path=path))
    return found


def verify_kb(kb: KnowledgeBase) -> None:
    """Read columns, vectors and tries, and compare checksums.

    RAISES BioelError: With the first file that differs, or is missing.
    """
    kb.verify()
    verify_vectors(kb)
    verify_tries(kb)


def _verify_folder(folder: Path) -> bool:
    verify_kb(KnowledgeBase.open(folder))
    return True


def _verify_pipe(folder: Path) -> bool:
    files = SavedFiles(folder, whole=True)
    for name in files.manifest or ():
        files.read(name)
    return files.manifest is not None


def _load(path: Path) -> bool:
    load_model(str(path))
    return True

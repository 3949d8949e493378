"""BRAT standoff: a document is a pair of files, NAME.txt with the text, NAME.ann with mentions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.io.open import Place, StrPath, check_words, numbered_lines, open_text, split_ids
from spacy_bioel.types import AnnotatedText, Mention

# Entities and normalisations are read; relations, attributes and notes are not, and of events only
# which lines T are their triggers.
_IGNORED = re.compile(r"(?:[RMA]\w+|\*|#\w*)\t")
_PLACE = "[0-9]{1,15} [0-9]{1,15}"
_ENTITY = re.compile(
    rf"(?P<key>T\w+)\t(?P<label>[^\t ]+) (?P<places>{_PLACE}(?:;{_PLACE})*)\t(?P<words>.+)", re.S
)
_REFERENCE = re.compile(r"N\w+\t\s*Reference\s+(\S+)\s+(\S+)\s*(?:\t.*)?", re.S)
_TRIGGER = re.compile(r"E\w+\t[^\s:]+:(T\w+)(?: .*)?")
_N_SHOWN = 3  # file names in a warning


def read_brat(
    path: StrPath, *, prefix: str = "", annotations: bool = True
) -> Iterator[AnnotatedText]:
    """Stream BRAT documents: one pair of files, or all pairs in a folder.

    Lines "T1<tab>Disease 0 5;16 23<tab>words" are mentions, with fragments if they have several
    offsets. Lines "N1<tab>Reference T1 MESH:D003920<tab>name" are their ids, in the order of the
    file. Triggers of events are no mentions; relations, attributes and notes are skipped. Texts
    without an .ann file are left out, with a warning [W301].

    path (str | PathLike): The .ann file, the .txt file beside it, or a folder with pairs.
    annotations (bool): Whether to read the mentions; False also skips their checks.
    YIELDS (AnnotatedText): The id is the name of the file without extension.
    """
    for text_path, annotation_path in _pairs(Path(path)):
        text = ""
        if text_path.stat().st_size:  # one document without a text is no reason to refuse a folder
            with open_text(text_path) as file:
                text = file.read()
        # BRAT writes an empty file for a text without mentions.
        is_read = annotations and annotation_path.stat().st_size
        mentions = _read_mentions(annotation_path, text, prefix) if is_read else ()
        yield AnnotatedText(text_path.stem, text, tuple(mentions))


def is_brat(path: StrPath) -> bool:
    """Return whether a path is an .ann file, a .txt file beside one, or a folder with one."""
    path = Path(path)
    if path.is_dir():
        return any(path.glob("*.ann"))
    return path.suffix == ".ann" or (path.suffix == ".txt" and path.with_suffix(".ann").is_file())


def _pairs(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the paths of the text and the annotations of each document."""
    names = {path.with_suffix("")}
    if path.is_dir():
        names = {file.with_suffix("") for file in path.iterdir() if file.suffix == ".ann"}
        alone = sorted(file.name for file in path.iterdir() if file.suffix == ".txt")
        alone = [name for name in alone if path / name.removesuffix(".txt") not in names]
        if alone:
            first = ", ".join(alone[:_N_SHOWN])
            LOGGER.warning(Warnings.W301.format(path=path, n=len(alone), first=first))
    if not names:
        raise BioelError(Errors.B263.format(path=path, missing="*.ann"))
    for name in sorted(names):
        pair = name.with_name(f"{name.name}.txt"), name.with_name(f"{name.name}.ann")
        for file in pair:
            if not file.is_file():
                raise BioelError(Errors.B263.format(path=path, missing=file))
        yield pair


def _read_mentions(path: Path, text: str, prefix: str) -> list[Mention]:
    mentions: dict[str, Mention] = {}
    ids: list[tuple[Place, str, str]] = []
    triggers: set[str] = set()
    for where, line in numbered_lines(path):
        if found := _ENTITY.fullmatch(line):
            if found["key"] in mentions:
                raise BioelError(Errors.B340.format(where=where, key=found["key"]))
            mentions[found["key"]] = _mention(where, found, text)
        elif found := _REFERENCE.fullmatch(line):
            ids.append((where, found[1], found[2]))
        elif found := _TRIGGER.fullmatch(line):
            triggers.add(found[1])
        elif line.strip() and not _IGNORED.match(line):
            raise BioelError(Errors.B264.format(where=where, row=line[:60]))
    for where, key, raw in ids:
        if key[0] != "T":  # events have ids too
            continue
        if key not in mentions:
            raise BioelError(Errors.B265.format(where=where, key=key))
        merged = dict.fromkeys([*mentions[key].ids, *split_ids(raw, prefix)])
        mentions[key] = replace(mentions[key], ids=tuple(merged))
    return [mention for key, mention in mentions.items() if key not in triggers]


def _mention(where: Place, found: re.Match[str], text: str) -> Mention:
    pairs = (place.split(" ") for place in found["places"].split(";"))
    fragments = tuple(sorted((int(start), int(end)) for start, end in pairs))
    check_words(text, fragments, found["words"], where=where)
    start, end = fragments[0][0], max(end for _, end in fragments)
    return Mention(start, end, found["label"], (), fragments if len(fragments) > 1 else ())

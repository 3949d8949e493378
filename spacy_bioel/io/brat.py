"""BRAT standoff: a document is a pair of files, NAME.txt with the text, NAME.ann with mentions."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.io.open import numbered_lines, open_text
from spacy_bioel.io.records import check_offsets, check_surface, split_ids
from spacy_bioel.types import AnnotatedText, Mention

_TEXT, _ANNOTATIONS = ".txt", ".ann"
# Entities and normalisations are read; relations, attributes and notes are not, and of events only
# which lines T are their triggers.
_LINE = re.compile(r"(?:[TNREMA]\w+|\*|#\w*)\t")
_TRIGGER = re.compile(r"E\w+\t[^\s:]+:(T\w+)(?: .*)?")
_OFFSETS = re.compile(r"[0-9]{1,15} [0-9]{1,15}(?:;[0-9]{1,15} [0-9]{1,15})*")
_N_SHOWN = 3  # file names in a warning
_LOGGER = logging.getLogger(__name__)
_Fragments = tuple[tuple[int, int], ...]


def read_brat(
    path: str | os.PathLike[str], *, prefix: str = "", annotations: bool = True
) -> Iterator[AnnotatedText]:
    """Stream BRAT documents: one pair of files, or all pairs in a folder.

    Lines "T1<tab>Disease 0 5;16 23<tab>words" are mentions, with fragments if they have several
    offsets. Lines "N1<tab>Reference T1 MESH:D003920<tab>name" are their ids, in the order of the
    file. Triggers of events are no mentions; relations, attributes and notes are skipped. Texts
    without an .ann file are left out, with a warning [W301].

    path (str | PathLike): The .ann file, the .txt file beside it, or a folder with pairs.
    prefix (str): Vocabulary of ids without a prefix.
    annotations (bool): Whether to read the mentions; False also skips their checks.
    YIELDS (AnnotatedText): The id is the name of the file without extension.
    RAISES BioelError: [B105], [B106] wrong offsets, [B263] missing file of a pair, [B264] malformed
        line, [B265] id of an unknown mention, [B340] two mentions of one key; errors of
        `open_text`.
    """
    for text_path, annotation_path in _pairs(Path(path)):
        text = _read_text(text_path)
        mentions = _read_mentions(annotation_path, text, prefix) if annotations else ()
        yield AnnotatedText(text_path.stem, text, tuple(mentions))


def is_brat(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an .ann file, a .txt file beside one, or a folder with one."""
    path = Path(path)
    if path.is_dir():
        return any(path.glob(f"*{_ANNOTATIONS}"))
    is_text = path.suffix == _TEXT and path.with_suffix(_ANNOTATIONS).is_file()
    return is_text or path.suffix == _ANNOTATIONS


def _pairs(path: Path) -> Iterator[tuple[Path, Path]]:
    """Paths of the text and the annotations of each document."""
    if path.is_dir():
        names = _names(path, _ANNOTATIONS)
        _report_left_out(path, _names(path, _TEXT) - names)
    else:
        names = {path.with_suffix("")}
    if not names:
        raise BioelError(Errors.B263.format(path=path, missing=f"*{_ANNOTATIONS}"))
    for name in sorted(names):
        text_path = name.with_name(name.name + _TEXT)
        annotation_path = name.with_name(name.name + _ANNOTATIONS)
        for file in (text_path, annotation_path):
            if not file.is_file():
                raise BioelError(Errors.B263.format(path=path, missing=file))
        yield text_path, annotation_path


def _names(folder: Path, suffix: str) -> set[Path]:
    return {file.with_suffix("") for file in folder.iterdir() if file.suffix == suffix}


def _report_left_out(folder: Path, names: set[Path]) -> None:
    if names:
        first = ", ".join(sorted(f"{name.name}{_TEXT}" for name in names)[:_N_SHOWN])
        _LOGGER.warning(Warnings.W301.format(path=folder, n=len(names), first=first))


def _read_text(path: Path) -> str:
    if path.stat().st_size == 0:  # one document without a text is no reason to refuse a folder
        return ""
    with open_text(path) as file:
        return file.read()


def _read_mentions(path: Path, text: str, prefix: str) -> list[Mention]:
    mentions: dict[str, Mention] = {}
    ids: list[tuple[str, str, str]] = []
    triggers: set[str] = set()
    if path.stat().st_size == 0:  # BRAT writes an empty file for a text without mentions
        return []
    for number, line in numbered_lines(path):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        if not _LINE.match(line):
            raise BioelError(Errors.B264.format(where=where, row=line[:60]))
        if line[0] == "T":
            key, mention = _read_mention(where, line, text)
            if key in mentions:
                raise BioelError(Errors.B340.format(where=where, key=key))
            mentions[key] = mention
        elif line[0] == "N":
            ids.append((where, *_read_reference(where, line)))
        elif line[0] == "E":
            triggers.add(_read_trigger(where, line))
    for where, key, raw in ids:
        if key[0] != "T":  # events have ids too
            continue
        if key not in mentions:
            raise BioelError(Errors.B265.format(where=where, key=key))
        merged = dict.fromkeys([*mentions[key].ids, *split_ids(raw, prefix)])
        mentions[key] = replace(mentions[key], ids=tuple(merged))
    return [mention for key, mention in mentions.items() if key not in triggers]


def _read_mention(where: str, line: str, text: str) -> tuple[str, Mention]:
    """Read a line "T...". RETURNS (tuple): Key, mention."""
    key, _, rest = line.partition("\t")
    place, _, words = rest.partition("\t")
    label, _, offsets = place.partition(" ")
    if not label or not words or not _OFFSETS.fullmatch(offsets):
        raise BioelError(Errors.B264.format(where=where, row=line[:60]))
    fragments = _fragments(offsets)
    for start, end in fragments:
        check_offsets(text, start, end, where=where)
    start, end = fragments[0][0], max(end for _, end in fragments)
    found = " ".join(text[a:b] for a, b in fragments)
    check_surface(found, words, start=start, end=end, where=where)
    return key, Mention(start, end, label, fragments=fragments if len(fragments) > 1 else ())


def _fragments(offsets: str) -> _Fragments:
    pairs = (tuple(map(int, pair.split(" "))) for pair in offsets.split(";"))
    return tuple(sorted((start, end) for start, end in pairs))


def _read_reference(where: str, line: str) -> tuple[str, str]:
    """Read a line "N...". RETURNS (tuple): Key of the mention, id."""
    fields = line.split("\t")
    words = fields[1].split() if len(fields) > 1 else []
    if len(words) != 3 or words[0] != "Reference":
        raise BioelError(Errors.B264.format(where=where, row=line[:60]))
    return words[1], words[2]


def _read_trigger(where: str, line: str) -> str:
    """Key of the trigger of an event, a line "E..."."""
    found = _TRIGGER.fullmatch(line)
    if found is None:
        raise BioelError(Errors.B264.format(where=where, row=line[:60]))
    return found[1]

"""Reader for BRAT standoff: NAME.txt holds a document's text, and NAME.ann its mentions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.io.open import (
    Place,
    StrPath,
    check_words,
    numbered_lines,
    open_text,
    parse_ids,
    skip_if_bad,
)
from spacy_bioel.types import AnnotatedText, Mention

# Lines to skip: relations, attributes, equivalences, and notes on something other than a mention.
# Event lines are read, because they show which T lines are triggers rather than mentions.
_OTHER_LINES = re.compile(r"(?:[RMA]\w+|\*|#\w*)\t")
_SPAN = "[0-9]{1,15} [0-9]{1,15}"
_ENTITY = re.compile(
    rf"(?P<key>T\w+)\t(?P<label>[^\t ]+) (?P<spans>{_SPAN}(?:;{_SPAN})*)\t(?P<words>.+)", re.S
)
_REFERENCE = re.compile(r"N\w+\t\s*Reference\s+(\S+)\s+(\S+)\s*(?:\t.*)?", re.S)
_NOTE = re.compile(r"#\w*\t\s*\S+\s+(T\w+)\s*\t(.*)", re.S)
_CURIE = r"[A-Za-z][\w.]*:[\w.-]*\d[\w.-]*"
_UMLS_OR_MESH, _NEEDS_PREFIX = r"[CD]\d{6,9}", r"[A-Za-z]{,3}\d+"
_TRIGGER = re.compile(r"E\w+\t[^\s:]+:(T\w+)(?: .*)?")
_MAX_FILES_SHOWN = 3  # maximum number of file names listed in a warning


def read_brat(
    path: StrPath, *, prefix: str = "", annotations: bool = True
) -> Iterator[AnnotatedText]:
    """Stream BRAT documents: one pair of files, or all pairs in a folder.

    Lines such as "T1<tab>Disease 0 5;16 23<tab>words" are mentions; several pairs of offsets become
    fragments. Lines such as "N1<tab>Reference T1 MESH:D003920<tab>name" and notes that consist of
    ids add ids, in file order; other notes on mentions are counted in a warning [W337]. Triggers,
    relations and attributes are skipped. Texts without an .ann file are skipped and counted [W301].

    path (str | PathLike): The .ann file, the .txt file next to it, or a folder of such pairs.
    annotations (bool): Whether to read and check the mentions.
    YIELDS (AnnotatedText): The id is the file name without its extension.
    """
    other_notes: list[str] = []
    for stem in _document_stems(Path(path)):
        text_path, annotation_path = (Path(f"{stem}{suffix}") for suffix in (".txt", ".ann"))
        with skip_if_bad(Place(annotation_path)):
            for file in (text_path, annotation_path):
                if not file.is_file():
                    raise BioelError(Errors.B263.format(path=path, missing=file))
            text = ""
            if text_path.stat().st_size:  # `open_text` rejects empty files
                with open_text(text_path) as opened:
                    text = opened.read()
            # BRAT writes an empty .ann file for a text without mentions.
            is_read = annotations and annotation_path.stat().st_size
            mentions = _read_mentions(annotation_path, text, prefix, other_notes) if is_read else ()
            yield AnnotatedText(text_path.stem, text, tuple(mentions))
    if other_notes:
        LOGGER.warning(Warnings.W337.format(path=path, n=len(other_notes), first=other_notes[0]))


def is_brat(path: StrPath) -> bool:
    """Return whether a path is an .ann file, a .txt file next to one, or a folder of .ann files."""
    path = Path(path)
    if path.is_dir():
        return any(path.glob("*.ann"))
    return path.suffix == ".ann" or (path.suffix == ".txt" and path.with_suffix(".ann").is_file())


def _document_stems(path: Path) -> list[Path]:
    """Return all document paths, without suffixes."""
    stems = {path.with_suffix("")}
    if path.is_dir():
        stems = {file.with_suffix("") for file in path.iterdir() if file.suffix == ".ann"}
        texts = sorted(file for file in path.iterdir() if file.suffix == ".txt")
        unpaired = [text.name for text in texts if text.with_suffix("") not in stems]
        if unpaired:
            first = ", ".join(unpaired[:_MAX_FILES_SHOWN])
            LOGGER.warning(Warnings.W301.format(path=path, n=len(unpaired), first=first))
    if not stems:
        raise BioelError(Errors.B263.format(path=path, missing="*.ann"))
    return sorted(stems)


def _read_mentions(path: Path, text: str, prefix: str, other_notes: list[str]) -> list[Mention]:
    """Read an annotation file's mentions; append notes that are not ids to `other_notes`."""
    is_id = re.compile(f"{_CURIE}|{_NEEDS_PREFIX if prefix else _UMLS_OR_MESH}").fullmatch
    mentions: dict[str, Mention] = {}
    references: list[tuple[Place, str, str]] = []
    triggers: set[str] = set()
    for where, line in numbered_lines(path):
        if match := _ENTITY.fullmatch(line):
            if match["key"] in mentions:
                raise BioelError(Errors.B340.format(where=where, key=match["key"]))
            mentions[match["key"]] = _brat_mention(where, match, text)
        elif match := _REFERENCE.fullmatch(line):
            references.append((where, match[1], match[2]))
        elif (match := _NOTE.fullmatch(line)) and (comment := match[2].strip()):
            if all(is_id(part) for part in re.split(r"[|+;,\s]+", comment)):
                references.append((where, match[1], "|".join(comment.split())))
            else:
                other_notes.append(f"{where}: {comment[:60]!r}")
        elif match := _TRIGGER.fullmatch(line):
            triggers.add(match[1])
        elif line.strip() and not _OTHER_LINES.match(line):
            raise BioelError(Errors.B264.format(where=where, row=line[:60]))
    for where, key, raw_ids in references:
        if key[0] != "T":  # a reference to an event rather than a mention
            continue
        if key not in mentions:
            raise BioelError(Errors.B265.format(where=where, key=key))
        merged = dict.fromkeys([*mentions[key].ids, *parse_ids(raw_ids, prefix)])
        mentions[key] = replace(mentions[key], ids=tuple(merged))
    return [mention for key, mention in mentions.items() if key not in triggers]


def _brat_mention(where: Place, match: re.Match[str], text: str) -> Mention:
    pairs = (span.split(" ") for span in match["spans"].split(";"))
    fragments = tuple(sorted((int(start), int(end)) for start, end in pairs))
    check_words(text, fragments, match["words"], where=where)
    start, end = fragments[0][0], max(end for _, end in fragments)
    return Mention(start, end, match["label"], (), fragments if len(fragments) > 1 else ())

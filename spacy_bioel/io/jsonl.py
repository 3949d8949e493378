"""JSON lines of concepts and texts: for output, and for sources without a reader of their own."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.io.json_values import parse_json
from spacy_bioel.io.open import numbered_lines
from spacy_bioel.io.records import check_offsets, check_surface, curie, one_record, split_ids
from spacy_bioel.storage.atomic import replacing_text
from spacy_bioel.types import AnnotatedText, Concept, Mention

_TEXT_KEYS = {"text": str, "mentions": list, "links": list, "annotates": list}
_CONCEPT_KEYS = {
    "id": str, "names": list, "types": list, "parents": list, "definition": str,
    "replaced_by": str, "xrefs": list,
}  # fmt: skip
_MENTION_KEYS = {
    "start": int, "end": int, "label": str, "ids": (list, str), "fragments": list, "text": str,
}  # fmt: skip

_Record = dict[str, Any]
_LOGGER = logging.getLogger(__name__)


def read_concepts_jsonl(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[Concept]:
    """Stream concepts, one JSON object a line with the fields of `Concept`.

    "id" is required. A record without "names" is a retired id if it has "replaced_by"; otherwise
    a build counts and drops it.

    prefix (str): Vocabulary of ids without a prefix.
    YIELDS (Concept): One per line.
    RAISES BioelError: [B131] no JSON object, [B132] missing or unknown key, or value of another
        type; errors of `numbered_lines`.
    """
    for where, record in _records(path):
        with one_record():
            yield _read_concept(where, record, prefix)


def _read_concept(where: str, record: _Record, prefix: str) -> Concept:
    _check_keys(where, record, _CONCEPT_KEYS, required=("id",))
    if not record["id"].strip():
        raise BioelError(Errors.B132.format(where=where, problem="empty 'id'"))
    return Concept(
        curie(record["id"], prefix),
        _strings(where, record, "names"),
        types=_strings(where, record, "types"),
        parents=tuple(curie(parent, prefix) for parent in _strings(where, record, "parents")),
        definition=record.get("definition", ""),
        replaced_by=curie(record.get("replaced_by", ""), prefix),
        xrefs=_strings(where, record, "xrefs"),
    )


def write_concepts_jsonl(path: str | os.PathLike[str], concepts: Iterable[Concept]) -> int:
    """Write concepts in the format of `read_concepts_jsonl`, without empty fields.

    RETURNS (int): Number of concepts.
    """
    return _write(path, ({k: v for k, v in asdict(concept).items() if v} for concept in concepts))


def read_texts_jsonl(path: str | os.PathLike[str], *, prefix: str = "") -> Iterator[AnnotatedText]:
    """Stream texts, one JSON object a line: {"id", "text", "mentions"}.

    A mention is {"start", "end", "label", "ids"} or, as in MedMentions, [start, end, words, ids].
    Optional keys are "fragments", and "text", which is compared with the text at the offsets.
    Without "id" or "pmid" the number of the record is the id. "mentions" is optional, and so is
    "annotates", the labels that were looked for; other keys are ignored. Output of `bioel link` has
    "links" in place of "mentions"; a document that failed there is skipped, with a warning [W260].

    prefix (str): Vocabulary of ids without a prefix.
    YIELDS (AnnotatedText): One per line.
    RAISES BioelError: [B105], [B106] wrong offsets, [B131] no JSON object, [B132] missing key, or
        value of another type; errors of `numbered_lines`.
    """
    for number, (where, record) in enumerate(_records(path), start=1):
        if record.get("error") is not None and not record.get("links"):
            _LOGGER.warning(Warnings.W260.format(where=where, error=_said(record["error"])))
            continue
        _check_keys(where, record, _TEXT_KEYS, required=("text",), rest=True)
        text = record["text"]
        found: list[object] = record.get("mentions" if "mentions" in record else "links", [])
        mentions = tuple(
            _read_mention(f"{where}, mention {i}", mention, text, prefix)
            for i, mention in enumerate(found, start=1)
        )
        annotates = _strings(where, record, "annotates")
        yield AnnotatedText(_id_of(record, number), text, mentions, annotates)


def read_documents_jsonl(path: str | os.PathLike[str]) -> Iterator[tuple[Any, str]]:
    """Stream the text and the id of each line, unchecked; other keys are ignored.

    YIELDS (tuple): Text, None if it is missing, and id, as in `read_texts_jsonl`.
    RAISES BioelError: [B131] no JSON object; errors of `numbered_lines`.
    """
    # Lone surrogates pass, since one bad text must not stop the others.
    for number, (_, record) in enumerate(_records(path, lone_surrogates=True), start=1):
        yield record.get("text"), _id_of(record, number)


def write_texts_jsonl(path: str | os.PathLike[str], texts: Iterable[AnnotatedText]) -> int:
    """Write texts in the format of `read_texts_jsonl`. RETURNS (int): Number of texts."""
    return _write(path, (_text_record(text) for text in texts))


def _id_of(record: _Record, number: int) -> str:
    return str(record.get("id", record.get("pmid", number)))


def _text_record(text: AnnotatedText) -> _Record:
    mentions = [asdict(mention) for mention in text.mentions]
    for mention in mentions:
        if not mention["fragments"]:
            del mention["fragments"]
    record = {"id": text.id, "text": text.text, "mentions": mentions}
    return record | ({"annotates": list(text.annotates)} if text.annotates else {})


def _read_mention(where: str, mention: object, text: str, prefix: str) -> Mention:
    if isinstance(mention, list):
        if len(mention) != 4:
            problem = f"expected [start, end, words, ids], found {mention!r}"
            raise BioelError(Errors.B132.format(where=where, problem=problem))
        mention = dict(zip(("start", "end", "text", "ids"), mention, strict=True))
    if not isinstance(mention, dict):
        problem = f"expected an object or a list, found {mention!r}"
        raise BioelError(Errors.B132.format(where=where, problem=problem))
    _check_keys(where, mention, _MENTION_KEYS, required=("start", "end"), rest=True)
    start, end = mention["start"], mention["end"]
    check_offsets(text, start, end, where=where)
    fragments = _fragments(where, mention, text)
    if "text" in mention:
        found = " ".join(text[a:b] for a, b in fragments or ((start, end),))
        check_surface(found, mention["text"], start=start, end=end, where=where)
    ids = mention.get("ids", [])
    raw_ids = ids if isinstance(ids, str) else "|".join(_strings(where, mention, "ids"))
    return Mention(start, end, mention.get("label", ""), split_ids(raw_ids, prefix), fragments)


def _fragments(where: str, mention: _Record, text: str) -> tuple[tuple[int, int], ...]:
    fragments = []
    for pair in mention.get("fragments", []):
        match pair:
            case [int(start), int(end)]:
                check_offsets(text, start, end, where=where)
                fragments.append((start, end))
            case _:
                problem = f"'fragments' has {pair!r}, expected [start, end]"
                raise BioelError(Errors.B132.format(where=where, problem=problem))
    return tuple(fragments)


def _records(
    path: str | os.PathLike[str], *, lone_surrogates: bool = False
) -> Iterator[tuple[str, _Record]]:
    """JSON objects of a file, each with file and line for messages; blank lines are skipped."""
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        with one_record(path, number):
            try:
                record = parse_json(line, lone_surrogates=lone_surrogates)
            except ValueError as error:
                raise BioelError(Errors.B131.format(where=where, found=error)) from error
            if not isinstance(record, dict):
                raise BioelError(Errors.B131.format(where=where, found=line[:60]))
            yield where, record


def _check_keys(
    where: str,
    record: _Record,
    known: dict[str, Any],
    *,
    required: tuple[str, ...],
    rest: bool = False,
) -> None:
    """Refuse missing keys, values of another type and, unless `rest`, unknown keys."""
    problems = [f"key {key!r} is missing" for key in required if key not in record]
    for key, value in record.items():
        if key not in known:
            if not rest:
                problems.append(f"unknown key {key!r} (known: {', '.join(known)})")
        elif not isinstance(value, known[key]) or isinstance(value, bool):
            problems.append(f"{key!r} is {value!r:.40}, of type {type(value).__name__}")
    if problems:
        raise BioelError(Errors.B132.format(where=where, problem="; ".join(problems)))


def _strings(where: str, record: _Record, key: str) -> tuple[str, ...]:
    values = record.get(key, [])
    if not all(isinstance(value, str) for value in values):
        problem = f"{key!r} is {values!r:.40}, expected a list of strings"
        raise BioelError(Errors.B132.format(where=where, problem=problem))
    return tuple(values)


def _write(path: str | os.PathLike[str], records: Iterable[_Record]) -> int:
    n = 0
    with replacing_text(Path(path)) as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            n += 1
    return n


def _said(error: object) -> str:
    """Code and message of a row of `bioel link`, at most 200 characters."""
    if isinstance(error, dict):
        return f"{error.get('code', 'error')}: {error.get('message', '')}"[:200]
    return f"{error!r:.200}"

"""JSON lines of concepts and texts: for output, and for sources without a reader of their own."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.io.json_text import parse_json
from spacy_bioel.io.open import numbered_lines
from spacy_bioel.io.records import Place, StrPath, check_words, curie, one_record, split_ids
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


def read_concepts_jsonl(path: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Stream concepts, one JSON object a line with the fields of `Concept`.

    "id" is required. A record without "names" is a retired id if it has "replaced_by"; otherwise
    a build counts and drops it.
    """
    for where, record in _records(path):
        with one_record():
            _check_keys(where, record, _CONCEPT_KEYS, "id")
            if unknown := ", ".join(map(repr, sorted(record.keys() - _CONCEPT_KEYS.keys()))):
                known = ", ".join(_CONCEPT_KEYS)
                raise _problem(where, f"unknown key {unknown} (known: {known})")
            if not record["id"].strip():
                raise _problem(where, "empty 'id'")
            yield Concept(
                curie(record["id"], prefix),
                _strings(where, record, "names"),
                types=_strings(where, record, "types"),
                parents=tuple(curie(p, prefix) for p in _strings(where, record, "parents")),
                definition=record.get("definition", ""),
                replaced_by=curie(record.get("replaced_by", ""), prefix),
                xrefs=_strings(where, record, "xrefs"),
            )


def read_texts_jsonl(path: StrPath, *, prefix: str = "") -> Iterator[AnnotatedText]:
    """Stream texts, one JSON object a line: {"id", "text", "mentions"}.

    A mention is {"start", "end", "label", "ids"} or, as in MedMentions, [start, end, words, ids].
    Optional keys are "fragments", and "text", which is compared with the text at the offsets.
    Without "id" or "pmid" the number of the record is the id. "mentions" is optional, and so is
    "annotates", the labels that were looked for; other keys are ignored. Output of `bioel link` has
    "links" in place of "mentions"; a document that failed there is skipped, with a warning [W260].
    """
    for number, (where, record) in enumerate(_records(path), start=1):
        error = record.get("error")
        if error is not None and not record.get("links"):
            said = f"{error!r}"
            if isinstance(error, dict):
                said = f"{error.get('code', 'error')}: {error.get('message', '')}"
            _LOGGER.warning(Warnings.W260.format(where=where, error=said[:200]))
            continue
        _check_keys(where, record, _TEXT_KEYS, "text")
        text = record["text"]
        found: list[object] = record.get("mentions" if "mentions" in record else "links", [])
        mentions = tuple(
            _read_mention(f"{where}, mention {i}", mention, text, prefix)
            for i, mention in enumerate(found, start=1)
        )
        annotates = _strings(where, record, "annotates")
        yield AnnotatedText(_id_of(record, number), text, mentions, annotates)


def read_documents_jsonl(path: StrPath) -> Iterator[tuple[Any, str]]:
    """Stream the text, None if it is missing, and the id of each line, unchecked."""
    # Lone surrogates pass, since one bad text must not stop the others.
    for number, (_, record) in enumerate(_records(path, lone_surrogates=True), start=1):
        yield record.get("text"), _id_of(record, number)


def write_texts_jsonl(path: StrPath, texts: Iterable[AnnotatedText]) -> int:
    """Write texts as `read_texts_jsonl` reads them. RETURNS (int): How many."""
    n = 0
    with replacing_text(Path(path)) as file:
        for text in texts:
            n += 1
            record = asdict(text)
            for mention in record["mentions"]:
                del mention["probability"]
                if not mention["fragments"]:
                    del mention["fragments"]
            if not text.annotates:
                del record["annotates"]
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return n


def _id_of(record: _Record, number: int) -> str:
    return str(record.get("id", record.get("pmid", number)))


def _read_mention(where: str, mention: Any, text: str, prefix: str) -> Mention:
    match mention:
        case [start, end, words, ids]:
            mention = {"start": start, "end": end, "text": words, "ids": ids}
        case dict():
            pass
        case _:
            expected = "an object or [start, end, words, ids]"
            raise _problem(where, f"expected {expected}, found {mention!r}")
    _check_keys(where, mention, _MENTION_KEYS, "start", "end")
    start, end = mention["start"], mention["end"]
    check_words(text, [(start, end)], None, where=where)
    fragments = []
    for pair in mention.get("fragments", []):
        match pair:
            case [int(first), int(last)]:
                fragments.append((first, last))
            case _:
                raise _problem(where, f"'fragments' has {pair!r}, expected [start, end]")
    check_words(text, fragments or [(start, end)], mention.get("text"), where=where)
    ids = mention.get("ids", [])
    raw_ids = ids if isinstance(ids, str) else "|".join(_strings(where, mention, "ids"))
    label = mention.get("label", "")
    return Mention(start, end, label, split_ids(raw_ids, prefix), tuple(fragments))


def _records(path: StrPath, *, lone_surrogates: bool = False) -> Iterator[tuple[Place, _Record]]:
    """Yield the JSON objects of a file; blank lines are skipped."""
    for where, line in numbered_lines(path):
        if not line.strip():
            continue
        with one_record(where):
            try:
                record = parse_json(line, lone_surrogates=lone_surrogates)
            except ValueError as error:
                raise BioelError(Errors.B131.format(where=where, found=error)) from error
            if not isinstance(record, dict):
                raise BioelError(Errors.B131.format(where=where, found=line[:60]))
            yield where, record


def _problem(where: object, problem: str) -> BioelError:
    return BioelError(Errors.B132.format(where=where, problem=problem))


def _check_keys(where: object, record: _Record, types: dict[str, Any], *required: str) -> None:
    """Refuse missing keys and values of another type."""
    problems = [f"key {key!r} is missing" for key in required if key not in record]
    problems += [
        f"{key!r} is {value!r:.40}, of type {type(value).__name__}"
        for key, value in record.items()
        if key in types and (isinstance(value, bool) or not isinstance(value, types[key]))
    ]
    if problems:
        raise _problem(where, "; ".join(problems))


def _strings(where: object, record: _Record, key: str) -> tuple[str, ...]:
    values = record.get(key, [])
    if not all(isinstance(value, str) for value in values):
        raise _problem(where, f"{key!r} is {values!r:.40}, expected a list of strings")
    return tuple(values)

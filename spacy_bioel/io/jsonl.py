"""Parse JSON with safety limits, read concepts and texts from JSON lines, and write texts.

JSON lines are the package's output format, and the input format for sources without a reader.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.files import replacing_text
from spacy_bioel.io.open import (
    Place,
    StrPath,
    check_words,
    curie,
    numbered_lines,
    open_text,
    parse_ids,
    skip_if_bad,
)
from spacy_bioel.types import AnnotatedText, Concept, Mention

_MAX_DEPTH = 100
_TOO_DEEP = f"lists and objects nested more than {_MAX_DEPTH} deep"
_LONE_SURROGATE = re.compile(r"\\ud[89a-f]", re.I)


def parse_json(text: str, *, lone_surrogates: bool = False) -> Any:
    """Parse a JSON string.

    lone_surrogates (bool): Accept lone surrogates. UTF-8 cannot encode them, so the
        caller must handle them.
    RAISES ValueError: Invalid JSON, lists and objects nested more than 100 deep, a number with
        thousands of digits, or a lone surrogate.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError:  # Python limits integers to 4,300 digits
        raise ValueError("a number with thousands of digits") from None
    if text.count("[") + text.count("{") > _MAX_DEPTH and _depth(value) > _MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    if not lone_surrogates and _LONE_SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf8")
        except UnicodeEncodeError as error:
            surrogate = f"\\u{ord(error.object[error.start]):x}"
            raise ValueError(f"{surrogate}, which is half of a character") from None
    return value


def _depth(value: object, level: int = 0) -> int:
    """Return the nesting depth of lists and objects; stop counting just past `_MAX_DEPTH`."""
    if level > _MAX_DEPTH or not isinstance(value, dict | list):
        return level
    values = value.values() if isinstance(value, dict) else value
    return max((_depth(nested, level + 1) for nested in values), default=level + 1)


def read_json(path: StrPath, kind: type = object, *, problem: str) -> Any:
    """Read a whole JSON file into memory and parse it.

    problem (str): Error template, with {path} and {found}, for a file without JSON of this kind.
    RAISES BioelError: The same errors as `open_text`; `problem`.
    """
    with open_text(path) as file:
        text = file.read()
    try:
        value = parse_json(text)
    except ValueError as error:
        raise BioelError(problem.format(path=path, found=error)) from error
    if not isinstance(value, kind):
        raise BioelError(problem.format(path=path, found=f"{text.strip()[:60]!r}"))
    return value


# Keys that may hold a record's mentions: in our input, our output, Prodigy and doccano.
_MENTION_LISTS = ("mentions", "links", "spans", "entities")
_LABELS = ("label", "labels")  # in doccano, either mentions or classes of the whole text
_TEXT_KEYS = {"text": str, **dict.fromkeys((*_MENTION_LISTS, "annotates"), list)}
_OTHER_OFFSETS = frozenset(("tokens", "sentences", "sents", "sections", "relations"))
# Matches {"start": 0, "end": 5} or [0, 5, "Disease"], but not in strings (escaped quotes).
_OFFSETS = re.compile(r'"(start|begin)\w{0,9}": \d+, [^{}]{0,200}"end\w{0,9}": \d|\[\d+, \d+, "')
_LEFT_OUT = ("reject", "ignore")  # Prodigy answers that exclude a record
_CONCEPT_KEYS = {
    "id": str, "names": list, "types": list, "parents": list, "definition": str,
    "replaced_by": str, "xrefs": list,
}  # fmt: skip
_MENTION_KEYS = {
    "start": int, "end": int, "label": str, "ids": (list, str), "fragments": list, "text": str,
}  # fmt: skip
_ID_KEYS = tuple("ids kb_id link cui concept_id identifier identifiers concept id".split())
_LABEL_KEYS = ("label", "type", "entity", "entity_group", "labels")  # the first one found is used
_KNOWN_KEYS = frozenset(  # keys (ours and other tools') that hold neither a label nor ids
    "token_start token_end start_offset end_offset start_char end_char index source input_hash "
    "name pattern priority color score rank probability confidence candidates context".split()
).union(_MENTION_KEYS)
_Record = dict[str, Any]


def read_concepts_jsonl(path: StrPath, *, prefix: str = "") -> Iterator[Concept]:
    """Stream concepts from JSON lines with the fields of `Concept`.

    "id" is required. A record without "names" is a retired id if it has "replaced_by"; otherwise
    `bioel kb build` drops and counts it.
    """
    for where, record in _records(path):
        with skip_if_bad():
            _check_keys(where, record, _CONCEPT_KEYS, "id")
            if unknown := ", ".join(map(repr, sorted(record.keys() - _CONCEPT_KEYS.keys()))):
                known = ", ".join(_CONCEPT_KEYS)
                raise _record_error(where, f"unknown key {unknown} (known: {known})")
            if not record["id"].strip():
                raise _record_error(where, "empty 'id'")
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
    """Stream texts from JSON lines: {"id", "text", "mentions"}.

    A mention is {"start", "end", "label", "ids"} or, as in MedMentions, [start, end, words, ids].
    Optional keys are "fragments", and "text", which is compared with the text at the offsets.
    Without "id" or "pmid", the id is the number of the record. "mentions" is optional, and so is
    "annotates", a list of the labels that were annotated.

    The output of `bioel link` has "links"; documents that could not be linked are skipped with a
    warning [W260]. Prodigy has "spans"; records that were rejected or ignored are skipped with a
    warning [W336]. doccano has "label", a list of [start, end, label], or "entities" with
    "start_offset". Other keys are ignored, with two exceptions. A record without mentions must not
    have offsets [B523]. If a mention lacks a label or ids, its other keys cause a warning [W370].
    """
    n, left_out, unread = 0, Counter[str](), Counter[str]()
    for n, (where, record) in enumerate(_records(path), start=1):
        if record.get("answer") in _LEFT_OUT:
            left_out[record["answer"]] += 1
            continue
        if (error := record.get("error")) is not None and not record.get("links"):
            coded = error if isinstance(error, dict) else {"message": repr(error)}
            reason = f"{coded.get('code', 'error')}: {coded.get('message', '')}"
            LOGGER.warning(Warnings.W260.format(where=where, error=reason[:200]))
            continue
        with skip_if_bad():
            record = _with_text(record)
            _check_keys(where, record, _TEXT_KEYS, "text")
            text, annotates = record["text"], _strings(where, record, "annotates")
            key, raw_mentions = _mention_list(where, record)
            mentions = tuple(
                _json_mention(f"{where}, mention {i}", mention, text, prefix, unread, key=key)
                for i, mention in enumerate(raw_mentions, start=1)
            )
            yield AnnotatedText(_id_of(record, n), text, mentions, annotates)
    if left_out:
        said = ", ".join(f"{left_out[a]:,} {a}" for a in _LEFT_OUT if left_out[a])
        LOGGER.warning(Warnings.W336.format(path=path, n=n, left=left_out.total(), answers=said))
    if keys := ", ".join(f"{key[:40]!r} ({n:,})" for key, n in unread.most_common(10)):
        LOGGER.warning(Warnings.W370.format(path=path, keys=keys))


def _with_text(record: _Record) -> _Record:
    """Return a record with its text under "text" (older doccano versions use "data")."""
    return {"text": record["data"], **record} if "data" in record else record


def _mention_list(where: Place, record: _Record) -> tuple[str, list[Any]]:
    """Find a record's list of mentions. RETURNS (tuple): The list's key, and the list.

    RAISES BioelError: [B132] several lists, [B523] no list, but offsets under another key.
    """
    lists = {key: record[key] for key in _MENTION_LISTS if record.get(key)}
    for key in _LABELS:
        if isinstance(value := record.get(key), list) and value and not isinstance(value[0], str):
            lists[key] = value
    if len(lists) > 1:
        keys = " and ".join(map(repr, lists))
        raise _record_error(where, f"{keys} both contain mentions, expected one of them")
    if lists:
        return lists.popitem()
    for key, value in record.items():
        if key not in _OTHER_OFFSETS and _OFFSETS.search(json.dumps(value)):
            raise BioelError(Errors.B523.format(where=where, key=key[:60]))
    return "mentions", []


def read_documents_jsonl(path: StrPath, *keys: str) -> Iterator[tuple[Any, ...]]:
    """Stream each line's text, id and values for `keys`, unvalidated; missing values are None."""
    # Accept lone surrogates here, so that one bad text does not stop the whole run.
    for number, (_, record) in enumerate(_records(path, lone_surrogates=True), start=1):
        yield _with_text(record).get("text"), _id_of(record, number), *map(record.get, keys)


def write_texts_jsonl(path: StrPath, texts: Iterable[AnnotatedText]) -> None:
    """Write texts in the format that `read_texts_jsonl` reads."""
    with replacing_text(Path(path)) as file:
        for text in texts:
            record = asdict(text)
            del record["entities"]
            for mention in record["mentions"]:
                del mention["probability"]
                if not mention["fragments"]:
                    del mention["fragments"]
            if not text.annotates:
                del record["annotates"]
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _id_of(record: _Record, number: int) -> str:
    return str(record.get("id", record.get("pmid", number)))


def _json_mention(
    where: str, mention: Any, text: str, prefix: str, unread: Counter[str], *, key: str
) -> Mention:
    match mention:
        case [start, end, words, ids] if key == "mentions":
            mention = {"start": start, "end": end, "text": words, "ids": ids}
        case [start, end, label] if key != "mentions":
            mention = {"start": start, "end": end, "label": label}
        case {"start_offset": start, "end_offset": end}:  # doccano: "id" is not a concept id
            mention = {**mention, "start": start, "end": end, "id": None}
        case dict():
            pass
        case _:
            form = "[start, end, words, ids]" if key == "mentions" else "[start, end, label]"
            raise _record_error(where, f"expected an object or {form}, found {mention!r:.80}")
    _check_keys(where, mention, _MENTION_KEYS, "start", "end")
    start, end = mention["start"], mention["end"]
    check_words(text, [(start, end)], None, where=where)
    fragments = []
    for pair in mention.get("fragments", []):
        match pair:
            case [int(first), int(last)]:
                fragments.append((first, last))
            case _:
                raise _record_error(where, f"'fragments' contains {pair!r}, expected [start, end]")
    check_words(text, fragments or [(start, end)], mention.get("text"), where=where)
    words, ids = text[start:end], {}
    for key in _ID_KEYS:
        if (value := mention.get(key)) is not None and not isinstance(value, dict):
            listed = [str(v) if type(v) is int else v for v in _as_list(value)]
            strings = map(str, listed) if ids else _strings(where, {key: listed}, key)
            ids[key] = parse_ids("|".join(strings), prefix)
    linked = next(iter(ids.values()), ())
    others = [_as_list(mention[key]) for key in _LABEL_KEYS if mention.get(key, words) != words]
    other = next((of[0] for of in others if len(of) == 1 and isinstance(of[0], str)), "")
    label = mention.get("label", other)
    read = {key for key in ids if set(ids[key]) <= set(linked)}.union(_LABEL_KEYS if label else ())
    lacks = not ids and mention.get("id", "") is not None or not (label or "label" in mention)
    unclear = (mention.keys() - _KNOWN_KEYS if lacks else ids.keys()) - read
    unread.update(key for key in unclear if mention[key] not in (None, words))
    return Mention(start, end, label, linked, tuple(fragments))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _records(path: StrPath, *, lone_surrogates: bool = False) -> Iterator[tuple[Place, _Record]]:
    """Yield the objects in a file that contains one JSON object per line, or one array of objects.

    The brackets of an array may be on lines of their own, as `bioel link` writes them.
    """
    is_array, last = False, ""
    for where, line in numbered_lines(path):
        last = line.strip() or last
        is_array = is_array or last == "["
        line = line.strip().strip("[],") if is_array else line
        if not line.strip():
            continue
        with skip_if_bad(where):
            try:
                value = parse_json(line, lone_surrogates=lone_surrogates)
            except ValueError as error:
                raise BioelError(Errors.B131.format(where=where, found=error)) from error
            records = value if isinstance(value, list) else [value]
            if not all(isinstance(record, dict) for record in records):
                raise BioelError(Errors.B131.format(where=where, found=line[:60]))
            for record in records:
                yield where, record
    if is_array and last != "]":
        raise BioelError(Errors.B131.format(where=path, found="no ] in its last line"))


def _record_error(where: object, problem: str) -> BioelError:
    return BioelError(Errors.B132.format(where=where, problem=problem))


def _check_keys(where: object, record: _Record, types: dict[str, Any], *required: str) -> None:
    """Reject a record that lacks a required key or has a value of the wrong type."""
    problems = [f"key {key!r} is missing" for key in required if key not in record]
    problems += [
        f"{key!r} is {value!r:.40}, of type {type(value).__name__}"
        for key, value in record.items()
        if key in types and (isinstance(value, bool) or not isinstance(value, types[key]))
    ]
    if problems:
        raise _record_error(where, "; ".join(problems))


def _strings(where: object, record: _Record, key: str) -> tuple[str, ...]:
    values = record.get(key, [])
    if not all(isinstance(value, str) for value in values):
        raise _record_error(where, f"{key!r} is {values!r:.40}, expected a list of strings")
    return tuple(values)

"""Parsing of untrusted JSON, where all errors are ValueErrors."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_DEPTH = 100
_HALF_A_PAIR = re.compile(r"\\ud[89a-f]", re.I)


def parse_json(text: str, *, lone_surrogates: bool = False) -> Any:
    """Parse a JSON text.

    lone_surrogates (bool): Accept halves of surrogate pairs. UTF-8 cannot encode them, so the
        caller has to handle them.
    RAISES ValueError: Invalid JSON, lists and objects nested more than MAX_DEPTH deep, a number of
        thousands of digits, or half of a surrogate pair.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError(_too_deep()) from None
    except ValueError:  # Python reads integers of up to 4,300 digits
        raise ValueError("a number of thousands of digits") from None
    check_value(value, text, lone_surrogates=lone_surrogates)
    return value


def check_value(value: object, text: str, *, lone_surrogates: bool = False) -> None:
    """Check the depth and the surrogates of a parsed value.

    text (str): JSON text of the value.
    lone_surrogates (bool): As in `parse_json`.
    RAISES ValueError: Excessive depth, or half of a surrogate pair.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(value):
        raise ValueError(_too_deep())
    if not lone_surrogates and _HALF_A_PAIR.search(text):
        _check_surrogates(json.dumps(value, ensure_ascii=False))


def _check_surrogates(text: str) -> None:
    try:
        text.encode("utf8")
    except UnicodeEncodeError as error:
        found = f"\\u{ord(text[error.start]):x}"
        raise ValueError(f"{found}, which is half of a character") from None


def _too_deep() -> str:
    return f"lists and objects more than {MAX_DEPTH} deep"


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        nested = [v for v in level if isinstance(v, dict | list)]
        if not nested:
            return False
        inner = (v.values() if isinstance(v, dict) else v for v in nested)
        level = [value for values in inner for value in values]
    return True

"""Checks of settings that both pipes have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spacy_bioel.errors import BioelError, Errors


def check_number(
    cfg: Mapping[str, Any],
    name: str,
    least: float,
    most: float | None,
    *,
    kind: type[int] | type[float],
    pipe: str,
) -> None:
    """Refuse a setting that is no number of this kind, or out of its range.

    most (float | None): None: there is no limit.
    RAISES BioelError: [B270].
    """
    value = cfg[name]
    if not (is_number(value, kind) and value >= least and (most is None or value <= most)):
        expected = f"at least {least}" if most is None else f"from {least} to {most}"
        raise BioelError(Errors.B270.format(name=name, found=value, expected=expected, pipe=pipe))


def check_kinds(cfg: Mapping[str, Any], kinds: Mapping[str, Any], *, pipe: str) -> None:
    """Refuse settings of another type than a config may give them.

    kinds (Mapping): Name -> what `isinstance` takes.
    RAISES BioelError: [B465].
    """
    words = {bool: "true or false", str: "a string", dict: "a table"}
    for name, kind in kinds.items():
        if name in cfg and not isinstance(cfg[name], kind):
            expected = words.get(kind, "a list")
            raise BioelError(
                Errors.B465.format(name=name, found=cfg[name], expected=expected, pipe=pipe)
            )


def is_number(value: object, kind: type[int] | type[float]) -> bool:
    """Whether this is an integer, or any number for `float`; True and False are not numbers."""
    kinds = (int,) if kind is int else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool)

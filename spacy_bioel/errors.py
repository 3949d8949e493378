"""Every message a user can meet, in one place, each with a code.

Ranges: B00x text, B02x-B03x knowledge base, B04x models, B05x pipes, B06x corpus, B07x CLI,
B08x scoring, B10x-B13x file formats.
"""

from __future__ import annotations


class _Coded(type):
    """Puts the attribute's name before its text: Errors.B001 -> "[B001] ..."."""

    def __getattribute__(cls, name: str) -> str:
        value = super().__getattribute__(name)
        return value if name.startswith("__") else f"[{name}] {value}"


class BioelError(ValueError):
    """Bad input or a bad setting; the message says where, what was expected and what to do."""


class Errors(metaclass=_Coded):
    pass


class Warnings(metaclass=_Coded):
    pass

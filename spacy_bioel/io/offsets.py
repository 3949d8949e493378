"""Checks of the offsets of mentions, for all corpus readers."""

from __future__ import annotations

from spacy_bioel.errors import BioelError, Errors


def check_offsets(text: str, start: int, end: int, *, where: str) -> None:
    """Refuse offsets that are empty or outside the text.

    where (str): File and line (or annotation) for the message.
    RAISES BioelError: [B105].
    """
    if not 0 <= start < end <= len(text):
        raise BioelError(Errors.B105.format(where=where, start=start, end=end, length=len(text)))


def check_surface(found: str, expected: str, *, start: int, end: int, where: str) -> None:
    """Refuse a mention whose words differ from the text by more than white space.

    found (str): Text at the offsets.
    expected (str): Words in the annotation.
    RAISES BioelError: [B106].
    """
    if found != expected and "".join(found.split()) != "".join(expected.split()):
        raise BioelError(
            Errors.B106.format(where=where, start=start, end=end, found=found, expected=expected)
        )

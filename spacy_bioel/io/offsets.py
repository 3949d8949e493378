"""The check that every corpus reader makes: do a mention's offsets point at its words?"""

from __future__ import annotations

from spacy_bioel.errors import BioelError, Errors


def check_offsets(text: str, start: int, end: int, *, where: str) -> None:
    """Refuse offsets that leave the text or hold nothing.

    where (str): File and line (or annotation) for the message.
    RAISES BioelError: [B105].
    """
    if not 0 <= start < end <= len(text):
        raise BioelError(Errors.B105.format(where=where, start=start, end=end, length=len(text)))


def check_surface(found: str, expected: str, *, start: int, end: int, where: str) -> None:
    """Refuse a mention whose words differ from the text by more than white space.

    found (str): The text at the offsets.
    expected (str): The words that the annotation gives.
    RAISES BioelError: [B106].
    """
    if found != expected and "".join(found.split()) != "".join(expected.split()):
        raise BioelError(
            Errors.B106.format(where=where, start=start, end=end, found=found, expected=expected)
        )

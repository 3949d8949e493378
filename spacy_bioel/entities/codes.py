"""Codes of products, primers, plates, grants and trials, which look like variants or genes."""

from __future__ import annotations

import re

# A word for a code, and what may stand between it and the code: "cat. no. A4503G", "wells A12G to".
_CODE_BEFORE = re.compile(
    r"(?:\b(?:cat(?:alog(?:ue)?)?|ref(?:erence)?|product|item|order|part|serial|lot|batch|model|plates?"
    r"|wells?|primers?|forward|reverse|oligo(?:nucleotide)?s?|probes?|antibod(?:y|ies)|sera|serum"
    r"|grants?|awards?|contracts?|protocols?|approval|permit|licen[cs]e|trial|accession|barcodes?"
    r"|samples?)\.?|#)"
    r"(?:[ :#(\[]{0,3}(?:no|nos|numbers?|codes?|id|ref|names?|registration|was|were|is|are|as|one"
    r"|primers?|the|called|named|labelled)\b\.?){0,4}[ :#(\[\"']{0,3}"
    r"(?:[A-Z]\w{2,11},? (?:and|or|to) |[A-Z]\w{2,11}, )?$",
    re.IGNORECASE,
)
_AFTER_CAT = re.compile(r"\s?(?:\.\s?)?(?:nos?\b|numbers?\b|#)", re.IGNORECASE)
_MAX_CODE_CONTEXT = 70
_REGISTERED = re.compile(r"NCT\d{8}|ISRCTN\d+|[A-Z]\d\d[A-Z]{2}\d{6}|P\d\d[A-Z]{2}\d{5,6}")


def is_code(text: str, start: int, end: int) -> bool:
    """Whether a string with digits, text[start:end], is a code according to the words before it, or
    the string is "cat" before a catalogue number."""
    mention = text[start:end]
    if mention.lower() == "cat":
        return _AFTER_CAT.match(text, end) is not None
    if not any(map(str.isdigit, mention)) or " " in mention:
        return False
    before = text[max(0, start - _MAX_CODE_CONTEXT) : start]
    return bool(_REGISTERED.fullmatch(mention) or _CODE_BEFORE.search(before))

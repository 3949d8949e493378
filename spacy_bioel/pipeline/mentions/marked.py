"""How often annotators mark names, and names like them; training/scripts/marked.py counts it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import srsly
from numpy.typing import NDArray

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name

_ASSETS = Path(__file__).parents[2] / "assets"
# What is known of names of its kind counts as much as so many places of the name itself.
_KIND = 2.0
SHORT = 4  # characters: shorter names mean many things, so that the string has to be known


class About(NamedTuple):
    """A name, the preferred name of its concept, itself if it is one, and types of its concepts."""

    name: str
    preferred: str
    types: frozenset[str]


def describe(kb: KnowledgeBase, rows: NDArray[np.int64]) -> list[About]:
    """Return what the kinds of names are made of."""
    indptr, concepts, preferred = kb.concepts_of_names(rows)
    types = kb.types_of_all(concepts)
    main = kb.names.take(kb.preferred_rows(concepts[indptr[:-1]]))
    return [
        About(
            name,
            name if preferred[start:end].any() else of_first,
            frozenset(chain.from_iterable(types[start:end])),
        )
        for name, of_first, (start, end) in zip(
            kb.names.take(rows), main, pairwise(indptr.tolist()), strict=True
        )
    ]


def kinds_of(about: About, label: str) -> list[str]:
    """List the kinds of a name, each a type and what the name looks like; the last without a type.

    The preferred name tells too: "zebrafish" is of "Danio rerio", "arthropods" of "Arthropoda".
    """
    name, preferred, types = about
    length = "short" if len(name) < SHORT else "middle" if len(name) < 6 else "long"
    of = "itself" if name == preferred else _words(preferred)
    form = f"{length} {_words(name)} of {of}"
    return [f"{label} {type} {form}" for type in sorted(types)] + [f"{label} {form}"]


def _words(name: str) -> str:
    return "words" if " " in name else "word"


def share_marked(string: str, label: str, kinds: Sequence[str]) -> float:
    """Estimate how often annotators mark a string as a mention of a label, where it is a name and
    in no mention: by the string where training texts have it, and by its kinds."""
    of_kinds, (marked, n) = _marked()["kinds"], places_marked(string, label)
    if len(string) < SHORT and not n:
        return 0.0
    known = [of_kinds[kind] for kind in kinds[:-1] if kind in of_kinds]
    share = max(known) if known else of_kinds.get(kinds[-1], 1.0)
    return float((marked + _KIND * share) / (n + _KIND))


def places_marked(string: str, label: str) -> tuple[int, int]:
    """How often training texts have a normalised string as a mention of a label, and how often they
    have it at all."""
    marked, n = _marked()["strings"].get(label, {}).get(string, (0, 0))
    return marked, n


def is_in_texts(text: str, label: str) -> bool:
    """Whether it is known how often texts mean a name of this label by a text."""
    return normalize_name(text) in _marked()["strings"].get(label, {})


@cache
def _marked() -> dict[str, Any]:
    """Read what annotators mark, see training/scripts/marked.py."""
    marked: dict[str, Any] = srsly.read_gzip_json(_ASSETS / "marked.json.gz")
    return marked

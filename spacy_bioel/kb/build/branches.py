"""Branches of an ontology: the concepts below some ids, by the parents of the records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from spacy_bioel.errors import BioelError, Errors

if TYPE_CHECKING:
    from spacy_bioel.kb.build.merge import Drafts


@dataclass(frozen=True)
class Branches:
    """Choice of branches; each id stands for its concept and all that lie below it.

    under (Sequence[str]): Branches to keep; empty: all.
    exclude (Sequence[str]): Branches to leave out. A concept of both is left out.
    """

    under: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def kept(self, drafts: Drafts) -> set[str]:
        """Ids of the concepts to keep. Retired ids stand for those that replaced them.

        RAISES BioelError: [B310] on an id that the sources do not have.
        """
        children = defaultdict(list)
        for id, draft in drafts.current.items():
            for parent in draft.parents:
                children[parent].append(id)
        kept = set(drafts.current)
        if self.under:
            kept = _below([_current(id, drafts) for id in self.under], children)
        return kept - _below([_current(id, drafts) for id in self.exclude], children)


def _current(id: str, drafts: Drafts) -> str:
    current = drafts.retired.get(id, id)
    if current not in drafts.current:
        near = get_close_matches(id, [*drafts.current, *drafts.retired], n=3)
        hint = f"Did you mean: {', '.join(near)}?" if near else "Check the id and its prefix."
        raise BioelError(Errors.B310.format(id=id, hint=hint))
    return current


def _below(ids: Collection[str], children: Mapping[str, Sequence[str]]) -> set[str]:
    found, waiting = set(ids), list(ids)
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found

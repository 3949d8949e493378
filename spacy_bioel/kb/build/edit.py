"""Changes of the names of one concept, before they are columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.build.merge import Draft
from spacy_bioel.text.normalize import normalize_name


@dataclass(frozen=True, slots=True)
class NameEdit:
    """A change of the names of a concept; names are compared by `normalize_name`.

    add (Sequence[str]): Synonyms to add.
    remove (Sequence[str]): Names to remove; of the others the first is the preferred name then.
    rename (str): New preferred name; the one before stays as a synonym. "": none.
    """

    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    rename: str = ""

    def apply(self, draft: Draft, *, id: str, where: str, source: int) -> None:
        """Change the names of a draft.

        id, where: Concept and knowledge base, for messages.
        source (int): Source of new names, among `Drafts.sources`.
        RAISES BioelError: [B403] when there is no such name to remove, [B404] when none would be
            left, [B405] on a new name that no text could have, [B442] on one that is there.
        """
        for name in (*self.add, *([self.rename] if self.rename else [])):
            if not normalize_name(name):
                raise BioelError(Errors.B405.format(name=name))
        pairs = list(zip(draft.names, draft.sources, strict=True))
        known = {normalize_name(name): name for name in draft.names}
        for name in self.add:
            if (same := known.get(normalize_name(name))) is not None:
                raise BioelError(Errors.B442.format(path=where, id=id, name=name, same=same))
        pairs += [(name, source) for name in self.add]
        if self.rename:
            pairs = [(self.rename, source), *_without(pairs, self.rename)]
        for name in self.remove:
            left = _without(pairs, name)
            if len(left) == len(pairs):
                names = ", ".join(repr(name) for name, _ in pairs)
                raise BioelError(Errors.B403.format(path=where, id=id, name=name, names=names))
            if not left:
                raise BioelError(Errors.B404.format(path=where, id=id, name=name))
            pairs = left
        draft.names = [name for name, _ in pairs]
        draft.sources = [source for _, source in pairs]


def _without(pairs: list[tuple[str, int]], name: str) -> list[tuple[str, int]]:
    gone = normalize_name(name)
    return [(other, source) for other, source in pairs if normalize_name(other) != gone]

"""The `--as` option of `bioel link`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from typer import Option

from spacy_bioel.cli.console import show_note
from spacy_bioel.cli.link_options import LinkOptions, LinkRun
from spacy_bioel.plugins.curation.errors import CurationWarnings

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.export.rows import LinkedText
    from spacy_bioel.plugins.curation.mappings import LinksAs


@dataclass(frozen=True)
class VocabularyOptions(LinkOptions):
    """The option that replaces ids with another vocabulary's ids."""

    vocabulary: Annotated[
        str, Option("--as", help="Replace ids with their first cross-reference to this vocabulary.")
    ] = ""

    def change(
        self, linked: Iterable[LinkedText], nlp: Language, run: LinkRun
    ) -> Iterable[LinkedText]:
        """Replace link ids. RAISES BioelError: [B072] without a linker, [B609] as in `LinksAs`."""
        from spacy_bioel.loading import require_linker
        from spacy_bioel.plugins.curation.mappings import LinksAs

        if not self.vocabulary:
            return linked
        return self._changed(linked, LinksAs(self.vocabulary, require_linker(nlp, run.model).kb))

    def _changed(self, linked: Iterable[LinkedText], links_as: LinksAs) -> Iterator[LinkedText]:
        """Yield the changed documents, then warn [W412] about ids that were kept."""
        yield from map(links_as, linked)
        if links_as.kept:
            first = ", ".join(id for id, _ in links_as.kept.most_common(5))
            about = {"n": links_as.kept.total(), "name": self.vocabulary, "first": first}
            show_note(CurationWarnings.W412.format(**about))

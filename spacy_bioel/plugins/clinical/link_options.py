"""The `--context` option of `bioel link`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from typer import Option

from spacy_bioel.cli.console import show_note
from spacy_bioel.cli.link_options import LinkOptions, LinkRun
from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.clinical.errors import ClinicalErrors, ClinicalWarnings

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.export.rows import LinkedText

NOTE_NLP_SUFFIX = ".note_nlp.csv"


@dataclass(frozen=True)
class ContextOptions(LinkOptions):
    """Options for mention context."""

    context: Annotated[
        bool, Option("--context", help="Also mark mentions as negated, historical and so on.")
    ] = False

    def check(self, run: LinkRun) -> None:
        """Warn [W303] about output formats that cannot store the context.

        RAISES BioelError: [B491] if the input already has mentions.
        """
        from spacy_bioel.export.formats import WITH_FACTS

        if not self._is_wanted(run):
            return
        if run.takes_mentions:
            raise BioelError(ClinicalErrors.B491)
        for path, suffix in run.outputs.items():
            if suffix not in WITH_FACTS | {NOTE_NLP_SUFFIX}:
                show_note(ClinicalWarnings.W303.format(path=path))

    def adapt(self, nlp: Language, run: LinkRun) -> None:
        from spacy_bioel.plugins.clinical.presets import add_context

        is_stored = NOTE_NLP_SUFFIX in run.outputs.values() and not run.takes_mentions
        if self._is_wanted(run) or is_stored:
            add_context(nlp)

    def change(
        self, linked: Iterable[LinkedText], nlp: Language, run: LinkRun
    ) -> Iterable[LinkedText]:
        from spacy_bioel.loading import find_linker
        from spacy_bioel.plugins.clinical.note_nlp import has_omop_ids

        yield from linked
        linker = find_linker(nlp)
        is_note_nlp = NOTE_NLP_SUFFIX in run.outputs.values()
        if is_note_nlp and not (linker and has_omop_ids(linker.kb)):
            show_note(ClinicalWarnings.W415.format(kb=run.model))

    def _is_wanted(self, run: LinkRun) -> bool:
        return self.context or run.preset is not None

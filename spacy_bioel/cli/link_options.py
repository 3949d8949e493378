"""Options that plugins add to `bioel link`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from spacy_bioel.errors import BioelError
from spacy_bioel.registered import LINK_OPTIONS, known_plugins, load_registered, registered_names

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.export.rows import LinkedText


@dataclass(frozen=True)
class LinkRun:
    """The properties of a `bioel link` run that plugin options may depend on.

    model (str), preset (str | None): As given to the command.
    takes_mentions (bool): Whether the mentions come from the input.
    outputs (Mapping): The suffix of each output, which selects its format.
    """

    model: str
    preset: str | None
    takes_mentions: bool
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class LinkOptions:
    """Base class for a plugin's options: a dataclass with one field per option."""

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return {f.name: x for f in fields(self) if (x := getattr(self, f.name)) != f.default}

    def check(self, run: LinkRun) -> None:
        """Raise an error if options conflict, before any input is read."""

    def adapt(self, nlp: Language, run: LinkRun) -> None:
        """Change the loaded pipeline in place."""

    def change(
        self, linked: Iterable[LinkedText], nlp: Language, run: LinkRun
    ) -> Iterable[LinkedText]:
        """Return the linked documents to write, modified according to the options."""
        return linked


def option_classes() -> list[type[LinkOptions]]:
    """Return each plugin's options class.

    If a known plugin is missing or cannot be imported, its options are hidden; using one raises
    an error that says why.
    """
    classes: list[type[LinkOptions]] = []
    known = {name: offers.get(LINK_OPTIONS, []) for name, offers in known_plugins().items()}
    for plugin in dict.fromkeys([*registered_names(LINK_OPTIONS), *filter(known.get, known)]):
        try:
            classes.append(load_registered(LINK_OPTIONS, plugin))
        except BioelError as error:
            hidden: Any = [
                (f"{plugin}_{n}", Annotated[bool, _refused(option, error)], False)
                for n, option in enumerate(known.get(plugin, ()))
            ]
            classes.append(make_dataclass(plugin, hidden, bases=(LinkOptions,), frozen=True))
    return classes


def _refused(option: str, error: BioelError) -> Any:
    def refuse(is_given: bool) -> bool:
        if is_given:
            raise error
        return is_given

    return Option(option, hidden=True, callback=refuse)

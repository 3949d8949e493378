"""Load the entry points that plugins and other packages register for this package, in groups such
as `spacy_bioel_commands`.

The code does not name any plugin. known_plugins.toml, which is used only for messages, lists what
each plugin registers, so that an error can name the missing plugin.
"""

from __future__ import annotations

import tomllib
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.types import DeclaredFact

_GROUP = "spacy_bioel_"  # prefix of all entry point group names.
# Entry point groups. `NOUNS` has a noun for the entries in each group, for messages.
COMMANDS, ENGINES, FACTS = "commands", "engines", "facts"
FORMATS, FUNCTIONS = "formats", "functions"
LINK_OPTIONS, MAPPINGS, PRESETS = "link_options", "mappings", "presets"
ROUTES, TOOLS = "routes", "tools"  # the routes and tools that plugins add to the service
SPACY = "spacy"  # the functions for spaCy's configs; this group is only in known_plugins.toml
NOUNS = {
    COMMANDS: "command",
    ENGINES: "engine",
    FACTS: "fact",
    FORMATS: "output format",
    FUNCTIONS: "function",
    LINK_OPTIONS: "set of options",
    MAPPINGS: "format of mappings",
    PRESETS: "preset",
    ROUTES: "route",
    TOOLS: "agent tool",
    SPACY: "name",
}


@cache
def _registered(group: str) -> dict[str, EntryPoint]:
    """Return the entry points in a group by name; if two have the same name, the first wins."""
    return {point.name: point for point in reversed(tuple(entry_points(group=_GROUP + group)))}


def refuse_twice(group: str, name: str) -> None:
    """Raise an error if two packages register the same name. RAISES BioelError: [B660]"""
    points = entry_points(group=_GROUP + group, name=name)
    if len(values := list(dict.fromkeys(point.value for point in points))) > 1:
        about = {"what": NOUNS[group], "name": name}
        raise BioelError(Errors.B660.format(**about, first=values[0], second=values[1]))


def registered_names(group: str) -> list[str]:
    """Return the names in a group, without importing anything."""
    return list(_registered(group))


def all_names(group: str) -> list[str]:
    """Return the names in a group, including names that missing plugins would add."""
    return [*registered_names(group), *missing_names(group)]


def load_registered(group: str, name: str) -> Any:
    """Import and return the object registered under a name.

    RAISES BioelError: [B660] if two packages register it, [B661] if the plugin that registers it
        is missing, [B662] if it is unknown, [B663] if its import fails.
    """
    refuse_twice(group, name)
    about = {"what": NOUNS[group], "name": name}
    point = _registered(group).get(name)
    if point is None:
        refuse_if_missing(group, name)
        known = ", ".join(registered_names(group)) or "none"
        raise BioelError(Errors.B662.format(**about, known=known))
    try:
        return point.load()
    except Exception as error:  # a missing extra, or an error in another package
        problem = f"{type(error).__name__}: {error}"
        raise BioelError(Errors.B663.format(**about, module=point.module, error=problem)) from error


@cache
def declared_facts() -> dict[str, DeclaredFact]:
    """Return the declared facts by name; each defines how its values appear in outputs.

    A declaration that cannot be imported is skipped; stored values of the fact remain unchanged.
    """
    facts = {}
    for name in registered_names(FACTS):
        with suppress(BioelError):
            facts[name] = load_registered(FACTS, name)
    return facts


def refuse_if_missing(group: str, name: str) -> None:
    """Raise an error if a missing name belongs to a known plugin. RAISES BioelError: [B661]"""
    if plugin := name if group == LINK_OPTIONS else plugin_of(group, name):
        raise BioelError(Errors.B661.format(what=NOUNS[group], name=name, plugin=plugin))


def missing_names(group: str) -> list[str]:
    """Return the names in a group that known but missing plugins would add."""
    known = [name for offers in known_plugins().values() for name in offers.get(group, ())]
    return [name for name in known if name not in _registered(group)]


def plugin_of(group: str, name: str) -> str:
    """Return the known plugin that registers a name in a group, or ""."""
    plugins = known_plugins().items()
    return next((plugin for plugin, offers in plugins if name in offers.get(group, ())), "")


@cache
def known_plugins() -> dict[str, dict[str, list[str]]]:
    """Return what each plugin of this package registers, whether or not it is installed."""
    path = Path(__file__).with_name("known_plugins.toml")
    return tomllib.loads(path.read_text(encoding="utf8"))

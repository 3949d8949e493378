"""What plugins and other packages add to this one, as entry points in groups such as
`spacy_bioel_commands`.

Nothing in the package names a plugin, but for messages: known_plugins.toml tells in which plugin
something is that is missing.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError, Errors

# Groups of entry points, with a noun for what is registered there.
COMMANDS, ENGINES, FUNCTIONS = "commands", "engines", "functions"
ROUTES, TOOLS = "routes", "tools"  # of the service
NOUNS = {
    COMMANDS: "command",
    ENGINES: "engine",
    FUNCTIONS: "function",
    ROUTES: "route",
    TOOLS: "agent tool",
}


@cache
def _registered(group: str) -> dict[str, EntryPoint]:
    """Return what is registered in a group. RAISES BioelError: [B650] if a name is used twice."""
    by_name: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"spacy_bioel_{group}"):
        first = by_name.setdefault(point.name, point)
        if first.value != point.value:
            about = {"what": NOUNS[group], "name": point.name}
            raise BioelError(Errors.B650.format(**about, first=first.value, second=point.value))
    return by_name


def registered_names(group: str) -> list[str]:
    """Return the names in a group, without importing anything."""
    return list(_registered(group))


def load_registered(group: str, name: str) -> Any:
    """Import what is registered under a name.

    RAISES BioelError: [B651] if it belongs to a plugin that is missing, [B652] if it is unknown,
        [B653] if its import fails.
    """
    point = _registered(group).get(name)
    if point is None:
        about = {"what": NOUNS[group], "name": name}
        if plugin := plugin_of(group, name):
            raise BioelError(Errors.B651.format(**about, plugin=plugin))
        known = ", ".join(registered_names(group)) or "none"
        raise BioelError(Errors.B652.format(**about, known=known))
    try:
        return point.load()
    except Exception as error:  # a missing package of an extra, or an error in another package
        about = {"what": NOUNS[group], "name": name, "module": point.module}
        problem = f"{type(error).__name__}: {error}"
        raise BioelError(Errors.B653.format(**about, error=problem)) from error


def missing_names(group: str) -> list[str]:
    """Return the names in a group that known plugins would add, if they were installed."""
    known = [name for offers in _known_plugins().values() for name in offers.get(group, ())]
    return [name for name in known if name not in _registered(group)]


def plugin_of(group: str, name: str) -> str:
    """Return the known plugin to which a name in a group belongs, or ""."""
    plugins = _known_plugins().items()
    return next((plugin for plugin, offers in plugins if name in offers.get(group, ())), "")


@cache
def _known_plugins() -> dict[str, dict[str, list[str]]]:
    path = Path(__file__).with_name("known_plugins.toml")
    return tomllib.loads(path.read_text(encoding="utf8"))

"""Every name that setup.cfg registers can be resolved."""

import re
import subprocess
import sys
from configparser import ConfigParser
from importlib.metadata import distribution
from pathlib import Path
from typing import get_type_hints

import pytest
import spacy
from tiny import is_installed, needs

import spacy_bioel
from spacy_bioel.cli.link_options import option_classes
from spacy_bioel.registered import known_plugins

ROOT = Path(__file__).parents[1]
SETUP = ROOT / "setup.cfg"


def registered(plugin: str = "") -> dict[str, list[str]]:
    """Names of each group that lie in a plugin, or in none."""
    parser = ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keep the case of names
    parser.read(SETUP, encoding="utf8")
    names: dict[str, list[str]] = {}
    for group, text in parser["options.entry_points"].items():
        for name, place in re.findall(r"(\S.*) = (\S+)", text):
            if (re.match(r"spacy_bioel\.plugins\.(\w+)", place) or ["", ""])[1] == plugin:
                names.setdefault(group, []).append(name)
    return names


@pytest.mark.parametrize("plugin", [pytest.param(p, marks=needs(p)) for p in known_plugins()])
def test_messages_know_what_a_plugin_registers(plugin):
    known = known_plugins()[plugin]
    groups = registered(plugin)
    for_spacy = [n for group, names in groups.items() for n in names if "bioel" not in group]
    assert sorted(known.get("spacy", [])) == sorted(for_spacy)
    ours = {g.removeprefix("spacy_bioel_"): names for g, names in groups.items() if "bioel" in g}
    ours.pop("link_options", None)  # whose options the file lists
    assert {g: names for g, names in known.items() if g not in ("spacy", "link_options")} == ours
    options = {
        hint.__metadata__[0].default
        for cls in option_classes()
        if cls.__module__.startswith(f"spacy_bioel.plugins.{plugin}.")
        for hint in get_type_hints(cls, include_extras=True).values()
    }
    assert set(known.get("link_options", [])) == options


@pytest.mark.parametrize(
    "group", [name for name in registered() if name.startswith("spacy_") and "bioel" not in name]
)
def test_spacy_finds_the_names(group):
    spacy.blank("en")  # brings the factories
    registry = getattr(spacy.registry, group.removeprefix("spacy_"))
    assert all(callable(registry.get(name)) for name in registered()[group])


def test_what_is_tested_is_this_package(tmp_path):
    """Also in processes that tests start, and if it is a copy without plugins."""
    source = ROOT / "spacy_bioel"  # not there beside an installed wheel
    assert not source.is_dir() or Path(spacy_bioel.__file__).parent == source
    code = "import spacy_bioel; print(spacy_bioel.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == spacy_bioel.__file__
    modules = {point.module for point in distribution("spacy-bioel").entry_points}
    registering = {m.split(".")[2] for m in modules if m.startswith("spacy_bioel.plugins.")}
    assert registering == {
        name for name in known_plugins() if is_installed(f"spacy_bioel.plugins.{name}")
    }

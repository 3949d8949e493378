"""The package as it was installed: its metadata, its files, its commands, its first example.

`.ci/installed` runs this folder beside a wheel that was made from the source distribution, where
no source is.
"""

import json
import subprocess
import sys
from importlib import import_module, resources
from importlib.metadata import distribution
from pathlib import Path
from pkgutil import walk_packages

import pytest
import srsly

import spacy_bioel
from spacy_bioel.doc import get_links
from spacy_bioel.types import DeclaredFact

ROOT = Path(__file__).parents[2]
INSTALLED = distribution("spacy-bioel")
CLASSIFIERS = {
    "Programming Language :: Python :: 3.11",
    "Programming Language :: Python :: 3.12",
    "Programming Language :: Python :: 3.13",
    "Operating System :: OS Independent",
    "Typing :: Typed",
}


def test_there_is_one_version():
    assert INSTALLED.version == spacy_bioel.__version__ == "0.1.0"
    assert srsly.read_yaml(ROOT / "CITATION.cff")["version"] == spacy_bioel.__version__


def test_what_an_index_shows():
    about = INSTALLED.metadata
    assert about["License-Expression"] == "MIT"
    assert about["Requires-Python"] == "<3.14,>=3.11"
    assert about["Description-Content-Type"] == "text/markdown"
    assert set(about.get_all("Classifier")) >= CLASSIFIERS


@pytest.mark.parametrize(
    "file",
    [
        "py.typed",
        "assets/SOURCES.md",
        "assets/mesh.jsonl.xz",
        "assets/encoder/model.safetensors",
        "assets/starter/config.cfg",
        "assets/starter/bioel_mentions/model.safetensors",
    ],
)
def test_files_beside_the_code(file):
    assert resources.files("spacy_bioel").joinpath(file).is_file()


def test_all_entry_points_can_be_loaded():
    entry_points = INSTALLED.entry_points
    assert "bioel_linker" in {point.name for point in entry_points}
    loaded = [point.load() for point in entry_points]
    assert all(callable(x) or isinstance(x, DeclaredFact) for x in loaded)


def test_all_modules_can_be_imported():
    """But for those that need a package of an extra."""
    done, missing = [], set[str]()
    for module in walk_packages(spacy_bioel.__path__, "spacy_bioel."):
        if module.name == "spacy_bioel.__main__":  # it is the command
            continue
        try:
            done.append(import_module(module.name).__name__)
        except ModuleNotFoundError as error:
            missing.add((error.name or "").partition(".")[0])
    assert {"spacy_bioel.kb.build", "spacy_bioel.linking.pipe"} <= set(done)
    assert "spacy_bioel" not in missing


@pytest.mark.slow
def test_everything_is_installed_from_wheels():
    """`pip install --only-binary=:all: spacy-bioel`: packages are found, and not installed."""
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    requirements = [name for name in INSTALLED.requires or () if "extra ==" not in name]
    assert len(requirements) > 10
    options = ["--only-binary=:all:", "--report", "-"]
    done = subprocess.run([*pip, *options, *requirements], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    urls = [package["download_info"]["url"] for package in json.loads(done.stdout)["install"]]
    assert len(urls) > len(requirements)
    assert [url for url in urls if not url.endswith(".whl")] == []


def test_the_command():
    command = Path(sys.executable).parent / "bioel"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == "0.1.0\n"


@pytest.mark.slow
def test_the_first_example():
    doc = spacy_bioel.load()("Melanoma with the BRAF V600E mutation was treated with vemurafenib.")
    assert [(link.label, link.ids) for link in get_links(doc)] == [
        ("Disease", ("MESH:D008545",)),
        ("Gene", ("NCBIGene:673",)),
        ("Variant", ()),
        ("Chemical", ("MESH:D000077484",)),
    ]

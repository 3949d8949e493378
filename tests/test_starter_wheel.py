"""The wheel en_bioel_sm: made by the project without a network, it links as the package does."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from projects import copy_project, run_workflow
from wheels import links_of_wheel

import spacy_bioel
from spacy_bioel.doc import get_links

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
TEXT = "Human BRAF V600E is common in melanoma. It was treated with vemurafenib."


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = copy_project(tmp_path_factory.mktemp("project"))
    done = run_workflow(folder, "starter_pipeline")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "packages/starter/en_bioel_sm-0.1.0-py3-none-any.whl"


def test_it_links_as_the_package_does(wheel, tmp_path):
    found = links_of_wheel(wheel, [TEXT], tmp_path / "site")
    links = get_links(spacy_bioel.load()(TEXT))
    assert [link.ids for link in links] == [
        ("NCBITaxon:9606",),
        ("NCBIGene:673",),
        (),
        ("MESH:D008545",),
        ("MESH:D000077484",),
    ]
    assert found["1"] == found["2"] == [str(links)]


def test_its_model_card_and_requirement(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read("en_bioel_sm-0.1.0.dist-info/METADATA").decode()
    assert "Requires-Dist: spacy-bioel<0.2.0,>=0.1.0" in metadata
    assert "# en_bioel_sm" in metadata and "## On other texts" in metadata
    assert not [name for name in names if "/kb" in name]


def test_the_wheel_of_the_package_is_small(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT / "spacy_bioel", source / "spacy_bioel")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ["-m", "build", "--wheel", "--no-isolation", "--quiet", "--outdir", str(tmp_path)]
    subprocess.run([sys.executable, *build, str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 25_000_000
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "spacy_bioel/assets/genes.jsonl.xz",
        "spacy_bioel/assets/starter/config.cfg",
        "spacy_bioel/assets/starter/bioel_mentions/model.safetensors",
    } <= names

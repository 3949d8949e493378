"""A joint pipeline as a wheel: it links the same without checkpoint, knowledge base or network."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
from spacy.cli.package import package

from spacy_bioel.pipeline.annotate import get_links
from spacy_bioel.types import AnnotatedText

pytestmark = pytest.mark.slow
pytest.importorskip("transformers")

SCRIPT = Path(__file__).with_name("link_offline.py")


@pytest.fixture(scope="module")
def site(dual_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing in it but the contents of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    package(dual_folder, folder, name="joint", version="0.1.0", create_sdist=False)
    build = ["-m", "build", "--wheel", "--no-isolation", "--quiet", "--outdir", str(folder)]
    subprocess.run([sys.executable, *build, str(folder / "en_joint-0.1.0")], check=True)
    with zipfile.ZipFile(folder / "en_joint-0.1.0-py3-none-any.whl") as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def found(
    site: Path, texts: list[AnnotatedText], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Links that `link_offline.py` wrote."""
    folder = tmp_path_factory.mktemp("offline")
    srsly.write_json(folder / "texts.json", [text.text for text in texts])
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    run = [str(SCRIPT), "en_joint", "texts.json", "links.json"]
    done = subprocess.run(
        [sys.executable, *run], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return srsly.read_json(folder / "links.json")


def test_same_links_in_one_process_and_in_two(
    dual_folder: Path, texts: list[AnnotatedText], found: dict[str, Any]
) -> None:
    docs = spacy.load(dual_folder).pipe(text.text for text in texts)
    expected = [get_links(doc) for doc in docs]
    assert sum(map(len, expected)) > 30
    assert found["1"] == [str(links) for links in expected]
    assert found["2"] == found["1"]


def test_the_knowledge_base_is_in_the_wheel(site: Path, found: dict[str, Any]) -> None:
    assert found["kb"] == str(site / "en_joint/en_joint-0.1.0/bioel_linker/kb")

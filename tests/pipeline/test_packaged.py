"""A joint pipeline as a wheel: it links the same without checkpoint, knowledge base or network."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.cli.package import package
from wheels import links_of_wheel

from spacy_bioel.pipeline.annotate import get_links

pytestmark = pytest.mark.slow
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def wheel(dual_folder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    package(dual_folder, folder, name="joint", version="0.1.0", create_sdist=False)
    build = ["-m", "build", "--wheel", "--no-isolation", "--quiet", "--outdir", str(folder)]
    subprocess.run([sys.executable, *build, str(folder / "en_joint-0.1.0")], check=True)
    return folder / "en_joint-0.1.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def found(wheel, texts) -> dict[str, Any]:
    """Links that `link_offline.py` wrote."""
    return links_of_wheel(wheel, [text.text for text in texts], wheel.with_name("site"))


def test_same_links_in_one_process_and_in_two(dual_folder, texts, found):
    docs = spacy.load(dual_folder).pipe(text.text for text in texts)
    expected = [get_links(doc) for doc in docs]
    assert sum(map(len, expected)) > 30
    assert found["1"] == [str(links) for links in expected]
    assert found["2"] == found["1"]


def test_the_knowledge_base_is_in_the_wheel(wheel, found):
    kb = wheel.with_name("site") / "en_joint/en_joint-0.1.0/bioel_linker/kb"
    assert found["kb"] == str(kb)

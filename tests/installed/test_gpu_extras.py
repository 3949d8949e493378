"""The extras for GPUs can be installed: pip finds versions that fit together, without downloading
them. This needs a package index."""

import json
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pip
import pytest

ROOT = Path(__file__).parents[2]
PYTHONS = ("python3.11", "python3.12", "python3.13")


def requirements(*extras: str) -> list[str]:
    parser = ConfigParser(delimiters=("=",))
    parser.read(ROOT / "setup.cfg", encoding="utf8")
    groups = [parser["options"]["install_requires"]]
    groups += [parser["options.extras_require"][extra] for extra in extras]
    return "".join(groups).split()


def resolve(python: str, *arguments: str) -> dict[str, dict[str, Any]]:
    """Return the metadata of what pip would install, by name; skip the test if it cannot know."""
    if int(pip.__version__.partition(".")[0]) < 26:
        pytest.skip(f"pip {pip.__version__} would download gigabytes: needs pip 26")
    path = shutil.which(python)
    if not path or subprocess.run([path, "--version"], capture_output=True).returncode:
        pytest.skip(f"needs {python}")
    command = [sys.executable, "-m", "pip", "--python", path]
    if subprocess.run(
        [*command, "index", "versions", "cupy-cuda13x"], capture_output=True
    ).returncode:
        pytest.skip("needs a package index")
    command += ["install", "--dry-run", "--ignore-installed", "--use-feature=fast-deps", "--quiet"]
    found = subprocess.run([*command, "--report=-", *arguments], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    packages = [item["metadata"] for item in json.loads(found.stdout)["install"]]
    return {package["name"].lower(): package for package in packages}


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("cuda", ["12", "13"])
def test_cupy_and_pytorch_are_for_the_same_cuda(python, cuda):
    found = resolve(python, *requirements("train", "transformers", f"cuda{cuda}"))
    assert f"cupy-cuda{cuda}x" in found and found["spacy"]["version"].startswith("3.8.")
    assert int(found["cuda-toolkit"]["version"].partition(".")[0]) == int(cuda)
    libraries = " ".join(found["torch"]["requires_dist"])
    assert f"nvidia-cudnn-cu{cuda}" in libraries


@pytest.mark.slow
def test_the_tested_versions_suit_cuda_13():
    constraints = ("-c", str(ROOT / "constraints.txt"))
    assert "cupy-cuda13x" in resolve("python3.11", *constraints, *requirements("train", "cuda13"))

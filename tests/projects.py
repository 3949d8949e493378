"""Copies of the project, and its workflows run in them as a user would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def copy_project(folder: Path) -> Path:
    """Put project.yml and what it runs into a folder. RETURNS (Path): The folder."""
    shutil.copy(ROOT / "project.yml", folder)
    shutil.copytree(ROOT / "training", folder / "training")
    return folder


def run_workflow(folder: Path, name: str, *settings: str) -> subprocess.CompletedProcess[str]:
    """`spacy project run NAME` in a copy of the project.

    settings: As on the command line.
    """
    # With one thread, for several of them wait for each other on a machine that is busy.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("SPACY_CONFIG_OVERRIDES", None)
    run = ["-m", "spacy", "project", "run", name, ".", *settings]
    return subprocess.run(
        [sys.executable, *run], cwd=folder, env=environment, capture_output=True, text=True
    )

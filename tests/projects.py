"""Copies of the project, and its workflows run in them as a user would."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import srsly

from spacy_bioel.cli.corpora import convert
from spacy_bioel.io.jsonl import read_concepts_jsonl
from spacy_bioel.kb.build import build_kb

ROOT = Path(__file__).parents[1]
_TINY = """
[extends]
path = "{base}"
[components]
[components.bioel_mentions]
[components.bioel_mentions.model]
hidden = 16
[components.bioel_linker]
[components.bioel_linker.training]
synonyms = 8
[training]
max_steps = {steps}
eval_frequency = {every}
[training.optimizer]
[training.optimizer.learn_rate]
warmup_steps = {every}
total_steps = {total}
initial_rate = 0.001
"""


def prepare_tiny(folder: Path, steps: Sequence[int], *, every: int) -> Path:
    """Make the folder the current one, with a corpus "tiny", its knowledge base, and STEPS.cfg.

    every (int): Updates between evaluations. RETURNS (Path): The corpora.yml.
    """
    data = ROOT / "tests" / "data"
    os.chdir(folder)
    (folder / "corpus" / "tiny").mkdir(parents=True)
    for split in ("train", "dev"):
        convert(data / "six.PubTator.txt", Path(f"corpus/tiny/{split}.spacy"), prefix="MESH")
    build_kb(read_concepts_jsonl(data / "concepts.jsonl"), folder / "kb" / "tiny")
    srsly.write_yaml("corpora.yml", {"tiny": {"settings": {}, "label_types": {}}})
    base = ROOT / "training" / "configs" / "rescnn.cfg"
    for n in steps:
        Path(f"{n}.cfg").write_text(_TINY.format(base=base, steps=n, every=every, total=max(steps)))
    return folder / "corpora.yml"


def copy_project(folder: Path) -> Path:
    """Put project.yml and what it runs into a folder. RETURNS (Path): The folder."""
    shutil.copy(ROOT / "project.yml", folder)
    shutil.copytree(ROOT / "training", folder / "training")
    return folder


# `spacy project run`, whose steps are processes as ever, but forked from this one, which has
# imported already what most of them need.
_FORKING = """
import multiprocessing, os, runpy, sys
import spacy.cli, spacy.training.loop, torch
import spacy_bioel.cli, spacy_bioel.linking.pipe
import spacy_bioel.mentions.pipe
import weasel.cli.run

def execute(arguments):
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        exec(arguments[1])
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(arguments[0])
        runpy.run_path(arguments[0], run_name="__main__")

def run_command(command, **settings):
    sys.stdout.flush()
    process = multiprocessing.get_context("fork").Process(target=execute, args=(command[1:],))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)

weasel.cli.run.run_command = run_command
spacy.cli.setup_cli()
"""


def run_workflow(folder: Path, name: str, *settings: str) -> subprocess.CompletedProcess[str]:
    """`spacy project run NAME` in a copy of the project.

    settings: As on the command line.
    """
    # With one thread, for several of them wait for each other on a machine that is busy.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("SPACY_CONFIG_OVERRIDES", None)
    run = ["-c", _FORKING] if hasattr(os, "fork") else ["-m", "spacy"]
    run += ["project", "run", name, ".", *settings]
    return subprocess.run(
        [sys.executable, *run], cwd=folder, env=environment, capture_output=True, text=True
    )


def lines_of(script: str, *arguments: object) -> list[dict[str, Any]]:
    """The JSON lines that a script of this folder prints, in a process of its own."""
    path = os.pathsep.join([str(ROOT / "training/scripts"), os.environ.get("PYTHONPATH", "")])
    run = [sys.executable, Path(__file__).with_name(script), *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(run, check=True, capture_output=True, text=True, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

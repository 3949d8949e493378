"""Kills a training, each before one of its changes to the disk, and goes on with it.

python training_kills.py FOLDER N forks a process for each of N points, chosen at random, and prints
one JSON object a point: what was found after the kill, and after the next run. training/scripts has
to be on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import specs
import srsly
import train
from kill_points import in_child

from spacy_bioel.cli.convert import convert
from spacy_bioel.errors import BioelError
from spacy_bioel.io.jsonl import read_concepts_jsonl
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.pipeline.verifying import verify

ROOT = Path(__file__).parents[1]
CONFIG = """
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
eval_frequency = 1
[training.optimizer]
[training.optimizer.learn_rate]
warmup_steps = 1
total_steps = 9
"""


def prepare(folder: Path) -> None:
    data = ROOT / "tests" / "data"
    os.chdir(folder)
    (folder / "corpus" / "tiny").mkdir(parents=True)
    for split in ("train", "dev"):
        convert(data / "six.PubTator.txt", Path(f"corpus/tiny/{split}.spacy"), prefix="MESH")
    build_kb(read_concepts_jsonl(data / "concepts.jsonl"), folder / "kb" / "tiny")
    srsly.write_yaml("corpora.yml", {"tiny": {"settings": {}, "label_types": {}}})
    specs.CORPORA = folder / "corpora.yml"
    base = ROOT / "training" / "configs" / "rescnn.cfg"
    for steps in (1, 3, 9):
        Path(f"{steps}.cfg").write_text(CONFIG.format(base=base, steps=steps))


def run(out: Path, steps: int) -> None:
    """Train, or go on. It ends here when it fails: this is another process."""
    try:
        train.main("tiny", Path(f"{steps}.cfg"), out, resume=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def state(out: Path) -> dict[str, Any]:
    """What is wrong with each pipeline, to the last byte, and how many updates it has had."""
    found: dict[str, Any] = {}
    for name in train.MODELS:
        if (out / name).exists():
            try:
                wrong = list(verify(out / name).failed.values())
            except BioelError as error:
                wrong = [str(error)]
            found[name] = wrong or srsly.read_json(out / name / "meta.json")[train.STEPS]
    return found


def main(folder: Path, n: int) -> None:
    prepare(folder)
    out, before = folder / "out", folder / "before"
    in_child(lambda path: run(path, 1), before)
    shutil.copytree(before, out)
    ended, n_points = in_child(lambda path: run(path, 3), out)
    assert ended == 0, ended
    for point in sorted(random.Random(0).sample(range(1, n_points + 1), n)):
        shutil.rmtree(out)
        shutil.copytree(before, out)
        ended, _ = in_child(lambda path: run(path, 3), out, point=point)
        killed = state(out)
        again, _ = in_child(lambda path: run(path, 9), out)
        line = {"point": point, "killed": ended == -signal.SIGKILL, "whole": killed}
        line |= {"again": again, "after": state(out), "left": sorted(os.listdir(out))}
        print(json.dumps(line))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

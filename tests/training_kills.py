"""Kills a training, each before one of its changes to the disk, and goes on with it.

python training_kills.py FOLDER N forks a process for each of N points, chosen at random, and prints
one JSON object a point: what was found after the kill, and after the next run. training/scripts has
to be on PYTHONPATH.
"""

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
from projects import prepare_tiny

from spacy_bioel.errors import BioelError
from spacy_bioel.loading import verify_saved


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
                wrong = list(verify_saved(out / name).failed.values())
            except BioelError as error:
                wrong = [str(error)]
            found[name] = wrong or srsly.read_json(out / name / "meta.json")[train.STEPS]
    return found


def main(folder: Path, n: int) -> None:
    specs.CORPORA = prepare_tiny(folder, (1, 2, 3), every=1)
    out, before = folder / "out", folder / "before"
    in_child(lambda path: run(path, 1), before)
    shutil.copytree(before, out)
    ended, n_points = in_child(lambda path: run(path, 2), out)
    assert ended == 0, ended
    for point in sorted(random.Random(0).sample(range(1, n_points + 1), n)):
        shutil.rmtree(out)
        shutil.copytree(before, out)
        ended, _ = in_child(lambda path: run(path, 2), out, point=point)
        killed = state(out)
        again, _ = in_child(lambda path: run(path, 3), out)
        line = {"point": point, "killed": ended == -signal.SIGKILL, "whole": killed}
        line |= {"again": again, "after": state(out), "left": sorted(os.listdir(out))}
        print(json.dumps(line))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

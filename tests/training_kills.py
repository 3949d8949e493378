"""Kills trainings, and goes on with them.

python training_kills.py FOLDER N forks a process for each point: N changes to the disk, chosen at
random, of a training that goes on and of a new one, and each update of the new one. It prints one
JSON object a point: what was found after the kill, and after the next run. training/scripts has to
be on PYTHONPATH.
"""

import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import specs
import srsly
import train
from kill_points import EVENTS, in_child
from projects import prepare_tiny
from spacy.language import Language

from spacy_bioel.errors import BioelError
from spacy_bioel.loading import verify_saved

UPDATE = "training_kills.update"


def run(out: Path, *, steps: int) -> None:
    """Train, or go on. It ends here when it fails: this is another process."""
    try:
        train.main("tiny", Path(f"{steps}.cfg"), out, resume=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def audit_updates(out: Path) -> None:
    """Let each update be an event, which starts after what was saved has been moved to `out`."""
    update: Callable[..., Any] = Language.update

    def audited(*args: Any, **settings: Any) -> Any:
        sys.audit(UPDATE, out)
        return update(*args, **settings)

    Language.update = audited  # type: ignore[method-assign]


def contents(folder: Path) -> dict[Path, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in paths}


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
    specs.CORPORA = prepare_tiny(folder, (2, 4, 6), every=2)
    out, whole, before = folder / "out", folder / "whole", folder / "before"
    audit_updates(out)
    in_child(partial(run, steps=4), whole)
    in_child(partial(run, steps=2), before / "2")
    (before / "0").mkdir()
    for start, events in ((2, EVENTS), (0, EVENTS), (0, {UPDATE})):
        first, second = partial(run, steps=start + 2), partial(run, steps=start + 4)
        shutil.copytree(before / str(start), out)
        ended, n_points = in_child(first, out, events=events)
        assert ended == 0, ended
        points: Iterable[int] = range(1, n_points + 1)
        if events is EVENTS:
            points = sorted(random.Random(0).sample(points, n))
        for point in points:
            shutil.rmtree(out)
            shutil.copytree(before / str(start), out)
            ended, _ = in_child(first, out, point=point, events=events)
            killed = state(out)
            again, _ = in_child(second, out)
            line = {"start": start, "point": point, "killed": ended == -signal.SIGKILL}
            line |= {"whole": killed, "again": again, "after": state(out)}
            line |= {"same": contents(out) == contents(whole), "left": sorted(os.listdir(out))}
            print(json.dumps(line))
        shutil.rmtree(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

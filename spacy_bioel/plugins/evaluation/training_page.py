"""Write a page with a training run's losses and scores, and update it after each evaluation."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from spacy.language import Language

from spacy_bioel.export.pages import PAGES
from spacy_bioel.files import replacing_text
from spacy_bioel.scoring.scorers import Log, clock, column_title, create_console_log_v1


def create_training_page_v1(path: str) -> Callable[..., tuple[Log, Callable[[], None]]]:
    """Registered as `spacy-bioel.TrainingPage.v1`, for `[training.logger]`: the console log, and an
    HTML page of losses and scores over updates.

    If `[training.before_update]` resumes an earlier run, the page is continued.

    path (str): Path of the page. A .jsonl file next to it has one row of numbers per evaluation.
    """
    return partial(_open_page, path=Path(path))


def _open_page(
    nlp: Language, stdout: IO[str] = sys.stdout, stderr: IO[str] = sys.stderr, *, path: Path
) -> tuple[Log, Callable[[], None]]:
    log_to_console, _ = create_console_log_v1()(nlp, stdout, stderr)
    training, table = nlp.config["training"], path.with_suffix(".jsonl")
    done = (training.get("before_update") or {}).get("done", 0)
    earlier = table.read_text("utf8").splitlines() if done and table.is_file() else []
    rows = [row for row in map(json.loads, earlier) if row["update"] <= done]
    seconds = rows[-1]["seconds"] if rows else 0.0
    rows = [row for row in rows if row["update"] < done]  # this update is evaluated again
    n_logged = 0

    def write(*, ended: bool = False) -> None:
        lines = {
            kind: {name: [(row["update"], row[kind].get(name)) for row in rows] for name in names}
            for kind, names in (rows[-1] if rows else {}).items()
            if isinstance(names, dict)
        }
        template = PAGES.get_template("training.html")
        page = template.render(nlp=nlp, rows=rows, clock=clock, ended=ended, **lines)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing_text(table) as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        with replacing_text(path) as file:
            file.write(page)

    def log(info: dict[str, Any] | None) -> None:
        nonlocal n_logged
        log_to_console(info)
        if info is None or info["score"] is None:  # an update without an evaluation
            return
        n_updates, n_logged = info["step"] + 1 - n_logged, info["step"] + 1
        weights = training["score_weights"].items()
        scores = {name: info["other_scores"].get(name) for name, weight in weights if weight}
        scores = {"score": info["score"], **scores}
        row = {"update": done + info["step"], "epoch": info["epoch"]}
        row["seconds"] = seconds + info["seconds"]
        row["scores"] = {column_title(name): x and 100 * x for name, x in scores.items()}
        row["losses"] = {column_title(name): x / n_updates for name, x in info["losses"].items()}
        rows.append(row)
        write()

    return log, partial(write, ended=True)

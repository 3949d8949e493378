"""A page of a training: losses and scores over updates, written anew at each evaluation."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from spacy.language import Language

from spacy_bioel.evaluation.scorers import Log, clock, column_title, create_console_log_v1
from spacy_bioel.export.pages import PAGES
from spacy_bioel.files import replacing_text


def create_training_page_v1(path: str) -> Callable[..., tuple[Log, Callable[[], None]]]:
    """Registered as `spacy-bioel.TrainingPage.v1`, for `[training.logger]`: the console log, and an
    HTML page of losses and scores over updates.

    A training that is resumed, as `[training.before_update]` says, adds to the page.

    path (str): The page. Its numbers are also written next to it, as .jsonl: per row an evaluation.
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
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing_text(table) as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        with replacing_text(path) as file:
            file.write(_render(nlp, rows, ended=ended))

    def log(info: dict[str, Any] | None) -> None:
        nonlocal n_logged
        log_to_console(info)
        if info is None or info["score"] is None:  # an update without an evaluation
            return
        n_updates, n_logged = info["step"] + 1 - n_logged, info["step"] + 1
        scores = {name: info["other_scores"].get(name) for name, x in weights.items() if x}
        row = {"update": done + info["step"], "epoch": info["epoch"]}
        row |= {"seconds": seconds + info["seconds"], "score": info["score"], "scores": scores}
        row["losses"] = {name: loss / n_updates for name, loss in info["losses"].items()}
        rows.append(row)
        write()

    weights = training["score_weights"]
    return log, partial(write, ended=True)


def _render(nlp: Language, rows: list[dict[str, Any]], *, ended: bool) -> str:
    losses, scores = defaultdict(list), defaultdict(list)
    for row in rows:
        for name, loss in row["losses"].items():
            losses[column_title(name)].append((row["update"], loss))
        for name, score in {"score": row["score"], **row["scores"]}.items():
            scores[column_title(name)].append((row["update"], score and 100 * score))
    training, paths = nlp.config["training"], nlp.config.get("paths", {})
    return PAGES.get_template("training.html").render(
        pipes=nlp.pipe_names,
        steps=training["max_steps"],
        paths={name: paths[name] for name in ("train", "dev", "kb", "start") if paths.get(name)},
        last=rows[-1] if rows else None,
        best=max(rows, key=lambda row: row["score"], default=None),
        time=clock(rows[-1]["seconds"]) if rows else "",
        losses=losses,
        scores=scores,
        ended=ended,
    )

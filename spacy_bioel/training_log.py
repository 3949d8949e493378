"""Training's log, a row an evaluation, and its count of steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

from spacy.language import Language

Log = Callable[[dict[str, Any] | None], None]
_LEAST_WIDTH = 7


def create_console_log_v1() -> Callable[..., tuple[Log, Callable[[], None]]]:
    """Registered as `spacy-bioel.ConsoleLog.v1`, for `[training.logger]`.

    A row has the update and how many there are, the epoch, the loss of each pipe since the row
    before, the scores that count, in percent, their weighted sum by which the best pipeline is
    chosen, and the time so far and that which is left. spaCy's own log cuts the names of pipes and
    scores that begin alike to the same column title. Training may stop earlier, see `patience`.
    """
    return _open_log


def _open_log(
    nlp: Language, stdout: IO[str] = sys.stdout, stderr: IO[str] = sys.stderr
) -> tuple[Log, Callable[[], None]]:
    training = nlp.config["training"]
    pipes = [name for name, pipe in nlp.pipeline if getattr(pipe, "is_trainable", False)]
    pipes = [name for name in pipes if name not in training["frozen_components"]]
    scores = [name for name, weight in training["score_weights"].items() if weight]
    titles = ["update", "epoch", *(f"loss {_short(name)}" for name in pipes)]
    titles += [*map(_short, scores), "score", "time", "left"]
    widths = [max(_LEAST_WIDTH, len(title)) for title in titles]
    widths[0] = max(widths[0], len(_progress(training["max_steps"], training["max_steps"])))

    def write(cells: list[str]) -> None:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        stdout.write("   ".join(padded) + "\n")
        stdout.flush()

    write(titles)
    write(["-" * width for width in widths])

    def log(info: dict[str, Any] | None) -> None:
        if info is None or info["score"] is None:  # an update without an evaluation
            return
        step, most = info["step"], training["max_steps"]
        losses, found = info["losses"], info["other_scores"]
        left = info["seconds"] * (most - step) / step if step and most else None
        cells = [_progress(step, most), str(info["epoch"])]
        cells += [f"{losses.get(name, 0.0):.2f}" for name in pipes]
        cells += [_percent(found, name) for name in scores]
        write([*cells, f"{info['score'] * 100:.2f}", _clock(info["seconds"]), _clock(left)])

    return log, lambda: None


def _short(name: str) -> str:
    """Name a score or pipe without what the names of this package begin with: "mention f"."""
    return name.removeprefix("bioel_").replace("_", " ")


def _progress(step: int, most: int) -> str:
    return f"{step}/{most}" if most else str(step)


def _percent(scores: Mapping[str, Any], name: str) -> str:
    value = scores.get(name)
    return "-" if not isinstance(value, int | float) else f"{value * 100:.2f}"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


STEPS = "training_steps"


def create_step_counter_v1(*, done: int = 0) -> Callable[[Language, dict[str, Any]], None]:
    """Registered as `spacy-bioel.StepCounter.v1`, for `[training.before_update]`.

    Each saved pipeline then says in its meta.json, as `training_steps`, at which step of the
    training it was saved, so that training can go on from there.

    done (int): Updates of earlier runs.
    """

    def count_steps(nlp: Language, about: dict[str, Any]) -> None:
        nlp.meta[STEPS] = done + about["step"]

    return count_steps

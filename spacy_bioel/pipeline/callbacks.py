"""Callbacks of training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from spacy.language import Language

STEPS = "training_steps"


def create_step_counter_v1(*, done: int = 0) -> Callable[[Language, dict[str, Any]], None]:
    """Registered as `spacy-bioel.StepCounter.v1`, for `[training.before_update]`.

    Each saved pipeline then says in its meta.json, as `training_steps`, at which step of the
    training it was saved, so that training can go on from there.

    done (int): Updates of earlier runs.
    """
    return partial(_count_steps, done=done)


def _count_steps(nlp: Language, about: dict[str, Any], *, done: int) -> None:
    nlp.meta[STEPS] = done + about["step"]

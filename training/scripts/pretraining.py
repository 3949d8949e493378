"""Runs of pre-training: the learning rate, and a state that a run goes on from."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import typer
from safetensors.torch import load_file, save_file

from spacy_bioel.storage.atomic import replacing_folder

_LOGGER = logging.getLogger("pretrain")
_TENSORS, _ABOUT = "state.safetensors", "state.json"


def set_learn_rate(optimizer: torch.optim.Optimizer, step: int, settings: dict) -> None:
    """Set the rate of a step: a warm-up, and half a cosine down to a fiftieth."""
    progress = step / settings["steps"]
    rate = settings["learn_rate"] * min(1, (step + 1) / settings["warmup"])
    for group in optimizer.param_groups:
        group["lr"] = rate * (0.02 + 0.98 * (1 + math.cos(math.pi * progress)) / 2)


def save_state(
    folder: Path,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    about: dict[str, Any],
    tensors: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write the state of a run for `load_state`.

    about (dict): Its "step" and "settings", and whatever else JSON can hold.
    tensors (Mapping): Further ones.
    """
    state = {f"network.{k}": v for k, v in network.state_dict().items()} | dict(tensors or {})
    for number, values in optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{number}.{name}": value for name, value in values.items()}
    with replacing_folder(folder) as staging:
        save_file({k: v.contiguous() for k, v in state.items()}, staging / _TENSORS)
        (staging / _ABOUT).write_text(json.dumps(about), encoding="utf8")


def load_state(
    folder: Path, network: torch.nn.Module, optimizer: torch.optim.Optimizer, settings: dict
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Load network and optimizer. RETURNS (tuple): `about` and all tensors of `save_state`."""
    about = json.loads((folder / _ABOUT).read_text(encoding="utf8"))
    if about["settings"] != settings:
        raise typer.BadParameter(f"{folder} is of other settings; delete it to start anew")
    state = load_file(folder / _TENSORS)
    networks = {k: v for k, v in state.items() if k.startswith("network.")}
    network.load_state_dict({k.removeprefix("network."): v for k, v in networks.items()})
    values: dict[int, dict[str, Any]] = {}
    for key, value in state.items():
        if key.startswith("optimizer."):
            _, number, name = key.split(".")
            values.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": values})
    _LOGGER.info("Going on from step %d", about["step"])
    return about, state

"""Update steps of pre-training, and checkpoints to resume from."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from safetensors.torch import load_file, save_file
from thinc.api import get_torch_default_device

from spacy_bioel.files import replacing_folder

_LOGGER = logging.getLogger("pretrain")
_TENSORS_FILE, _STATE_FILE = "state.safetensors", "state.json"


class Run:
    """A pre-training run that saves checkpoints and can be resumed.

    settings (dict): The section [pretraining] of the config.
    scale (Parameter | None): Trained with the network, without weight decay.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        settings: dict[str, Any],
        *,
        random: np.random.Generator,
        scale: torch.nn.Parameter | None = None,
        **options: Any,
    ) -> None:
        self.settings, self.random, self.scale = settings, random, scale
        self.device = get_torch_default_device()
        self.network = network.to(self.device)
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        decay = settings["weight_decay"]
        groups: list[dict[str, Any]] = [{"params": self.parameters, "weight_decay": decay}]
        if scale is not None:
            groups.append({"params": [scale], "weight_decay": 0.0})
        self.optimizer = torch.optim.AdamW(groups, **options)
        self.step = 0

    def take_step(self, loss: Callable[[], torch.Tensor]) -> float:
        """Update the network to reduce a loss.

        After a warm-up the learning rate falls along half a cosine to a fiftieth.
        """
        progress = self.step / self.settings["steps"]
        rate = self.settings["learn_rate"] * min(1, (self.step + 1) / self.settings["warmup"])
        for group in self.optimizer.param_groups:
            group["lr"] = rate * (0.02 + 0.98 * (1 + math.cos(math.pi * progress)) / 2)
        value = loss()
        self.optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.step += 1
        return float(value.detach())

    def save(self, folder: Path) -> None:
        state = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        state |= {"random": torch.get_rng_state()}
        state |= {"scale": self.scale.detach()} if self.scale is not None else {}
        for number, values in self.optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{number}.{name}": value for name, value in values.items()}
        about = {"step": self.step, "random": self.random.bit_generator.state}
        about["settings"] = self.settings
        with replacing_folder(folder) as staging:
            save_file({k: v.contiguous() for k, v in state.items()}, staging / _TENSORS_FILE)
            (staging / _STATE_FILE).write_text(json.dumps(about), encoding="utf8")

    def resume(self, folder: Path) -> None:
        """Load the state that `save` wrote, if the folder exists."""
        if not folder.is_dir():
            return
        about = json.loads((folder / _STATE_FILE).read_text(encoding="utf8"))
        if about["settings"] != self.settings:
            raise typer.BadParameter(f"{folder} has other settings; delete it to start again")
        state = load_file(folder / _TENSORS_FILE)
        networks = {k: v for k, v in state.items() if k.startswith("network.")}
        self.network.load_state_dict({k.removeprefix("network."): v for k, v in networks.items()})
        values: dict[int, dict[str, Any]] = {}
        for key, value in state.items():
            if key.startswith("optimizer."):
                _, number, name = key.split(".")
                values.setdefault(int(number), {})[name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": values})
        if self.scale is not None:
            self.scale.data = state["scale"].to(self.device)
        torch.set_rng_state(state["random"])
        self.random.bit_generator.state = about["random"]
        self.step = about["step"]
        _LOGGER.info("Resuming from step %d", self.step)

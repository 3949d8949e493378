"""Memory and time of the linking loss by the size of the entity vocabulary.

python -m benchmarks.restricted_softmax computes the loss of one update and its gradient, over all
classes and over those of the batch with a sample of random and hard ones, as
training/configs/multitask.cfg has it. Kept are the tensors that the backward pass needs; a step
also has, in both, the gradient of the table of classes, which is as large as the table.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import typer
from torch import Tensor

from benchmarks.record import measurement, save
from spacy_bioel.nn.losses import restricted_softmax_loss

CLASSES = (1_000, 10_000, 35_000)
MENTIONS, WIDTH = 160, 448  # of eight abstracts; MiniLM beside the small CNN
RANDOM, HARD = 64, 4
REPEATS = 20


def main() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as training does
    rows = []
    for n in CLASSES:
        for system in ("all classes", "restricted"):
            kept, seconds = measure(system, n)
            about = {"n": n, "classes": n, "mentions": MENTIONS, "width": WIDTH, "seed": 0}
            for metric, value in (("megabytes", kept / 2**20), ("milliseconds", 1000 * seconds)):
                row = {"metric": metric, "value": round(value, 2)}
                rows.append(measurement("restricted_softmax", system, **about, **row))
            typer.echo(f"{n} {system}: {kept / 2**20:.2f} MB kept, {1000 * seconds:.1f} ms")
    typer.echo(save("restricted_softmax", rows))


def measure(system: str, n_classes: int) -> tuple[int, float]:
    """Bytes that the backward pass needs, beside parameters, and seconds of an update's loss."""
    torch.manual_seed(0)
    classes, bias = torch.nn.Embedding(n_classes, WIDTH), torch.zeros(n_classes, requires_grad=True)
    states = torch.randn(MENTIONS, WIDTH, requires_grad=True)
    target = torch.randint(n_classes // 10, (MENTIONS,))

    def loss() -> Tensor:
        if system == "all classes":
            logits = states @ classes.weight.T + bias
            return torch.nn.functional.cross_entropy(logits, target)
        others = torch.cat([torch.randint(n_classes, (RANDOM,)), hard_classes()])
        return restricted_softmax_loss(
            states, classes, bias, target, weight=torch.ones(MENTIONS), others=others
        )

    @torch.no_grad()
    def hard_classes() -> Tensor:
        # In parts, as `nn.multitask` does.
        n = max(1, (1 << 22) // n_classes)
        parts = [(s @ classes.weight.T).topk(HARD + 1).indices for s in states.split(n)]
        return torch.cat([part.flatten() for part in parts]).unique()

    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss().backward()
    own: Any = (classes.weight, bias, states)
    for parameter in own:
        sizes.pop(parameter.untyped_storage().data_ptr(), None)
    start = time.process_time()
    for _ in range(REPEATS):
        loss().backward()
    return sum(sizes.values()), (time.process_time() - start) / REPEATS


if __name__ == "__main__":
    main()

"""Memory and time of the linking loss by the size of the entity vocabulary.

python -m benchmarks.run restricted_softmax computes the loss of one update and its gradient, over
all classes and over those of the batch with a sample of random and hard ones, as
training/configs/multitask.cfg has it. Kept are the tensors that the backward pass needs; a step
also has, in both, the gradient of the table of classes, which is as large as the table.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.record import Row, question, rows_of
from spacy_bioel.nn.losses import restricted_softmax_loss

_MENTIONS, _WIDTH = 160, 448  # of eight abstracts; MiniLM beside the small CNN
_RANDOM, _HARD = 64, 4
_REPEATS = 20


@question("restricted_softmax")
def restricted_softmax() -> Iterator[Row]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as training does
    for n in (1_000, 10_000, 35_000):
        for system in ("all classes", "restricted"):
            values = _measure(system, n)
            about = {"n": n, "classes": n, "mentions": _MENTIONS, "width": _WIDTH, "seed": 0}
            yield from rows_of(system, values, **about)


def _measure(system: str, n_classes: int) -> dict[str, float]:
    torch.manual_seed(0)
    classes = torch.nn.Embedding(n_classes, _WIDTH)
    bias = torch.zeros(n_classes, requires_grad=True)
    states = torch.randn(_MENTIONS, _WIDTH, requires_grad=True)
    target = torch.randint(n_classes // 10, (_MENTIONS,))

    def loss() -> Tensor:
        if system == "all classes":
            logits = states @ classes.weight.T + bias
            return torch.nn.functional.cross_entropy(logits, target)
        with torch.no_grad():  # in parts, as `nn.multitask` does
            parts = states.split(max(1, (1 << 22) // n_classes))
            hard = [(part @ classes.weight.T).topk(_HARD + 1).indices.flatten() for part in parts]
        others = torch.cat([torch.randint(n_classes, (_RANDOM,)), torch.cat(hard).unique()])
        weight = torch.ones(_MENTIONS)
        return restricted_softmax_loss(states, classes, bias, target, weight=weight, others=others)

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
    for _ in range(_REPEATS):
        loss().backward()
    milliseconds = 1000 * (time.process_time() - start) / _REPEATS
    return {"megabytes": sum(sizes.values()) / 2**20, "milliseconds": milliseconds}

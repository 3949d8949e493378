import torch

from spacy_bioel.plugins.contextual.token_networks import (
    LINK_TASK,
    MENTION_TASK,
    TYPE_TASK,
    Multitask,
)


def network(hidden: int) -> Multitask:
    torch.manual_seed(0)
    return Multitask(
        tasks=[MENTION_TASK, TYPE_TASK, LINK_TASK],
        per_token=True,
        hidden=hidden,
        layers=1,
        n_types=3,
        n_classes=5,
        nil_weight=0.5,
        hard=0,
        dim=0,
        width=8,
        max_width=4,
        n_features=2,
        dropout=0.0,
    ).eval()


def states(net: Multitask, last: str | None = None) -> dict[str, torch.Tensor]:
    none = torch.zeros((0, 3), dtype=torch.int64)
    tokens = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    return net.states(tokens, torch.tensor([3, 2]), none, none[:, :2], last=last)


def test_states_of_levels_are_as_large_as_token_vectors():
    found = states(network(hidden=6))
    assert list(found) == ["mentions", "types", "links"]
    for of_level in found.values():
        assert of_level.shape == (5, 12)
        assert torch.allclose(of_level.var(1, correction=0), torch.ones(5), atol=1e-2)
    # Levels above the last that is needed are not computed.
    assert list(states(network(hidden=6), last=MENTION_TASK)) == ["mentions"]


def test_without_hierarchy_all_tasks_share_states():
    found = states(network(hidden=0))
    assert found[LINK_TASK] is found[MENTION_TASK]
    assert found[LINK_TASK].shape == (5, 8)

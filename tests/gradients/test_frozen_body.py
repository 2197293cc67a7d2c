"""A frozen body is run once on all records of all runs, as it is: no rule, no window and no graph of it is kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from honestdp.gradients import Prepared, per_example
from honestdp.gradients.layers.convolution import Convolution, Geometry

RUNS, LOT = 2, 5
LOSS = nn.CrossEntropyLoss(reduction="none")


def model() -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 2), nn.Flatten())
    return nn.Sequential(body.requires_grad_(False), nn.Linear(16, 3))


def lots() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(RUNS, LOT, 1, 8, 8, generator=generator), torch.randint(0, 3, (RUNS, LOT), generator=generator)


def weights(module: nn.Module) -> dict[str, Tensor]:
    free = {name: value for name, value in module.named_parameters() if value.requires_grad}
    return {name: torch.stack([value.detach(), 2 * value.detach()]) for name, value in free.items()}


def test_frozen_convolutions_are_called_once_for_all_runs_and_nothing_of_them_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, (x, y) = model(), lots()
    params = weights(module)
    prepared = Prepared(module, LOSS)
    with torch.no_grad():
        prepared(params, x, y)  # with its trials

    def refused(*_: object, **__: object) -> Tensor:
        raise AssertionError("work for each example of a frozen layer")

    for kind, name in ((Convolution, "forward"), (Convolution, "gradients"), (Geometry, "windows")):
        monkeypatch.setattr(kind, name, refused)
    monkeypatch.setattr(torch.func, "vmap", refused)
    seen: list[tuple[int, bool]] = []
    original = nn.Conv2d.forward

    def noted(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
        out = original(layer, inputs)
        seen.append((len(inputs), out.requires_grad))
        return out

    monkeypatch.setattr(nn.Conv2d, "forward", noted)
    with torch.no_grad():
        prepared(params, x, y)
    assert seen == [(RUNS * LOT, False)] * 2


def test_the_head_s_gradients_are_those_of_a_head_on_the_features() -> None:
    module, (x, y) = model(), lots()
    with torch.no_grad():
        features = module[0](x.flatten(0, 1)).view(RUNS, LOT, -1)
    whole = per_example(module, LOSS, weights(module), x, y)
    alone = per_example(module[1], LOSS, weights(module[1]), features, y)
    assert torch.allclose(whole.norms, alone.norms, rtol=1e-5)
    every = torch.ones(RUNS, LOT)
    assert torch.allclose(
        whole.weighted_sum(every)["1.weight"], alone.weighted_sum(every)["weight"], rtol=1e-4, atol=1e-6
    )

"""What a population makes of the test records: right answers, or the mean squared error, of every run.

24 looks at 10000 images are 40 per cent of the records of a training, forward alone. So where the engine has kernels for the
convolutions of whole populations, a look goes through them, a convolution with its ReLU and its pool in one, once they are known
to answer as torch does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from honestdp.boundary.intake import Intake
from honestdp.gradients.by_formula import Pool
from honestdp.gradients.layers.convolution import Geometry
from honestdp.gradients.layers.linear import linear
from honestdp.gradients.precision import products
from honestdp_papers.galli2024.setting import Task
from honestdp_papers.parts import Array

_ROOM = {"cuda": 1 << 29, "cpu": 1 << 24}
"""Numbers of the widest layer that an evaluation may hold at once."""
_TRIED = 32
_NEAR = 0.02
"""By which outputs may be off torch's, as a share of their size: TensorFloat-32 has three digits."""
_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
_PLAIN = (nn.ReLU, nn.Flatten, nn.MaxPool2d)
Views = dict[str, Tensor]


class Link(NamedTuple):
    """A layer by its place in the model. relu, pool: of a convolution, what follows it and is made with it."""

    name: str
    layer: nn.Module
    relu: bool = False
    pool: int = 1


def links_of(model: nn.Module) -> list[Link] | None:
    """The model as convolutions, dense layers and what goes between them; None where it is not made of these alone."""
    if not isinstance(model, nn.Sequential):
        return None
    found: list[Link] = []
    for name, layer in model.named_children():
        last = found[-1] if found else None
        after = last is not None and type(last.layer) in _CONVOLUTIONS and last.pool == 1
        if after and last is not None and type(layer) is nn.ReLU:
            found[-1] = last._replace(relu=True)
        elif after and last is not None and _is_plain_pool(layer):
            # The largest of rising values is the value of the largest.
            found[-1] = last._replace(pool=2)
        elif type(layer) in (*_CONVOLUTIONS, nn.Linear, *_PLAIN):
            found.append(Link(name, layer))
        else:
            return None
    return found if any(type(link.layer) in _CONVOLUTIONS for link in found) else None


def _is_plain_pool(layer: nn.Module) -> bool:
    pool = Pool.of(layer)
    return pool is not None and pool.side == 2


def by_kernels(links: list[Link], views: Views, x: Tensor) -> Tensor | None:
    """The outputs `[runs, examples, ...]` of every run for the same x `[examples, ...]`; None where kernels do not take it."""
    runs = len(next(iter(views.values())))
    shown = x.expand(runs, *x.shape).flatten(0, 1)
    for link in links:
        if isinstance(link.layer, nn.Conv2d | nn.ConvTranspose2d):
            made = _convolved(link, Geometry.of(link.layer), views, shown)
            if made is None:
                return None
            shown = made
        elif isinstance(link.layer, nn.Linear):
            own = {name: views[f"{link.name}.{name}"] for name in ("weight", "bias") if f"{link.name}.{name}" in views}
            shown = linear(own, shown, runs=runs)
        else:
            shown = link.layer(shown)
    return shown.view(runs, len(x), *shown.shape[1:])


def _convolved(link: Link, geometry: Geometry, views: Views, x: Tensor) -> Tensor | None:
    weight, bias = views[f"{link.name}.weight"], views.get(f"{link.name}.bias")
    if not geometry.transposed:
        how = geometry.implicit(x, weight, pool=link.pool)
        return None if how is None else how.forward(x, weight, bias, relu=link.relu)[0]
    how = geometry.mirrored(x, weight)
    return None if how is None else how.transposed(x, weight, bias, relu=link.relu)


class Exam:
    """Test records on the device, and what a population makes of them."""

    def __init__(self, task: Task, intake: Intake, place: torch.device, records: tuple[Tensor, Tensor]) -> None:
        self._model, self._layout, self._task = intake.question.model, intake.layout, task
        self._x, self._y = (part.to(place) for part in records)
        self._some = max(1, _ROOM[place.type] // _widest(self._model, self._x[:1]))
        self.name = "error" if task.error else "right"
        self.dtype = np.float32 if task.error else np.uint16
        self._links = links_of(self._model)
        if self._links is not None and not self._agrees(self._links):
            self._links = None

    @torch.no_grad()
    def measured(self, weights: Tensor) -> Array:
        """weights `[runs, d]` -> `[runs]`. Words, and convolutions where there are kernels, take several runs in one product;
        other convolutions go run by run, which is faster than grouped ones.
        """
        totals = torch.cat([self._total(outputs) for outputs in self._ways(weights)])
        found: Array = (totals / len(self._y) if self._task.error else totals).cpu().numpy().astype(self.dtype)
        return found

    def _ways(self, weights: Tensor) -> Iterator[Callable[[Tensor], Tensor]]:
        """From records to the outputs of some runs, `[runs, records, ...]`; all runs in turn."""
        if self._task.image and self._links is None:
            for one in weights:
                parameters = {name: view[0] for name, view in self._layout.views(one[None]).items()}
                yield lambda x, own=parameters: self._outputs(own, x)[None]  # type: ignore[misc]
            return
        several = torch.func.vmap(self._outputs, (0, None))
        for some in torch.split(weights, max(1, self._some // len(self._y))):
            views = self._layout.views(some)
            yield partial(self._kernels, views) if self._links is not None else partial(several, views)

    def _outputs(self, parameters: Views, x: Tensor) -> Tensor:
        found: Tensor = functional_call(self._model, parameters, (x,))
        return found

    def _kernels(self, views: Views, x: Tensor) -> Tensor:
        assert self._links is not None
        with products("high", x.device):
            found = by_kernels(self._links, views, x)
        assert found is not None
        return found

    def _total(self, outputs: Callable[[Tensor], Tensor]) -> Tensor:
        """`[runs]`."""
        parts = []
        for x, y in zip(torch.split(self._x, self._some), torch.split(self._y, self._some), strict=True):
            answers = outputs(x)
            if self._task.error:
                parts.append((answers - y).square().flatten(2).mean(dim=2).double().sum(dim=1))
            else:
                parts.append((answers.argmax(dim=-1) == y).sum(dim=-1))
        return torch.stack(parts).sum(dim=0)

    @torch.no_grad()
    def _agrees(self, links: list[Link]) -> bool:
        """Whether kernels take the model and give torch's outputs, of two runs of made-up weights."""
        generator = torch.Generator().manual_seed(0)
        drawn = torch.rand(2, self._layout.width, generator=generator).to(self._x) - 0.5
        views = {name: view / view[0].numel() ** 0.25 for name, view in self._layout.views(drawn).items()}
        x = self._x[:_TRIED]
        with products("high", x.device):
            found = by_kernels(links, views, x)
        if found is None:
            return False
        with products("highest", x.device):
            right = torch.stack([self._outputs({name: view[i] for name, view in views.items()}, x) for i in range(2)])
        return bool((found - right).norm() <= _NEAR * right.norm())


def _widest(model: nn.Module, x: Tensor) -> int:
    """Numbers of the widest layer of an example's way through the model."""
    shown = [x.numel()]
    hooks = [layer.register_forward_hook(lambda _m, _i, out: shown.append(out.numel())) for layer in model.modules()]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return max(shown)

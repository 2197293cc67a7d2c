"""The federated network of many runs at once on a GPU: gradients of whole lots and the rules' updates, captured as a graph.

What it computes is what `local_steps` computes by torch and the rules themselves; `federated_compare` makes a few steps of both
and refuses where they differ, before anything is trained. Nothing is private here, so no gradient of a single image is needed.
Weights lie in an order of their own, every layer `[inputs, outputs]`, so that products read them as they are. Dense products are
TF32, as those of the convolutions (`federated_kernels`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from honestdp.checks import HonestdpError
from honestdp.gradients.layout import Layout, layout_of
from honestdp.optimizers import ADADP, SGD, Adam, Rule
from honestdp.optimizers.adadp import FASTER, SLOWER
from honestdp.optimizers.adam import XI
from honestdp_papers.koskela2020 import federated_kernels as kernels
from honestdp_papers.koskela2020.local_steps import Side, sides_of

UNROLL = 20
"""Steps of a graph; even, for an iteration of ADADP is two."""
_BLOCK = 1024
LAUNCH: dict[str, dict[str, int]] = {
    "conv1": {"BLOCK": 32, "num_warps": 2}, "conv1_weights": {"BLOCK": 16, "num_warps": 2},
    "conv2": {"BLOCK": 128, "num_warps": 8}, "conv2_weights": {"BLOCK": 128}, "conv2_back": {"BLOCK": 64},
    "_SGD": {"ROWS": 16, "COLUMNS": 256}, "_ADADP": {"ROWS": 32, "COLUMNS": 128}, "_Adam": {"ROWS": 16, "COLUMNS": 256},
}  # fmt: skip
"""Tiles of the kernels and of the large layers' updates: the fastest on an H200."""
_LARGE = ("dense1", "dense2")
_SHAPES = {
    "conv1": (28, 64), "conv2": (576, 64), "bias2": (64,), "shift1": (500,), "shift2": (500,), "dense3": (500, 10),
    "shift3": (10,), "gap": (-(-6010 // 16) * 16 - 6010,), "dense1": (1600, 500), "dense2": (500, 500),
}  # fmt: skip
"""The two large layers are at the end; everything begins where 16 numbers do that is read in blocks."""


def places(layout: Layout) -> Tensor:
    """Where each weight of a row of ours lies in a row of `layout`; -1 for a gap."""
    own = layout.views(torch.arange(layout.width)[None])
    conv1, bias1, conv2, bias2, *dense = (own[name][0] for name in layout.names)
    first = torch.cat([conv1.reshape(64, 27).T, bias1[None]])
    second = conv2.reshape(64, 64, 9).permute(2, 1, 0)
    # Flattened images are (channel, place) in torch and (place, channel) here.
    third = dense[0].reshape(500, 64, 25).permute(2, 1, 0)
    pieces = [first, second, bias2, dense[1], dense[3], dense[4].T, dense[5]]
    small = torch.cat([piece.reshape(-1) for piece in pieces])
    gap = small.new_full(_SHAPES["gap"], -1)
    return torch.cat([small, gap, third.reshape(-1), dense[2].T.reshape(-1)])


def _views(flat: Tensor) -> dict[str, Tensor]:
    found, at = {}, 0
    for name, shape in _SHAPES.items():
        size = torch.Size(shape).numel()
        found[name] = flat[:, at : at + size].view(len(flat), *shape)
        at += size
    return found


class Network:
    """As `LocalSteps`, for the supplement's network on a GPU. images: `[N, 3, 32, 32]`, classes: `[N]`."""

    def __init__(self, model: nn.Module, rules: Sequence[Rule], images: Tensor, classes: Tensor, *, lot: int) -> None:
        device, runs = images.device, len(rules)
        self.layout, self.lot, self._images = layout_of(model), lot, images
        self._places = places(self.layout).to(device)
        self._answers = nn.functional.one_hot(classes, 10).float()
        self._width, self._examples = len(self._places), runs * lot
        self._params = torch.zeros(runs, self._width, device=device)
        self._gradient = torch.zeros_like(self._params)
        self._w, self._g = _views(self._params), _views(self._gradient)
        self._factors: dict[str, tuple[Tensor, Tensor]] = {}
        self._updates = [
            _update(side, self._params[side.rows], self._gradient[side.rows]) for side in sides_of(rules, device)
        ]
        self._lots = torch.zeros(UNROLL, self._examples, dtype=torch.int32, device=device)
        self._half2 = torch.zeros(runs, 576, 64, dtype=torch.float16, device=device)
        self._h1, self._slope1 = self._blank(196, 64).half(), self._blank(196, 64).half()
        self._z2, self._slope2 = self._blank(144, 64), self._blank(144, 64).half()
        self._h2, self._each = self._blank(25, 64), self._blank(28, 64)
        self._pick1, self._pick2 = self._blank(196, 64).to(torch.uint8), self._blank(25, 64).to(torch.uint8)
        self._graph: torch.cuda.CUDAGraph | None = None

    def _blank(self, *shape: int) -> Tensor:
        return torch.zeros(self._examples, *shape, device=self._params.device)

    @property
    def weights(self) -> Tensor:
        """`[runs, d]`, in the model's order."""
        return self._ordered(self._params)

    @weights.setter
    def weights(self, rows: Tensor) -> None:
        self._params.copy_(torch.where(self._places < 0, 0.0, rows[:, self._places.clamp(min=0)]))

    @property
    def step_sizes(self) -> Tensor:
        return torch.cat([update.step_sizes for update in self._updates])

    @property
    def errors(self) -> Tensor:
        """ADADP's of its last iteration, `[runs]`; NaN for other rules."""
        return torch.cat([update.errors for update in self._updates])

    @property
    def gradient(self) -> Tensor:
        """Of the last `differentiate`, `[runs, d]`, in the model's order. Of the large layers it is made for this alone."""
        for name, (hidden, slope) in self._factors.items():
            self._g[name].copy_(hidden.mT @ slope)
        return self._ordered(self._gradient)

    def moments(self) -> list[tuple[slice, float, Tensor]]:
        """Of runs of Adam: which they are, beta1, and a copy of their first moment, `[runs, d]`, in the model's order."""
        adams = [update for update in self._updates if isinstance(update, _Adam)]
        return [(adam.rows, adam.betas[0], self._ordered(adam.memory[0])) for adam in adams]

    def _ordered(self, rows: Tensor) -> Tensor:
        found = torch.zeros(len(rows), self.layout.width, device=rows.device)
        there = self._places >= 0
        found[:, self._places[there]] = rows[:, there]
        return found

    def make(self, lots: Tensor) -> None:
        """Local steps from the weights as they are. lots: which images, `[steps, runs, lot]`; whole graphs of them."""
        with tf32():
            if self._graph is None:
                self._graph = self._captured()
            for some in lots.view(-1, UNROLL, self._examples):
                self._lots.copy_(some)
                self._graph.replay()

    def step(self, lot: Tensor, *, second: bool) -> None:
        """lot: `[runs * lot]`. second: of an iteration of ADADP."""
        self.differentiate(lot)
        for update in self._updates:
            update(second, self._factors)

    def _all(self) -> None:
        for number, lot in enumerate(self._lots):
            self.step(lot, second=number % 2 == 1)

    def _captured(self) -> torch.cuda.CUDAGraph:
        """A rehearsal comes first, for libraries must have been used once; what it moved is put back."""
        kept = [self._params, *(value for update in self._updates for value in update.memory)]
        before = [value.clone() for value in kept]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._all()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._all()
        for value, was in zip(kept, before, strict=True):
            value.copy_(was)
        return graph

    def differentiate(self, lot: Tensor) -> None:
        """The mean gradient of every run's lot. lot: `[runs * lot]`."""
        self._forward(lot)
        self._backward(lot, self._dense(lot))

    def _forward(self, lot: Tensor) -> None:
        runs, size, w = len(self._params), self.lot, self._w
        self._half2.copy_(w["conv2"])
        kernels.conv1[(self._examples, -(-196 // LAUNCH["conv1"]["BLOCK"]))](
            self._images, lot, w["conv1"], self._h1, self._pick1, self._width, LOT=size, **LAUNCH["conv1"]
        )
        kernels.conv2[(runs, -(-size * 144 // LAUNCH["conv2"]["BLOCK"]))](
            self._h1, self._half2, w["bias2"], self._z2, self._width, LOT=size, **LAUNCH["conv2"]
        )
        kernels.pool2[(self._examples,)](self._z2, self._h2, self._pick2)

    def _dense(self, lot: Tensor) -> Tensor:
        """The gradients of the dense layers, of the large ones as two factors, and the slope of what they read."""
        w, g, back = self._w, self._g, torch.ops.aten.threshold_backward
        h2 = self._h2.view(len(self._params), self.lot, 1600)
        h3 = torch.baddbmm(w["shift1"][:, None], h2, w["dense1"]).relu_()
        h4 = torch.baddbmm(w["shift2"][:, None], h3, w["dense2"]).relu_()
        outputs = torch.baddbmm(w["shift3"][:, None], h4, w["dense3"])
        slope3 = torch.sub(outputs.softmax(-1), self._answers[lot].view(outputs.shape)).div_(self.lot)
        torch.bmm(h4.mT, slope3, out=g["dense3"])
        slope2 = back(torch.bmm(slope3, w["dense3"].mT), h4, 0)
        slope1 = back(torch.bmm(slope2, w["dense2"].mT), h3, 0)
        for name, slope in (("shift3", slope3), ("shift2", slope2), ("shift1", slope1)):
            torch.sum(slope, 1, out=g[name])
        self._factors = {"dense1": (h2, slope1), "dense2": (h3, slope2)}
        return torch.bmm(slope1, w["dense1"].mT)

    def _backward(self, lot: Tensor, slope: Tensor) -> None:
        runs, size, g = len(self._params), self.lot, self._g
        kernels.pool2_back[(self._examples, 3)](slope, self._h2, self._pick2, self._slope2, BLOCK=64)
        kernels.conv2_weights[(runs, 9)](
            self._h1, self._slope2, g["conv2"], g["bias2"], self._width, LOT=size, **LAUNCH["conv2_weights"]
        )
        kernels.conv2_back[(runs, -(-size * 196 // LAUNCH["conv2_back"]["BLOCK"]))](
            self._slope2, self._half2, self._h1, self._slope1, LOT=size, **LAUNCH["conv2_back"]
        )
        kernels.conv1_weights[(self._examples,)](
            self._images, lot, self._slope1, self._pick1, self._each, **LAUNCH["conv1_weights"]
        )
        torch.sum(self._each.view(runs, size, 28, 64), 1, out=g["conv1"])


class _Update:
    """One kind of rule, on its rows of weights and gradients. memory: what it keeps from step to step."""

    def __init__(self, side: Side, params: Tensor, gradient: Tensor) -> None:
        self.rows, self._params, self._gradient = side.rows, params, gradient
        self._width = params.shape[1]
        device = params.device
        self._small = sum(torch.Size(shape).numel() for name, shape in _SHAPES.items() if name not in _LARGE)
        self._blocks = -(-self._small // _BLOCK)
        self._launch = dict(LAUNCH[type(self).__name__])
        down, right = self._launch["ROWS"], self._launch["COLUMNS"]
        self._tiles = [(-(-_SHAPES[name][0] // down), -(-_SHAPES[name][1] // right)) for name in _LARGE]
        parts = self._blocks + sum(a * b for a, b in self._tiles)
        self._squares = torch.zeros(len(params), parts, device=device)
        self._rates, self._mend = torch.as_tensor(side.rule.lr).clone(), torch.ones(2, device=device)  # type: ignore[attr-defined]
        self.betas = (0.0, 0.0)
        self.memory: list[Tensor] = []

    @property
    def step_sizes(self) -> Tensor:
        return torch.full((len(self._params),), torch.nan, device=self._params.device)

    @property
    def errors(self) -> Tensor:
        return self.step_sizes

    def __call__(self, second: bool, factors: dict[str, tuple[Tensor, Tensor]]) -> None:
        raise NotImplementedError

    def _move(self, way: int, factors: dict[str, tuple[Tensor, Tensor]]) -> None:
        """All weights. way: of `federated_kernels`."""
        first, second = [*self.memory, self._params, self._params][:2]  # what a way does not have it does not read
        kept = (first, second, self._rates, self._mend, self._squares, self._width, self._squares.shape[1])
        constants = {"WAY": way, "BETA1": self.betas[0], "BETA2": self.betas[1], "XI": XI}
        kernels.move[(len(self._params), self._blocks)](
            self._params, self._gradient, *kept, self._small, **constants, BLOCK=_BLOCK
        )
        part, offset = self._blocks, self._small
        for name, tiles in zip(_LARGE, self._tiles, strict=True):
            (hidden, slope), (rows, columns) = factors[name], _SHAPES[name]
            kernels.move_dense[(len(self._params), *tiles)](
                hidden[self.rows], slope[self.rows], self._params, *kept, part, offset, **constants,
                LOT=hidden.shape[1], IN=rows, OUT=columns, **self._launch,
            )  # fmt: skip
            part, offset = part + tiles[0] * tiles[1], offset + rows * columns


class _SGD(_Update):
    def __call__(self, second: bool, factors: dict[str, tuple[Tensor, Tensor]]) -> None:
        self._move(0, factors)


class _Adam(_Update):
    def __init__(self, side: Side, params: Tensor, gradient: Tensor) -> None:
        super().__init__(side, params, gradient)
        assert isinstance(side.rule, Adam)
        betas = torch.stack(
            [torch.as_tensor(beta)[0] for beta in (side.rule.beta1, side.rule.beta2)]
        )  # one pair for all
        self._exact, self.betas = betas.double(), (float(betas[0]), float(betas[1]))
        made = torch.zeros((), dtype=torch.float64, device=params.device)
        self.memory = [torch.zeros_like(params), torch.zeros_like(params), made]

    def __call__(self, second: bool, factors: dict[str, tuple[Tensor, Tensor]]) -> None:
        made = self.memory[2]
        made += 1
        self._mend.copy_(1 - self._exact**made)
        self._move(3, factors)


class _ADADP(_Update):
    def __init__(self, side: Side, params: Tensor, gradient: Tensor) -> None:
        super().__init__(side, params, gradient)
        rule = side.rule
        assert isinstance(rule, ADADP)
        if not rule.accept or rule.keep != "half" or rule.published or rule.switch is not None or rule.tau is None:
            raise HonestdpError(f"the kernels know ADADP with tau, accept=True and nothing else; got {rule}")
        self._tau = rule.tau
        self.memory = [torch.zeros_like(params), torch.zeros_like(self._rates), self._rates]

    @property
    def step_sizes(self) -> Tensor:
        return self._rates

    @property
    def errors(self) -> Tensor:
        return self._squares.sum(1).sqrt()

    def __call__(self, second: bool, factors: dict[str, tuple[Tensor, Tensor]]) -> None:
        self._move(2 if second else 1, factors)
        if second:
            err = self.errors
            ratio = torch.where(err.isfinite(), (self._tau / err).clamp(SLOWER, FASTER), SLOWER)
            kept, blocks = (err <= self._tau).int(), -(-self._width // _BLOCK)
            kernels.put_back[(len(self._params), blocks)](self._params, self.memory[0], kept, self._width, BLOCK=_BLOCK)
            self._rates.mul_(ratio)


def _update(side: Side, params: Tensor, gradient: Tensor) -> _Update:
    kinds = {SGD: _SGD, Adam: _Adam, ADADP: _ADADP}
    return kinds[type(side.rule)](side, params, gradient)


@contextmanager
def tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before

"""Layer rules for LSTM, GRU and RNN, of any number of layers and both directions.

What reaches the gates at time t is z_t = W x_t + b, and of the state before it, s_t = U h_{t-1} + c. For one example
dL/dW = sum_t (dL/dz_t) x_t^T and dL/dU = sum_t (dL/ds_t) h_{t-1}^T, with the sums of dL/dz_t and of dL/ds_t for the biases. In an
LSTM and an RNN z_t and s_t are added, so that their gradients are the same; in a GRU the new state's part of s_t is first
multiplied by the reset gate, and so is its gradient.

The recurrences of LSTM and GRU go forward and back by formula: as operations of autograd their steps, small as they are, would
take several times as long.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from honestdp.gradients.layers.linear import gradients_of, linear
from honestdp.gradients.rules import Composite, Gradients, Unruled, Use, rule


class _Lstm(torch.autograd.Function):
    """z `[times, runs, lot, 4 hidden]` (input, forget, cell and output gate), weight `[runs, 4 hidden, hidden]`, the first states
    `[runs, lot, hidden]` -> the states h from the first on, `[times + 1, ...]`, and the last c.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        times, size = len(z), weight.shape[-1]
        states, cells = h.new_empty(times + 1, *h.shape), c.new_empty(times + 1, *c.shape)
        states[0], cells[0] = h, c
        gates = torch.empty_like(z)
        news = torch.empty_like(states[1:])
        for t in range(times):
            gate = torch.baddbmm(z[t], states[t], weight.mT)
            torch.tanh(gate[..., 2 * size : 3 * size], out=news[t])
            torch.sigmoid(gate, out=gates[t])
            i, f, _, o = gates[t].chunk(4, -1)
            torch.addcmul(f * cells[t], i, news[t], out=cells[t + 1])
            torch.mul(o, cells[t + 1].tanh(), out=states[t + 1])
        ctx.save_for_backward(weight, gates, news, cells)
        return states, cells[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        weight, gates, news, cells = ctx.saved_tensors
        i, f, _, o = gates.chunk(4, -1)
        tanh = cells[1:].tanh()
        slopes = torch.cat([news * i * (1 - i), cells[:-1] * f * (1 - f), i * (1 - news * news)], -1)
        of_o, of_c = tanh * o * (1 - o), o * (1 - tanh * tanh)
        size, d_z = weight.shape[-1], torch.empty_like(gates)
        slopes, by_gate = slopes.view(*news.shape[:-1], 3, size), d_z.view(*news.shape[:-1], 4, size)
        d_h, d_c = d_states[-1], d_cell
        for t in reversed(range(len(gates))):
            d_c = torch.addcmul(d_c, d_h, of_c[t])
            torch.mul(d_c.unsqueeze(-2), slopes[t], out=by_gate[t, ..., :3, :])
            torch.mul(d_h, of_o[t], out=by_gate[t, ..., 3, :])
            d_c = d_c * f[t]
            d_h = torch.baddbmm(d_states[t], d_z[t], weight)
        return d_z, None, d_h, d_c


class _Gru(torch.autograd.Function):
    """z `[times, runs, lot, 3 hidden]` (reset gate, update gate, new state), weight `[runs, 3 hidden, hidden]`, bias
    `[runs, 1, 3 hidden]`, the first state -> the states from the first on, and the reset gates `[times, runs, lot, hidden]`.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, bias: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        times, size = len(z), weight.shape[-1]
        states = h.new_empty(times + 1, *h.shape)
        states[0] = h
        gates, hidden, news = (
            z.new_empty(*z.shape[:-1], 2 * size),
            torch.empty_like(states[1:]),
            torch.empty_like(states[1:]),
        )
        for t in range(times):
            of_state = torch.baddbmm(bias, states[t], weight.mT)
            torch.sigmoid(z[t, ..., : 2 * size] + of_state[..., : 2 * size], out=gates[t])
            reset, update = gates[t].chunk(2, -1)
            hidden[t] = of_state[..., 2 * size :]
            torch.tanh(torch.addcmul(z[t, ..., 2 * size :], reset, hidden[t]), out=news[t])
            torch.lerp(news[t], states[t], update, out=states[t + 1])
        ctx.save_for_backward(weight, gates, hidden, news, states)
        resets = gates[..., :size].clone()
        ctx.mark_non_differentiable(resets)
        return states.clone(), resets

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        weight, gates, hidden, news, states = ctx.saved_tensors
        reset, update = gates.chunk(2, -1)
        of_new = (1 - update) * (1 - news * news)
        of_update = (states[:-1] - news) * update * (1 - update)
        of_reset = of_new * hidden * reset * (1 - reset)
        slopes = torch.stack([of_reset, of_update, of_new * reset], -2)
        d_news = torch.empty_like(states[1:])
        d_hidden = torch.empty_like(slopes)
        d_h = d_states[-1]
        for t in reversed(range(len(news))):
            d_news[t] = d_h
            torch.mul(d_h.unsqueeze(-2), slopes[t], out=d_hidden[t])
            d_h = torch.baddbmm(torch.addcmul(d_states[t], d_h, update[t]), d_hidden[t].flatten(-2), weight)
        d_hidden[..., 2, :] = d_news * of_new
        return d_hidden.flatten(-2), None, None, d_h


States = tuple[Tensor, ...]
"""The states of one layer in one direction, `[runs, lot, hidden]`: h, and for an LSTM c."""


class Recurrent(Composite):
    """One kind of recurrent layer."""

    def covers(self, layer: nn.Module) -> bool:
        return isinstance(layer, nn.RNNBase) and not layer.proj_size

    def recur(
        self, layer: Any, z: Tensor, weight: Tensor, bias: Tensor | None, first: States
    ) -> tuple[Tensor, States, Tensor | None]:
        """From what reaches the gates `[times, runs, lot, gates]`: the states h `[times + 1, runs, lot, hidden]`, the last
        states, and what the new state's part of U h + c is multiplied by, `[times, runs, lot, hidden]`.
        """
        raise NotImplementedError

    joins = True
    """Whether W x + b and U h + c are added, so that both biases can be added at once."""

    def run(self, layer: Any, use: Use, x: Tensor, hx: Any = None) -> Any:
        if not isinstance(x, Tensor) or x.dim() != 3:
            raise Unruled(f"{type(layer).__name__} is given a packed sequence, or no dimension for the examples")
        x = x if layer.batch_first else x.transpose(0, 1)
        directions = 2 if layer.bidirectional else 1
        firsts = _first_states(layer, x, hx, use.runs)
        lasts: list[States] = []
        for number in range(layer.num_layers):
            if number:
                x = F.dropout(x, layer.dropout, layer.training)
            outs = []
            for direction in range(directions):
                suffix = f"_l{number}{'_reverse' if direction else ''}"
                out, last = self._one(layer, use, x, suffix, firsts[number * directions + direction])
                outs.append(out)
                lasts.append(last)
            x = outs[0] if directions == 1 else torch.cat(outs, -1)
        ends = tuple(torch.stack([state.flatten(0, 1) for state in states]) for states in zip(*lasts, strict=True))
        return x if layer.batch_first else x.transpose(0, 1), ends if isinstance(layer, nn.LSTM) else ends[0]

    def _one(self, layer: Any, use: Use, x: Tensor, suffix: str, first: States) -> tuple[Tensor, States]:
        """One layer in one direction: its outputs `[runs * lot, times, hidden]` and last states."""
        weights, biases = (f"weight_ih{suffix}", f"weight_hh{suffix}"), (f"bias_ih{suffix}", f"bias_hh{suffix}")
        x = x.flip(1) if suffix.endswith("reverse") else x
        bias, state_bias = (use.params.get(name) for name in biases)
        if bias is not None and state_bias is not None and self.joins:
            bias, state_bias = bias + state_bias, None
        z = linear({"weight": use.params[weights[0]]} | ({} if bias is None else {"bias": bias}), x, runs=use.runs)
        kept: list[Tensor | None] = []

        def gradients(grad: Tensor) -> Gradients:
            before, factor = kept
            assert before is not None
            by_run, of_state = x.view(use.runs, -1, *x.shape[1:]), grad
            if factor is not None:
                size = factor.shape[-1]
                of_state = torch.cat([grad[..., :-size], grad[..., -size:] * factor], -1)
            found = gradients_of(use, {"weight": weights[0], "bias": biases[0]}, by_run, grad)
            return {**found, **gradients_of(use, {"weight": weights[1], "bias": biases[1]}, before, of_state)}

        z = use.note(z, gradients, x) if use.wanted else z
        gates = z.view(use.runs, -1, *z.shape[1:]).movedim(2, 0)
        states, last, factor = self.recur(layer, gates, use.params[weights[1]], state_bias, first)
        by_example = states.detach().movedim(0, 2)
        kept += [by_example[:, :, :-1], None if factor is None else factor.movedim(0, 2)]
        out = states[1:].movedim(0, 2).flatten(0, 1).contiguous().clone()
        return out.flip(1) if suffix.endswith("reverse") else out, last


def _first_states(layer: Any, x: Tensor, hx: Any, runs: int) -> list[States]:
    """For every layer and direction: those given, `[layers, runs * lot, hidden]`, or zeros."""
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    given = hx if isinstance(hx, tuple) else (hx,)
    if hx is None:
        given = (x.new_zeros(count, len(x), layer.hidden_size),) * (2 if isinstance(layer, nn.LSTM) else 1)
    if any(state.shape != (count, len(x), layer.hidden_size) for state in given):
        raise Unruled(f"the first state of {type(layer).__name__} has no row for every example")
    return [tuple(state[number].unflatten(0, (runs, -1)) for state in given) for number in range(count)]


@rule(nn.LSTM)
class Lstm(Recurrent):
    def recur(
        self, layer: Any, z: Tensor, weight: Tensor, bias: Tensor | None, first: States
    ) -> tuple[Tensor, States, None]:
        states, cell = _Lstm.apply(z, weight, *first)  # type: ignore[no-untyped-call]
        return states, (states[-1], cell), None


@rule(nn.GRU)
class Gru(Recurrent):
    joins = False

    def recur(
        self, layer: Any, z: Tensor, weight: Tensor, bias: Tensor | None, first: States
    ) -> tuple[Tensor, States, Tensor]:
        bias = weight.new_zeros(weight.shape[:2]) if bias is None else bias
        states, resets = _Gru.apply(z, weight, bias.unsqueeze(1).expand(-1, z.shape[2], -1), *first)  # type: ignore[no-untyped-call]
        return states, (states[-1],), resets


@rule(nn.RNN)
class Rnn(Recurrent):
    def recur(
        self, layer: Any, z: Tensor, weight: Tensor, bias: Tensor | None, first: States
    ) -> tuple[Tensor, States, None]:
        states = [*first]
        for of_input in z:
            new = torch.baddbmm(of_input, states[-1], weight.mT)
            states.append(new.tanh() if layer.nonlinearity == "tanh" else new.relu())
        return torch.stack(states), (states[-1],), None

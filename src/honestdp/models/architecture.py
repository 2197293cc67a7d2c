"""Small networks described as data: what a table's model is built from, and how a saved one is built again without running code.

A description is a dictionary of plain numbers and words. It knows one `Linear`, or a `Sequential` of Linear layers and
activations, which is what tables get; for any other model a folder says its class in words alone, and whoever loads it brings the
code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.checks import HonestdpError

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "identity": nn.Identity,
}
_MOST_LAYERS = 1000


def described(model: nn.Module) -> dict[str, Any] | None:
    """The model as data; None where it is more than a row of known layers, or where somebody changed one of them."""
    if type(model) is nn.Sequential and _plain(model):
        layers = [_layer(layer) for layer in model]
        if layers and not any(layer is None for layer in layers) and [*dict(model.named_children())] == _places(layers):
            return {"kind": "sequential", "layers": layers}
        return None
    layer = _layer(model)
    return layer if layer is not None and layer["kind"] == "linear" else None


def built(description: Mapping[str, Any], weights: Mapping[str, Tensor]) -> nn.Module:
    """The model that was described, with these weights. It takes no memory before names and shapes are known to be theirs."""
    with torch.device("meta"):
        if description.get("kind") == "sequential":
            layers = description["layers"]
            if not isinstance(layers, list) or not 1 <= len(layers) <= _MOST_LAYERS:
                raise HonestdpError("an architecture of no layers, or of too many")
            model: nn.Module = nn.Sequential(*(_made(layer) for layer in layers))
        else:
            model = _made(description)
    return with_weights(model, weights, assign=True)


def with_weights(model: nn.Module, weights: Mapping[str, Tensor], *, assign: bool = False) -> nn.Module:
    """The model with these weights, all of them and no others; in eval mode."""
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    have = {name: tuple(value.shape) for name, value in weights.items()}
    if wanted != have:
        names = sorted(name for name in {*wanted, *have} if wanted.get(name) != have.get(name))
        first = names[0]
        shapes = f"{wanted.get(first, 'none')} in the model and {have.get(first, 'none')} in the file"
        raise HonestdpError(f"the weights are of another model: {first} has the shape {shapes}")
    model.load_state_dict(dict(weights), assign=assign)
    return model.eval()


def in_words(description: Mapping[str, Any] | None, class_name: str) -> str:
    """For people: what kind of model it is."""
    if description is None:
        return f"a model of the class {class_name}, whose code is not in this folder"
    layers = description["layers"] if description["kind"] == "sequential" else [description]
    linear = [layer for layer in layers if layer["kind"] == "linear"]
    if len(layers) == 1 and linear:
        return f"one linear layer, {linear[0]['inputs']} inputs and {linear[0]['outputs']} outputs"
    parts = [
        f"linear {layer['inputs']} to {layer['outputs']}" if layer["kind"] == "linear" else layer["kind"]
        for layer in layers
    ]
    return "a network of layers in a row: " + ", ".join(parts)


def _layer(layer: nn.Module) -> dict[str, Any] | None:
    if not _plain(layer):
        return None
    if type(layer) is nn.Linear:
        bias = layer.bias is not None
        names = {"weight", "bias"} if bias else {"weight"}
        if {name for name, _ in layer.named_parameters()} != names:  # something is put in the place of a parameter
            return None
        return {"kind": "linear", "inputs": layer.in_features, "outputs": layer.out_features, "bias": bias}
    name = next((name for name, kind in ACTIVATIONS.items() if type(layer) is kind), None)
    return None if name is None else {"kind": name}


def _plain(layer: nn.Module) -> bool:
    """Whether it does what its class does: no hooks, and no function of its own in the place of the class's."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks)
    return not any(hooks) and not any(callable(value) for value in vars(layer).values())


def _places(layers: list[Any]) -> list[str]:
    """The names of layers that were given none."""
    return [str(place) for place in range(len(layers))]


def _made(layer: Mapping[str, Any]) -> nn.Module:
    kinds: dict[str, Callable[[], nn.Module]] = dict(ACTIVATIONS)
    kind = layer.get("kind")
    if kind == "linear":
        inputs, outputs, bias = layer["inputs"], layer["outputs"], layer["bias"]
        if type(inputs) is int and type(outputs) is int and type(bias) is bool and inputs > 0 and outputs > 0:
            return nn.Linear(inputs, outputs, bias=bias)
    elif isinstance(kind, str) and kind in kinds:
        return kinds[kind]()
    raise HonestdpError("an architecture with a layer that this version does not know")

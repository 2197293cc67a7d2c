"""The rules for PyTorch's own layers; importing this package registers them."""

from honestdp.gradients.layers import linear

__all__ = ["linear"]

"""The layer rules for PyTorch's own layers; importing this package registers them."""

from honestdp.gradients.layers import convolution, embedding, linear, normalisation

__all__ = ["convolution", "embedding", "linear", "normalisation"]

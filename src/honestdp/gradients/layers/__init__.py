"""The layer rules for PyTorch's own layers; importing this package registers them."""

from honestdp.gradients.layers import attention, convolution, embedding, linear, normalisation, recurrent

__all__ = ["attention", "convolution", "embedding", "linear", "normalisation", "recurrent"]

"""Stands in for PyTorch: the few names that the shim's inside.py knows, which do what PyTorch's do."""
from . import _C, autograd, cuda, nn, optim

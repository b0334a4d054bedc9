"""Replaces PyTorch: the few names that the shim's inside.py uses, which behave like PyTorch's."""
import os

from . import _C, autograd, cuda, nn, optim

__version__ = os.environ.get("STANDIN_TORCH_VERSION", "2.11.0")

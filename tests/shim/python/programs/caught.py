"""Runs out once, goes on with less, and ends well."""
import cuda
import torch

cuda.start()
first = torch.cuda.empty(60 << 20)
try:
    torch.cuda.empty(60 << 20)
except torch.cuda.OutOfMemoryError:
    torch.cuda.empty(20 << 20)

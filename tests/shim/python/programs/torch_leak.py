"""Keeps a tensor of each turn (PyTorch calls an observer and raises)."""
import sys

import cuda
import torch

cuda.start()
kept = []


def train(turns):
    for turn in range(turns):
        kept.append(torch.cuda.empty(8 << 20))
        torch.optim.SGD().step()


train(int(sys.argv[1]) if len(sys.argv) > 1 else 40)

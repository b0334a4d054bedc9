from .optimizer import Optimizer

del optimizer  # as PyTorch has it: the module is there, its name is not


class SGD(Optimizer):
    def _step(self):
        return "stepped"

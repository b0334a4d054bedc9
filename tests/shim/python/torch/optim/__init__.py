from .optimizer import Optimizer, Tensor

del optimizer  # as PyTorch has it: the module is there, its name is not


class SGD(Optimizer):
    def _step(self):
        return "stepped"


class AdamW(SGD):
    def _step(self):
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter] = {"step": 1, "exp_avg": Tensor(), "exp_avg_sq": Tensor()}
        return "stepped"

from ..autograd import profiler

_hooks = []


def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)


class Tensor:
    """Of 32 MiB, on a device."""

    is_cuda = True

    def numel(self):
        return 8 << 20

    def element_size(self):
        return 4


class Parameter(Tensor):
    requires_grad = True

    def __init__(self):
        self.grad = Tensor()


class Optimizer:
    def __init__(self):
        self.param_groups = [{"params": [Parameter() for i in range(40)]}]
        self.state = {}

    def step(self):
        with profiler.record_function(f"Optimizer.step#{type(self).__name__}.step"):
            result = self._step()
            for hook in _hooks:
                hook(self, (), {})
            return result

    def zero_grad(self):
        return "zeroed"

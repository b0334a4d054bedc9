"""Optimizers for the programs whose fix is another one: in 8 bits, with its state on the host, fused. They stand for bitsandbytes,
CPUOffloadOptimizer and fused=True where those packages are not installed."""
import os

import torch


PIECE = 1 << 22  # numbers: the kernels of bitsandbytes make no temporaries, this makes small ones


class Adam8(torch.optim.Optimizer):
    """AdamW whose moments are 8-bit numbers with one scale a piece."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    for name in ("mean", "square"):
                        state[name] = torch.zeros(p.numel(), dtype=torch.int8, device=p.device)
                        state[name + "_scale"] = torch.full((p.numel() // PIECE + 1,), 1e-12, device=p.device)
                flat, grad = p.view(-1), p.grad.reshape(-1)
                for at in range(0, p.numel(), PIECE):
                    self.piece(slice(at, at + PIECE), at // PIECE, flat, grad, state, group["lr"])

    def piece(self, part, number, flat, grad, state, lr):
        update = None
        for name, decay, of in (("mean", 0.9, lambda g: g), ("square", 0.999, lambda g: g * g)):
            value = state[name][part].float() * state[name + "_scale"][number]
            value.mul_(decay).add_(of(grad[part].float()), alpha=1 - decay)
            scale = value.abs().max() / 127 + 1e-12
            state[name + "_scale"][number] = scale
            state[name][part] = (value / scale).round_().to(torch.int8)
            update = value if update is None else update.div_(value.abs_().sqrt_().add_(1e-8))
        flat[part].add_(update.to(flat.dtype), alpha=-lr)


class HostAdam(torch.optim.Optimizer):
    """AdamW whose moments are on the host."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["mean"], state["square"] = torch.zeros(p.shape), torch.zeros(p.shape)
                grad = p.grad.float().cpu()
                state["mean"].mul_(0.9).add_(grad, alpha=0.1)
                state["square"].mul_(0.999).addcmul_(grad, grad, value=0.001)
                p.add_((state["mean"] / (state["square"].sqrt() + 1e-8)).to(p.device, p.dtype), alpha=-group["lr"])


def optimizer_for(model, lr):
    params = [p for p in model.parameters() if p.requires_grad]
    if os.environ.get("OPT8") == "1":
        return Adam8(params, lr)
    if os.environ.get("HOST_STATE") == "1":
        return HostAdam(params, lr)
    return torch.optim.AdamW(params, lr=lr, fused=True if os.environ.get("FUSED") == "1" else None)

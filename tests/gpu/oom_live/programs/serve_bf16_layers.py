# limit: 2.5G
# cause: weights_too_big
# fixes: QUANT8 QUANT4 HOST
# needs: torch
import os
import torch
from torch import nn

quant = os.environ.get("QUANT8") == "1" or os.environ.get("QUANT4") == "1"
host = os.environ.get("HOST") == "1"


class Quantized(nn.Module):
    """Linear layer whose weights are int8 with one scale a row."""

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.float().abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (linear.weight.float() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale.to(torch.bfloat16))

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(torch.bfloat16) * self.scale)


layers = nn.Sequential()
for i in range(24):
    layer = nn.Linear(8192, 8192, bias=False, dtype=torch.bfloat16, device="meta").to_empty(device="cpu")
    nn.init.constant_(layer.weight, 1e-4)
    layers.append(Quantized(layer) if quant else layer)
if not host:
    layers = layers.to("cuda")
x = torch.randn(8, 8192, dtype=torch.bfloat16, device="cuda")
with torch.inference_mode():
    for layer in layers:
        if host:
            layer.to("cuda")
        x = layer(x)
        if host:
            layer.to("cpu")
print("token", x.float().mean().item())

# limit: 2.5G
# cause: weights_too_big
# fixes: QUANT8 QUANT4 HOST
# needs: torch
import os
import torch
from torch import nn

bits = 8 if os.environ.get("QUANT8") == "1" else 4 if os.environ.get("QUANT4") == "1" else 16
host = os.environ.get("HOST") == "1"


class Quantized(nn.Module):
    """Linear layer whose weights have 8 or 4 bits, with one scale a row. Two of 4 bits share a byte."""

    def __init__(self, linear):
        super().__init__()
        most = 127 if bits == 8 else 7
        scale = linear.weight.float().abs().amax(1, keepdim=True) / most
        weight = (linear.weight.float() / scale).round().to(torch.int8)
        if bits == 4:
            weight = (weight[:, ::2] & 15) | (weight[:, 1::2] << 4)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale.to(torch.bfloat16))

    def forward(self, x):
        weight = self.weight
        if bits == 4:
            weight = torch.stack(((weight << 4) >> 4, weight >> 4), 2).flatten(1)
        return nn.functional.linear(x, weight.to(torch.bfloat16) * self.scale)


layers = nn.Sequential()
for i in range(24):
    layer = nn.Linear(8192, 8192, bias=False, dtype=torch.bfloat16, device="meta").to_empty(device="cpu")
    nn.init.constant_(layer.weight, 1e-4)
    layers.append(Quantized(layer) if bits < 16 else layer)
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

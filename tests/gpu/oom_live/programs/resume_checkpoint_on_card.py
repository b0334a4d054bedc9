# limit: 3G
# cause: loaded_twice
# fixes: MAPCPU
# needs: torch
import os
import tempfile
import torch
from torch import nn

map_location = "cpu" if os.environ.get("MAPCPU") == "1" else "cuda"


def make():
    return nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(24)])


path = os.path.join(tempfile.mkdtemp(), "model.pt")
torch.save(make().state_dict(), path)
model = make().cuda()
state = torch.load(path, map_location=map_location)
model.load_state_dict(state)
del state
x = torch.randn(64, 4096, device="cuda")
with torch.no_grad():
    print("resumed", model(x).mean().item())
os.unlink(path)

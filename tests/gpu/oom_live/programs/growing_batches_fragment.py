# limit: 3G
# cause: fragmentation
# fixes: EXPANDABLE SPLIT
# needs: torch
import torch

MB = 1 << 20
kept = []
for i in range(40):
    temporary = torch.empty((30 + 3 * (i % 9)) * MB, dtype=torch.uint8, device="cuda")
    kept.append(torch.empty(12 * MB, dtype=torch.uint8, device="cuda"))
    second = torch.empty((31 + 2 * (i % 11)) * MB, dtype=torch.uint8, device="cuda")
    if i % 4 == 0:
        kept.append(second)
    del temporary, second
whole = torch.empty(1000 * MB, dtype=torch.uint8, device="cuda")
print("kept", len(kept), whole.numel())

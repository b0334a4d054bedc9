# limit: 3G
# cause: cache_held
# fixes: EMPTY_CACHE
# needs: torch cupy
import os
import cupy
import torch

x = torch.randn(6, 1024, 1024, 64, device="cuda")
mean = x.mean().item()
del x
if os.environ.get("EMPTY_CACHE") == "1":
    torch.cuda.empty_cache()
spectrum = cupy.fft.fft(cupy.zeros(96 * 1024 * 1024 // 4, dtype=cupy.complex64))
field = cupy.zeros((128, 1024, 1024 * 2), dtype=cupy.float32)
print("mean", mean, float(field.sum()), spectrum.size)

# limit: 3G
# cause: one_spike
# fixes: PARTS
# needs: cupy
import os
import cupy as cp

parts = os.environ.get("PARTS") == "1"
x = cp.random.random((40_000, 16), dtype=cp.float32)
y = cp.random.random(40_000, dtype=cp.float32)
norms = (x * x).sum(1)
if parts:
    result = cp.concatenate([cp.exp(-(norms[i : i + 500, None] + norms - 2 * x[i : i + 500] @ x.T)) @ y for i in range(0, 40_000, 500)])
else:
    result = cp.exp(-(norms[:, None] + norms - 2 * x @ x.T)) @ y
print("smooth", float(result.mean()))

# limit: 2G
# cause: leak
# fixes: KEEP
# needs: cupy
import os
import cupy as cp

keep = os.environ.get("KEEP") == "1"
frames = []
for i in range(300):
    frame = cp.random.random((1080, 1920), dtype=cp.float32)
    blurred = (frame + cp.roll(frame, 1, 0) + cp.roll(frame, 1, 1)) / 3
    frames.append(cp.asnumpy(blurred) if keep else blurred)
print("frames", len(frames))

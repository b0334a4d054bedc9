# expect: host_shared | /dev/shm | unlink
# limit: 300M
import os
from multiprocessing import shared_memory

import numpy as np

blocks = []
for i in range(80):
    block = shared_memory.SharedMemory(name=f"stowage-test-{os.getpid()}-{i}", create=True, size=8 << 20)
    frame = np.ndarray((1 << 20,), dtype=np.float64, buffer=block.buf)
    frame[:] = i
    blocks.append(block)
    del frame
print(len(blocks))

# expect: host_shared | /dev/shm
# limit: 300M
import torch
import torch.multiprocessing as mp

mp.set_sharing_strategy("file_system")
kept = []
for i in range(400):
    t = torch.rand(1024, 1024)
    t.share_memory_()
    kept.append(t)
print(len(kept))

# expect: host_copies,host_limit,host_spike | distances.py:10 | block of rows
# limit: 500M
import numpy as np

points = np.random.rand(3000, 64)


def nearest(a, b):
    # every pair at once
    difference = a[:, None, :] - b[None, :, :]
    return np.sqrt((difference ** 2).sum(axis=-1)).argmin(axis=1)


for size in (100, 500, 3000):
    print(size, nearest(points[:size], points)[:3])

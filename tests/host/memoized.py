# expect: host_leak | render | maxsize
# limit: 300M
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=None)
def render(width, height, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 255, (height, width, 3), dtype=np.uint8)


seen = 0
for seed in range(10 ** 6):
    image = render(640, 360, seed)
    seen += int(image[0, 0, 0])
print(seen)

# expect: host_leak | images
# limit: 400M
import glob
import numpy as np
class Dataset:
    def __init__(self, n):
        self.images = {}
        for i in range(n):
            img = np.random.randint(0, 255, (256, 256, 3), dtype=np.uint8)
            self.images[f"img{i}.png"] = img.astype(np.float32) / 255
ds = Dataset(20000)

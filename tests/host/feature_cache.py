# expect: host_leak | _cache
# limit: 400M
import numpy as np


class Features:
    def __init__(self):
        self._cache = {}

    def get(self, name):
        if name not in self._cache:
            signal = np.random.rand(48000)
            self._cache[name] = np.abs(np.fft.rfft(signal))
        return self._cache[name]


features = Features()
total = 0.0
for n in range(100000):
    total += features.get(f"clip-{n}.wav").mean()
print(total)

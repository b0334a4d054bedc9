# expect: host_leak | windows
# limit: 400M
import numpy as np
def windows_of(signal, size, step):
    for start in range(0, len(signal) - size, step):
        yield signal[start:start + size].copy()
signal = np.random.rand(2_000_000)
windows = list(windows_of(signal, 100_000, 50))
print(len(windows))

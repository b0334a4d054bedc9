# expect: host_leak | results
# limit: 500M
import multiprocessing as mp
import numpy as np
def simulate(seed):
    rng = np.random.default_rng(seed)
    return rng.random((500, 500))
if __name__ == "__main__":
    results = []
    with mp.Pool(2) as pool:
        for r in pool.imap_unordered(simulate, range(5000)):
            results.append(r)
    print(len(results))

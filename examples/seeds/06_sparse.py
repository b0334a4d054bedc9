"""CSR against dense for 100,000 x 10,000 with 1000 nonzeros. The dense one would be 8 GB, so it is only counted.

With --save FOLDER the dense one is written there (a file of holes takes no room), for `stowage inspect` to see that it is sparse.
"""
import sys

import numpy as np
import scipy.sparse


def places():
    rng = np.random.default_rng(0)
    return rng.integers(0, 100_000, 1000), rng.integers(0, 10_000, 1000)


def main():
    sparse = scipy.sparse.csr_matrix((np.ones(1000), places()), shape=(100_000, 10_000))
    print("dense", 100_000 * 10_000 * 8)
    print("csr", sparse.data.nbytes + sparse.indices.nbytes + sparse.indptr.nbytes)


def save(folder):
    dense = np.lib.format.open_memmap(folder + "/dense.npy", mode="w+", dtype="f8", shape=(100_000, 10_000))
    dense[places()] = 1


if __name__ == "__main__":
    save(sys.argv[2]) if "--save" in sys.argv else main()

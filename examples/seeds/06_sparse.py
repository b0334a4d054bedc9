"""CSR against dense for 100,000 x 10,000 with 1000 nonzeros. The dense one would be 8 GB, so it is only counted."""
import numpy as np
import scipy.sparse


def main():
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 100_000, 1000), rng.integers(0, 10_000, 1000)
    sparse = scipy.sparse.csr_matrix((np.ones(1000), (rows, columns)), shape=(100_000, 10_000))
    print("dense", 100_000 * 10_000 * 8)
    print("csr", sparse.data.nbytes + sparse.indices.nbytes + sparse.indptr.nbytes)


if __name__ == "__main__":
    main()

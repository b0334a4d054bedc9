# expect: host_workers | worker
# limit: 500M
import multiprocessing as mp
table = None
def work(i):
    total = 0
    for row in table:
        total += row["v"] * i
    return total
if __name__ == "__main__":
    table = [{"v": i, "name": f"row {i}"} for i in range(700000)]
    with mp.Pool(5) as pool:
        print(sum(pool.map(work, range(50), chunksize=1)))

# expect: host_objects | edges
# limit: 300M
import random
edges = set()
while len(edges) < 10_000_000:
    edges.add((random.randrange(10**9), random.randrange(10**9)))

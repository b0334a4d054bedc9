# expect: host_objects | index
# limit: 400M
import collections
import random

index = collections.defaultdict(list)
random.seed(1)
for document in range(10 ** 6):
    for position in range(40):
        word = f"w{random.randrange(60000)}"
        index[word].append((document, position))
print(len(index))

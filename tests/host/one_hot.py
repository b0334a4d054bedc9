# expect: host_limit,host_spike,host_copies | one_hot.py:8
# limit: 400M
import numpy as np

vocabulary = 50_000
tokens = np.random.randint(0, vocabulary, 4000)
labels = tokens[1:]
encoded = np.eye(vocabulary, dtype=np.float32)[labels]
print(encoded.shape)

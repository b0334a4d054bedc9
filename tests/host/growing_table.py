# expect: host_copies | table
# limit: 500M
import numpy as np
import pandas as pd

table = pd.DataFrame()
for part in range(1000):
    chunk = pd.DataFrame(np.random.rand(100_000, 10))
    table = pd.concat([table, chunk], ignore_index=True)
print(table.shape)

# expect: host_copies | df
# limit: 500M
import numpy as np, pandas as pd
df = pd.DataFrame(np.random.rand(2_500_000, 10))
clean = df.copy()
clean = clean.fillna(0)
normed = (clean - clean.mean()) / clean.std()
print(normed.shape)

# expect: host_copies,host_limit | merge
# limit: 500M
import numpy as np, pandas as pd
left = pd.DataFrame({"k": np.arange(2000).repeat(100), "a": np.random.rand(200000)})
right = pd.DataFrame({"k": np.arange(2000).repeat(100), "b": np.random.rand(200000)})
joined = left.merge(right, on="k")
print(len(joined))

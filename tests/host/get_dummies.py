# expect: host_limit,host_copies | get_dummies.py:5
# limit: 500M
import numpy as np, pandas as pd
users = pd.Series([f"u{i}" for i in range(20000)] * 2)
wide = pd.get_dummies(users)
print(wide.shape)

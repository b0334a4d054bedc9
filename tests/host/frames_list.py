# expect: host_leak | frames
# limit: 500M
import numpy as np
import pandas as pd

frames = []
for day in range(3650):
    df = pd.DataFrame(np.random.rand(20_000, 8), columns=list("abcdefgh"))
    df["mean"] = df.mean(axis=1)
    frames.append(df)
everything = pd.concat(frames)
print(len(everything))

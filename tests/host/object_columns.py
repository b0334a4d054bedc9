# expect: host_objects | df | category
# limit: 700M
import sys

import pandas as pd

cities = ["Amsterdam", "Berlin", "Copenhagen", "Dublin", "Edinburgh"]
n = 1_500_000
df = pd.DataFrame({
    "id": range(n),
    "city": [cities[i % 5] + " " for i in range(n)],
    "street": [f"Street number {i % 1000}" for i in range(n)],
})
df["address"] = df["street"] + ", " + df["city"]
df["key"] = df["address"].str.lower() + "/" + df["city"].str.upper()
df["label"] = df["key"].str.replace("street", "str.") + df["street"]
print(df.groupby("city").size())

# expect: host_objects,host_dataset_whole | rows
# limit: 300M
import sqlite3
db = sqlite3.connect(":memory:")
db.execute("create table t (a integer, b text)")
db.executemany("insert into t values (?, ?)", ((i, f"text {i}") for i in range(900000)))
rows = db.execute("select * from t").fetchall()
more = [dict(a=a, b=b) for a, b in rows]
print(len(more))

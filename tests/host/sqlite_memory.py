# expect: host_native | db | sqlite3.connect("
# limit: 200M
import sqlite3

db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE log (id INTEGER, message TEXT)")
for i in range(5_000_000):
    db.execute("INSERT INTO log VALUES (?, ?)", (i, f"event {i} of the simulation " + "x" * 60))
print(db.execute("SELECT count(*) FROM log").fetchone())

# expect: host_objects,host_dataset_whole | records
# limit: 400M
# makes: 120M of JSON
import json
import os
import sys
import tempfile

path = os.path.join(tempfile.gettempdir(), f"stowage-events-{os.getppid()}.jsonl")
with open(path, "w") as file:
    for i in range(800_000):
        file.write(json.dumps({"id": i, "name": f"n{i}", "score": i / 7, "ok": i % 2 == 0}) + "\n")
records = []
try:
    with open(path) as file:
        os.unlink(path)
        for line in file:
            records.append(json.loads(line))
finally:
    print(len(records), file=sys.stderr)

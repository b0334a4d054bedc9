"""Holds more than half of its limit and works on with threads and children while it is asked; ends well."""
import os
import threading
import time

watch = os.path.dirname(os.environ["STOWAGE_WATCH"])
pages = [b"x" * 200_000 + b"%d" % number for number in range(800)]
count = [0] * 4
stop = False


def work(which):
    while not stop:
        count[which] += 1


def asked(pid):
    """Has it answered?"""
    path, until = f"{watch}/{pid}.objects", time.monotonic() + 40
    while time.monotonic() < until:
        try:
            with open(path) as file:
                if file.readline().split("\t")[3].strip() == "1":
                    return True
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    return False


threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
for thread in threads:
    thread.start()
assert asked(os.getpid())
before = list(count)
while not all(now > then for now, then in zip(count, before)):  # they all go on
    time.sleep(0.01)
stop = True
for thread in threads:
    thread.join()
pid = os.fork()
if pid == 0:
    worker = threading.Thread(target=len, args=(pages,))
    worker.start()
    worker.join()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert threading.active_count() == 1 and sum(len(page) for page in pages) > 160_000_000
print("well")

"""A child of fork fills memory; it waits at more than half of the limit until it has reported what it holds."""
import os
import time

path = os.path.dirname(os.environ["STOWAGE_WATCH"]) + "/%d.objects"


def keep():
    pages, until = [], time.monotonic() + 40
    for number in range(10_000):
        pages.append(b"x" * 200_000 + b"%d" % number)
        while number == 800 and not os.path.exists(path % os.getpid()) and time.monotonic() < until:
            time.sleep(0.01)


if os.fork() == 0:
    keep()
os.wait()

# expect: host_leak | queue
# limit: 400M
import queue, threading, time
import numpy as np
frames = queue.Queue()
def produce():
    while True:
        frames.put(np.zeros((480, 640, 3), dtype=np.uint8) + 1)
def consume():
    while True:
        frame = frames.get()
        time.sleep(0.05)
        frame.mean()
threading.Thread(target=produce, daemon=True).start()
consume()

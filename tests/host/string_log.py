# expect: host_objects | log
# limit: 300M
import time
class Logger:
    def __init__(self):
        self.log = []
    def info(self, message):
        self.log.append(f"[{time.time():.3f}] {message}")
logger = Logger()
i = 0
while True:
    logger.info(f"processed item {i} with status ok and some more words")
    i += 1

# expect: host_leak | memory
# limit: 500M
import random

import numpy as np


class Agent:
    def __init__(self):
        self.memory = []

    def remember(self, state, action, reward, next_state):
        self.memory.append((state, action, reward, next_state))

    def replay(self, size):
        return random.sample(self.memory, min(size, len(self.memory)))


agent = Agent()
state = np.zeros((84, 84, 4), dtype=np.float32)
for step in range(10 ** 6):
    next_state = np.random.rand(84, 84, 4).astype(np.float32)
    agent.remember(state, random.randrange(4), 1.0, next_state)
    state = next_state
    if step % 32 == 0:
        agent.replay(32)

# limit: 2G
# cause: leak
# fixes: KEEP
# needs: torch
import collections
import os
import random
import torch
from torch import nn

where = "cpu" if os.environ.get("KEEP") == "1" else "cuda"


class Agent:
    def __init__(self):
        self.q = nn.Sequential(nn.Flatten(), nn.Linear(4 * 84 * 84, 256), nn.ReLU(), nn.Linear(256, 6)).cuda()
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=1e-4)
        self.memory = collections.deque(maxlen=100_000)

    def remember(self, state, action, reward, after):
        self.memory.append((state.to(where), action, reward, after.to(where)))

    def learn(self):
        batch = random.sample(self.memory, 32)
        states = torch.stack([b[0] for b in batch]).cuda()
        after = torch.stack([b[3] for b in batch]).cuda()
        actions = torch.tensor([b[1] for b in batch], device="cuda")
        rewards = torch.tensor([b[2] for b in batch], device="cuda")
        with torch.no_grad():
            target = rewards + 0.99 * self.q(after).max(1).values
        loss = (self.q(states).gather(1, actions[:, None])[:, 0] - target).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


agent = Agent()
state = torch.rand(4, 84, 84, device="cuda")
for step in range(12_000):
    after = torch.rand(4, 84, 84, device="cuda")
    agent.remember(state, random.randrange(6), random.random(), after)
    state = after
    if step % 50 == 49:
        agent.learn()
print("steps", step + 1)

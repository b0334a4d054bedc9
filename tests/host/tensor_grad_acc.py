# expect: graph_kept | total_loss | item()
# limit: 800M
import torch
def evaluate(model, steps):
    total_loss = 0.0
    for _ in range(steps):
        x = torch.randn(400, 500)
        total_loss = total_loss + ((model(x) - x) ** 2).mean()
    return total_loss / steps
print(evaluate(torch.nn.Sequential(torch.nn.Linear(500, 4000), torch.nn.Tanh(), torch.nn.Linear(4000, 500)), 1000))

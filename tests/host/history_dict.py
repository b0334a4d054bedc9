# expect: graph_kept | history | item()
# limit: 800M
import torch
model = torch.nn.Sequential(torch.nn.Linear(800, 3000), torch.nn.ReLU(), torch.nn.Linear(3000, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
history = {"loss": [], "reg": []}
for step in range(3000):
    x = torch.randn(300, 800)
    loss = model(x).pow(2).mean()
    reg = (model[0](x).abs()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    history["loss"].append(loss)
    history["reg"].append(reg)

"""A model applied to batches under no_grad. Without no_grad, and with the outputs kept, every iteration keeps its graph."""
import torch


def model():
    return torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU(),
                               torch.nn.Linear(2048, 10)).cuda()


def main(batches=50):
    net = model()
    outputs = []
    with torch.no_grad():
        for _ in range(batches):
            outputs.append(net(torch.randn(4096, 1024, device="cuda")))
    print(len(outputs))


def fails():
    net = model()
    outputs = []
    for _ in range(1000):
        outputs.append(net(torch.randn(4096, 1024, device="cuda")))


if __name__ == "__main__":
    main()

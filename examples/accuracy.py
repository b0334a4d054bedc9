"""What quantizing and pruning cost a small network: trains a classifier, shrinks its file, and measures the accuracy of each.

    python3 examples/accuracy.py [SAMPLES]

Needs NumPy and the stowage package. The task: which of ten drawings (16 x 16, shifted and under noise) is this? The network has three
layers (256-512-256-10, 265,000 weights) and trains in seconds. Prints one line for each file: its bytes and the share of 10,000 new
drawings that it recognizes.
"""

import os
import struct
import sys
import tempfile

import numpy
import stowage

CLASSES, SIDE, NEW = 10, 16, 10_000


def drawings(random, count, shapes):
    """Draws `count` samples: a shape, shifted by up to two pixels, brighter or darker, with noise."""
    which = random.integers(0, CLASSES, count)
    images = shapes[which]
    for axis in (1, 2):
        shift = random.integers(-2, 3, count)
        place = (numpy.arange(SIDE)[None, :] - shift[:, None]) % SIDE
        images = numpy.take_along_axis(images, place[:, :, None] if axis == 1 else place[:, None, :], axis)
    images = images * random.uniform(0.6, 1.4, (count, 1, 1)) + random.standard_normal(images.shape) * 1.1
    return images.reshape(count, -1).astype("f4"), which


def outputs(weights, images):
    """Returns the values of every layer, the last one's without a ReLU."""
    values = [images]
    for i in range(3):
        values.append(values[-1] @ weights[f"layers.{i}.weight"].T + weights[f"layers.{i}.bias"])
        if i < 2:
            values[-1] = numpy.maximum(values[-1], 0)
    return values


def train(random, shapes, samples):
    sizes = (SIDE * SIDE, 512, 256, CLASSES)
    weights = {}
    for i, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:])):
        weights[f"layers.{i}.weight"] = (random.standard_normal((fan_out, fan_in)) * (2 / fan_in) ** 0.5).astype("f4")
        weights[f"layers.{i}.bias"] = numpy.zeros(fan_out, "f4")
    moved = {name: numpy.zeros_like(w) for name, w in weights.items()}
    steps = samples // 128
    for step in range(steps):
        images, which = drawings(random, 128, shapes)
        values = outputs(weights, images)
        scores = numpy.exp(values[3] - values[3].max(1, keepdims=True))
        slope = scores / scores.sum(1, keepdims=True)
        slope[numpy.arange(128), which] -= 1
        slope /= 128
        for i in (2, 1, 0):
            changes = {f"layers.{i}.weight": slope.T @ values[i], f"layers.{i}.bias": slope.sum(0)}
            slope = (slope @ weights[f"layers.{i}.weight"]) * (values[i] > 0)
            for name, change in changes.items():
                moved[name] = 0.9 * moved[name] + change
                weights[name] -= 0.05 * (1 - step / steps) * moved[name]
    return weights


def write_gguf(path, weights):
    """Writes float32 tensors as a GGUF file without metadata (version 3, aligned to 32 bytes)."""
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(weights), 0), b""
    for name, w in weights.items():
        dims = tuple(reversed(w.shape))
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(data))
        data += w.tobytes() + bytes(-w.nbytes % 32)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


def main(samples=120_000):
    random = numpy.random.default_rng(7)
    shapes = random.standard_normal((CLASSES, SIDE, SIDE))
    for _ in range(2):  # smooth: neighbours look alike, so that a shift changes little
        shapes = sum(numpy.roll(shapes, shift, axis) for shift in (-1, 0, 1) for axis in (1, 2)) / 4
    shapes = shapes / shapes.std((1, 2), keepdims=True) * 0.6
    weights = train(random, shapes, samples)
    images, which = drawings(random, NEW, shapes)
    share = lambda w: float((outputs(w, images)[3].argmax(1) == which).mean())
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)
        write_gguf(path("trained.gguf"), weights)
        changes = {"q8_0": {"quantize": "q8_0"}, "q4_0": {"quantize": "q4_0"}, "pruned 50%": {"prune": "50%"}, "pruned 2:4": {"prune": "2:4"}}
        print(f"float32     {os.path.getsize(path('trained.gguf')):9,} bytes  {share(weights):.2%}")
        for name, change in changes.items():
            stowage.shrink(path("trained.gguf"), path("small.gguf"), quiet=True, include=["layers.*.weight"], **change)
            shrunk = stowage.load(path("small.gguf"), framework="numpy")
            print(f"{name:11} {os.path.getsize(path('small.gguf')):9,} bytes  {share(shrunk):.2%}")


if __name__ == "__main__":
    main(*(int(n) for n in sys.argv[1:2]))

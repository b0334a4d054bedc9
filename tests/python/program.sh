#!/usr/bin/env bash
# What a program reports about itself: the batch among the inputs of a call. Tensors are stand-ins, so no PyTorch is needed.
. "$(dirname "$0")/../guards/lib.bash"
cat > "$folder/batch.py" <<'PY'
import importlib.util
import sys
from types import SimpleNamespace

spec = importlib.util.spec_from_file_location("program", sys.argv[1])
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)


def tensor(dtype, *shape):
    return SimpleNamespace(dtype=f"torch.{dtype}", shape=shape, requires_grad=False, dim=lambda: len(shape))


def batch(inputs, named=()):
    lines = list(program.lines_of_batch(SimpleNamespace(inputs=inputs, others=[], batches=list(named))))
    return lines[-1]


nodes, edges = tensor("float32", 4000, 256), tensor("int64", 12000)
assert batch([nodes, edges, edges]) == "batch 4000 first", batch([nodes, edges, edges])
assert batch([edges]) == "batch 12000 first"
assert batch([tensor("int64", 8, 512), tensor("int64", 8, 512)]) == "batch 8 first"
assert batch([tensor("float32", 512, 8, 64)], named=[8]) == "batch 8 named"
PY
check the_batch_is_the_first_of_several_dimensions python3 "$folder/batch.py" "$source_dir/python/stowage/_program.py"
finish

#!/usr/bin/env bash
# What a program reports about itself: the batch among the inputs of a call. Tensors are stand-ins, so no PyTorch is needed.
. "$(dirname "$0")/../guards/lib.bash"
cat > "$folder/batch.py" <<'PY'
import sys
from types import ModuleType, SimpleNamespace

package = ModuleType("stowage")  # the file and those that it imports, without what the package itself loads
package.__path__ = [sys.argv[1]]
sys.modules["stowage"] = package
from stowage import _program as program


def tensor(dtype, *shape):
    return SimpleNamespace(dtype=f"torch.{dtype}", shape=shape, requires_grad=False, dim=lambda: len(shape))


def batch(inputs, named=(), others=(), numbers=()):
    lines = list(program.lines_of_batch(SimpleNamespace(inputs=inputs, others=list(others), batches=list(named), numbers=set(numbers), shape=lambda t: t.shape, tensors=SimpleNamespace(read=getattr))))
    return lines[-1]


nodes, edges = tensor("float32", 4000, 256), tensor("int64", 12000)
assert batch([nodes, edges, edges]) == "batch 4000 first", batch([nodes, edges, edges])
assert batch([edges]) == "batch 12000 first"
assert batch([tensor("int64", 8, 512), tensor("int64", 8, 512)]) == "batch 8 first"
assert batch([tensor("float32", 512, 8, 64)], named=[8]) == "batch 8 named"
if sys.argv[2:] == ["views"]:
    image, views = tensor("float32", 300, 3, 64, 64), tensor("float32", 900, 3, 64, 64)
    assert batch([views], named=[300]) == "batch 300 named"
    assert batch([views], others=[image], numbers=[64, 300]) == "batch 300 first", batch([views], others=[image], numbers=[64, 300])
    # A tensor of samples to look at, a batch that is a number of the program itself, other images, too many rows for one sample.
    assert batch([views], others=[image], numbers=[64]) == "batch 900 first"
    assert batch([views], others=[image], numbers=[300, 900]) == "batch 900 first"
    assert batch([views], others=[tensor("float32", 300, 3, 32, 32)], numbers=[300]) == "batch 900 first"
    assert batch([views], others=[tensor("float32", 9, 3, 64, 64)], numbers=[9]) == "batch 900 first"
PY
check the_batch_is_the_first_of_several_dimensions python3 "$folder/batch.py" "$source_dir/python/stowage"
check the_batch_is_the_program_s_where_a_call_gets_several_views python3 "$folder/batch.py" "$source_dir/python/stowage" views
finish

"""torch_forks.py PROGRAM…: runs each program in a fork of this process, so that PyTorch is imported once. Prints why if there is no
PyTorch with saved-tensor hooks."""
import os
import runpy
import sys

here = sys.path.pop(0)  # a file there has the name of a standard module
try:
    import torch
    torch._C._autograd._saved_tensors_hooks_is_enabled  # noqa: B018
except (ImportError, AttributeError):
    print(f"skip activations_torch: {sys.executable} has no PyTorch with saved-tensor hooks")
    sys.exit(0)
sys.path.insert(0, here)
failed = 0
for program in sys.argv[1:]:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        sys.argv = [program]
        runpy.run_path(program, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    failed |= os.waitpid(pid, 0)[1]
sys.exit(failed != 0)

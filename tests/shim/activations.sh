#!/usr/bin/env bash
# Saved tensors of PyTorch on the host (activations.py): the policy alone, and the hooks in a PyTorch whose device is host
# memory. States of optimizers (states.py) and weights (weights.py): in the same PyTorch. STOWAGE_TEST_PYTHONS lists further Pythons by path.
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH
found=
for python in ${STOWAGE_TEST_PYTHONS:-} /usr/bin/python3; do
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2> /dev/null || continue
  [ -n "$found" ] || "$python" "$here/activations_policy.py"
  found=1
  "$python" "$here/torch_forks.py" "$here"/{activations,states,weights}_torch.py 2>&1 || echo "FAIL activations: a program of $python ended before its last test"
done
[ -n "$found" ] || echo "skip activations: no python3"

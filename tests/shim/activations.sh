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
  if "$python" -c 'import torch; torch._C._autograd._saved_tensors_hooks_is_enabled' 2> /dev/null; then
    "$python" "$here/activations_torch.py" 2>&1
    "$python" "$here/states_torch.py" 2>&1
    "$python" "$here/weights_torch.py" 2>&1
  else
    echo "skip activations_torch: $python has no PyTorch with saved-tensor hooks"
  fi
done
[ -n "$found" ] || echo "skip activations: no python3"

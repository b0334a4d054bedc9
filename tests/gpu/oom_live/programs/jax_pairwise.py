# limit: 3G
# cause: one_spike batch_too_big
# fixes: PARTS
# needs: jax
import os

import jax
import jax.numpy as jnp

parts = os.environ.get("PARTS") == "1"
points = jax.random.normal(jax.random.PRNGKey(1), (40_000, 32))
norm = (points**2).sum(1)
if parts:
    near = jnp.concatenate([(norm[i : i + 1000, None] + norm - 2 * points[i : i + 1000] @ points.T).argsort(1)[:, 1] for i in range(0, 40_000, 1000)])
else:
    distance = norm[:, None] + norm - 2 * points @ points.T
    near = distance.argsort(1)[:, 1]
print("near", near[:3])

# limit: 3G
# cause: batch_too_big one_spike
# fixes: BATCH
# needs: jax
import os

import jax
import jax.numpy as jnp

BATCH = int(os.environ.get("BATCH", 131072))
keys = jax.random.split(jax.random.PRNGKey(0), 8)
params = [jax.random.normal(k, (1024, 1024)) * 0.03 for k in keys]


def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return (x**2).mean()


@jax.jit
def step(params, x):
    grads = jax.grad(loss)(params, x)
    return [w - 0.01 * g for w, g in zip(params, grads)]


x = jax.random.normal(keys[0], (BATCH, 1024))
for _ in range(3):
    params = step(params, x)
print("weight", float(params[0].mean()))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX: a step is vmap over nodes of grad, ten steps are one compiled scan, an evaluation another; around convolutions a
compiled loop over nodes, because vmap makes grouped ones that are many times slower. Random numbers from the generator
that is fastest here. Compilation is not timed. See common.py."""
import os
import common

a = common.arguments()
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "" if a.threads > 1 else "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
import numpy as np, jax, jax.numpy as jnp

jax.config.update("jax_default_prng_impl", "unsafe_rbg")
rng = np.random.default_rng(a.seed)
shapes, B, rv, n, n1 = a.size["shapes"], a.size["batch"], a.size["rv"], a.n, a.n1
ends = np.cumsum([int(np.prod(s)) for s in shapes])
xt, yt, xv, yv = [jnp.asarray(v) for v in common.mnist(a)]
BLOCK = 10
a.steps = max(BLOCK, a.steps // BLOCK * BLOCK)
idx = jnp.asarray(common.order(a, rng, a.steps + BLOCK).transpose(1, 0, 2).astype(np.int32))
lr = jnp.asarray(common.rates(a, a.steps + BLOCK))
state = dict(X=jnp.tile(jnp.asarray(common.start(a, rng)), (n, 1)), key=jax.random.key(a.seed))


def parts(x):
    return [v.reshape(s) for v, s in zip(jnp.split(x, ends[:-1]), shapes)]


def pool(h):
    return jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def logits(x, inputs):
    p, h = parts(x), inputs
    if a.name == "e7":
        h = h.reshape(-1, 1, 28, 28)
        for j in (0, 2):
            h = jax.lax.conv_general_dilated(h, p[j], (1, 1), ((1, 1), (1, 1))) + p[j + 1][None, :, None, None]
            h = pool(jax.nn.relu(h))
        h, p = h.reshape(len(inputs), -1), p[4:]
    for j in range(0, len(p), 2):
        h = (h if j == 0 else jax.nn.relu(h)) @ p[j].T + p[j + 1]
    return h


def loss(x, inputs, y):
    z = logits(x, inputs)
    return jnp.mean(jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0])


def over_nodes(f, *args):
    return jax.lax.map(lambda one: f(*one), args) if a.name == "e7" else jax.vmap(f)(*args)


def step(carry, what):
    X, key = carry
    i, rate, mix = what
    key, k1, k2, k3 = jax.random.split(key, 4)
    x = (xt[i].astype(jnp.float32) / 255 - 0.1307) / 0.3081
    G = over_nodes(jax.grad(loss), X, x, yt[i])
    if a.n0:
        Z = G[n1:]
        size = jnp.maximum(jnp.linalg.norm(Z, axis=1, keepdims=True), 1e-30)
        h, z = Z / size, jax.random.normal(k1, Z.shape)
        z = z - jnp.sum(z * h, 1, keepdims=True) * h
        c = jnp.sum(jax.random.normal(k2, (a.n0, rv)) ** 2, 1, keepdims=True)
        G = G.at[n1:].set(size / rv * (c * h + jnp.sqrt(c) * z))
    X = X - rate[:, None] * G
    if n > 1:
        q = jax.random.permutation(k3, n)[:n // 2 * 2].reshape(2, -1)
        m = (X[q[0]] + X[q[1]]) / 2
        X = jnp.where(mix, X.at[q[0]].set(m).at[q[1]].set(m), X)
    return (X, key), None


block = jax.jit(lambda X, key, *what: jax.lax.scan(step, (X, key), what)[0], donate_argnums=0)


@jax.jit
def losses(X):
    all_ = jnp.concatenate([X, jnp.mean(X, 0, keepdims=True)])
    chunk = 500 if a.name == "e7" else 1000
    cut = (xv.reshape(-1, chunk, 784), yv.reshape(-1, chunk))
    return jnp.mean(jax.lax.map(lambda c: over_nodes(lambda x: loss(x, *c), all_), cut), 0)


def steps(first, last):
    for t in range(first, last, BLOCK):
        s = slice(t, t + BLOCK)
        mix = jnp.arange(t, t + BLOCK) >= a.warmup
        state["X"], state["key"] = block(state["X"], state["key"], idx[s], lr[s], mix)
    state["X"].block_until_ready()


def evaluate():
    l = np.asarray(losses(state["X"]))
    return float(l[:n].mean()), float(l[n])


common.say(common.timed(a, steps, evaluate, BLOCK), jax=jax.__version__)

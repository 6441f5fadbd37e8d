# SPDX-License-Identifier: Apache-2.0
"""What the opponents share: the experiments as bench/compare asks for them, the data, shards, times and the last line.

usage: torch_batched.py | jax_vmap.py e2|e6|e7 [--population N1,N0] [--steps T] [--evals K] [--threads K] [--warmup W]
                                               [--data DIR] [--seed S] [--cpu]

T steps are made and K evaluations of all nodes and of their mean; both are timed apart, after one of each that is not
(compilation, first touches); --cpu: in processor seconds. Prints one JSON line: seconds a step and an evaluation, mean loss of the nodes and loss of
the mean model after all steps. Softmax regression, the perceptron and the small network of the paper's E2, E6 and E7;
zeroth-order nodes draw forward-law (rv vectors in one draw); warm-up steps raise the rate and do not mix.
"""
import argparse, json, os, time
import numpy as np

SIZES = {  # parameters by shape; batch, rates of both kinds (of zeroth-order nodes in E6 and E7 small enough to live), rv
    "e2": dict(shapes=[(10, 784), (10,)], batch=2, lr=(0.01, 0.01), rv=128, pop=(24, 256), warmup=0, steps=500),
    "e6": dict(shapes=[(128, 784), (128,), (128, 128), (128,), (10, 128), (10,)], batch=8, lr=(0.1, 0.01), rv=64,
               pop=(4, 16), warmup=50, steps=1500),
    "e7": dict(shapes=[(8, 1, 3, 3), (8,), (8, 8, 3, 3), (8,), (128, 392), (128,), (10, 128), (10,)], batch=256,
               lr=(0.1, 0.01), rv=128, pop=(8, 8), warmup=50, steps=1000),
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name", choices=SIZES)
    p.add_argument("--population")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--evals", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--warmup", type=int)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--cpu", action="store_true")
    p.add_argument("--data", default=os.path.expanduser("~/.cache/hdo/anchor-data"))
    a = p.parse_args()
    a.size = SIZES[a.name]
    a.n1, a.n0 = [int(v) for v in a.population.split(",")] if a.population else a.size["pop"]
    a.warmup = a.size["warmup"] if a.warmup is None else a.warmup
    a.n = a.n1 + a.n0
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:a.threads])
    return a


def mnist(a):
    """Training pixels as bytes, validation pixels as normalised floats, labels."""
    get = lambda k: np.load(f"{a.data}/mnist_{k}.npy")
    norm = lambda x: ((x.astype(np.float32) / np.float32(255) - np.float32(0.1307)) / np.float32(0.3081)).reshape(len(x), -1)
    return get("train_x").reshape(-1, 784), get("train_y").astype(np.int64), norm(get("test_x")), get("test_y").astype(np.int64)


def start(a, rng):
    """PyTorch's initial numbers, uniform in +-1/sqrt(fan-in), for weights and biases: (d)."""
    parts, fan = [], 1
    for s in a.size["shapes"]:
        if len(s) > 1:
            fan = int(np.prod(s[1:]))
        parts.append(rng.uniform(-1, 1, int(np.prod(s))) / np.sqrt(fan))
    return np.concatenate(parts).astype(np.float32)


def order(a, rng, total):
    """(n, total, batch): which samples each node takes; every kind of node shares out the training set among its nodes."""
    B, rows = a.size["batch"], []
    for k in (a.n1, a.n0):
        for shard in np.array_split(rng.permutation(60000), k) if k else []:
            passes = [rng.permutation(shard) for _ in range(-(-total * B // len(shard)))]
            rows.append(np.concatenate(passes)[:total * B].reshape(total, B))
    return np.stack(rows)


def rates(a, total):
    """(total, n): warm-up, then constant."""
    lr = np.repeat(np.array(a.size["lr"], np.float32), [a.n1, a.n0])
    up = np.minimum(1.0, (np.arange(total) + 1) / max(1, a.warmup)).astype(np.float32)
    return up[:, None] * lr[None, :]


def timed(a, steps, evaluate, first):
    """steps(from, to) and evaluate() as given; `first`: steps before the clock runs."""
    clock = time.process_time if a.cpu else time.perf_counter
    steps(0, first)
    evaluate()
    t0 = clock()
    steps(first, first + a.steps)
    t1 = clock()
    for _ in range(a.evals):
        loss, mean = evaluate()
    t2 = clock()
    step, ev = (t1 - t0) / a.steps, (t2 - t1) / a.evals
    whole = a.size["steps"] + a.warmup
    return dict(step_s=step, eval_s=ev, run_s=step * whole + ev * (whole // 10 + 1), loss=loss, loss_mean=mean,
                steps=first + a.steps, threads=a.threads)


def say(result, **more):
    print(json.dumps({**result, **more}))

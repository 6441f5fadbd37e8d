#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch as its best users would write a population: all nodes in one (n, d) tensor, no loop over nodes but around
convolutions, where one call a node was measured faster than one grouped call. See common.py."""
import numpy as np, torch, torch.nn.functional as F
import common

a = common.arguments()
torch.set_num_threads(a.threads)
torch.manual_seed(a.seed)
rng = np.random.default_rng(a.seed)
gen = torch.Generator().manual_seed(a.seed)
shapes, B, rv, n, n1 = a.size["shapes"], a.size["batch"], a.size["rv"], a.n, a.n1
sizes = [int(np.prod(s)) for s in shapes]
xt, yt, xv, yv = [torch.from_numpy(v) for v in common.mnist(a)]
FIRST = 2
idx = torch.from_numpy(common.order(a, rng, a.steps + FIRST))
lr = torch.from_numpy(common.rates(a, a.steps + FIRST))
X = torch.from_numpy(common.start(a, rng)).repeat(n, 1)


def parts(x):
    return [v.reshape(len(x), *s) for v, s in zip(x.split(sizes, 1), shapes)]


def linear(x, W, b):  # x (k, B, p)
    return torch.baddbmm(b[:, None], x, W.transpose(1, 2))


def logits(p, x):
    """x (k, B, 784), or (B, 784) for all models: (k, B, 10)."""
    k, shared = len(p[0]), x.dim() == 2
    if a.name == "e7":
        rows = []
        for i in range(k):
            h = (x if shared else x[i]).view(-1, 1, 28, 28)
            h = F.max_pool2d(F.relu(F.conv2d(h, p[0][i], p[1][i], padding=1)), 2)
            h = F.max_pool2d(F.relu(F.conv2d(h, p[2][i], p[3][i], padding=1)), 2)
            rows.append(h.flatten(1))
        return linear(F.relu(linear(torch.stack(rows), p[4], p[5])), p[6], p[7])
    W, b = p[0], p[1]
    if shared:  # one product: the input is the same
        h = torch.addmm(b.reshape(-1), x, W.reshape(-1, 784).t()).view(len(x), k, -1).transpose(0, 1)
    else:
        h = linear(x, W, b)
    for j in range(2, len(p), 2):
        h = linear(F.relu(h), p[j], p[j + 1])
    return h


def gradient(x, y):
    if a.name == "e2":  # by hand: no graph to build
        W, b = parts(X)
        r = linear(x, W, b).softmax(2)
        r.scatter_add_(2, y[..., None], torch.full((n, B, 1), -1.0))
        r /= B
        return torch.cat([torch.bmm(r.transpose(1, 2), x).reshape(n, -1), r.sum(1)], 1)
    leaf = X.detach().requires_grad_()
    with torch.enable_grad():
        loss = F.cross_entropy(logits(parts(leaf), x).reshape(n * B, 10), y.reshape(-1), reduction="sum") / B
        return torch.autograd.grad(loss, leaf)[0]


def law(Z):
    size = Z.norm(dim=1, keepdim=True).clamp_min(1e-30)
    h, z = Z / size, torch.randn(Z.shape, generator=gen)
    z -= (z * h).sum(1, keepdim=True) * h
    c = torch.from_numpy(rng.chisquare(rv, (len(Z), 1))).float()
    return size / rv * (c * h + c.sqrt() * z)


@torch.no_grad()
def steps(first, last):
    for t in range(first, last):
        i = idx[:, t].reshape(-1)
        x = ((xt[i].float() / 255 - 0.1307) / 0.3081).view(n, B, 784)
        G = gradient(x, yt[i].view(n, B))
        if a.n0:
            G[n1:] = law(G[n1:])
        X.sub_(lr[t][:, None] * G)
        if t >= a.warmup and n > 1:
            q = torch.randperm(n, generator=gen)[:n // 2 * 2].view(2, -1)
            m = (X[q[0]] + X[q[1]]) / 2
            X[q[0]] = m
            X[q[1]] = m


@torch.no_grad()
def evaluate():
    p = parts(torch.cat([X, X.mean(0, keepdim=True)]))
    chunk = 500 if a.name == "e7" else 1000
    total = torch.zeros(n + 1)
    for i in range(0, len(xv), chunk):
        z = logits(p, xv[i:i + chunk])
        own = z.gather(2, yv[None, i:i + chunk, None].expand(n + 1, -1, 1))[..., 0]
        total += (z.logsumexp(2) - own).sum(1)
    total /= len(xv)
    return float(total[:n].mean()), float(total[n])


common.say(common.timed(a, steps, evaluate, FIRST), torch=torch.__version__)

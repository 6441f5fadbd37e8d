#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Golden values of the network engine, from PyTorch and torchvision in double precision.

    /usr/bin/python3 tools/make_golden.py tests/golden/nn.json

Weights, inputs and labels are a formula (an integer hash of tensor number and element number) which tests/nn_help.h
repeats, so that the file holds only results: for every model in both readings the loss in training mode, every
gradient tensor (norm, one projection on a hash vector, a few entries; small tensors whole), the running statistics
after one pass, ten losses of plain SGD on the same batch, and the logits in evaluation mode.
"""
import json
import math
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
import torchvision.transforms.functional as TF

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)


def hashed(n, salt):
    """n numbers in [-1, 1), multiples of 2^-23: exact in float32."""
    with np.errstate(over="ignore"):
        x = np.arange(n, dtype=np.uint32) + np.uint32((salt * 0x9E3779B9) & 0xFFFFFFFF)
        x ^= x >> np.uint32(16)
        x *= np.uint32(0x7FEB352D)
        x ^= x >> np.uint32(15)
        x *= np.uint32(0x846CA68B)
        x ^= x >> np.uint32(16)
    return (x >> np.uint32(8)).astype(np.float64) * 2.0 ** -23 - 1.0


def below(n, salt, bound):
    return ((hashed(n, salt) + 1.0) * 0.5 * bound).astype(np.int64)


def weights_of(name, shape, t):
    n = int(np.prod(shape))
    v = hashed(n, t + 1)
    if name.endswith("running_mean"):
        w = 0.1 * v
    elif name.endswith("running_var"):
        w = 1.0 + 0.5 * v
    elif len(shape) == 1 and name.endswith("weight"):
        w = 1.0 + 0.25 * v
    elif len(shape) == 1:
        w = 0.1 * v
    else:
        w = v * math.sqrt((6.0 if len(shape) == 2 else 3.0) / (n // shape[0]))
    return torch.from_numpy(w.astype(np.float32).astype(np.float64).reshape(shape))


# ---- models, with the names of docs/models.md ----------------------------------------------------------------------
class Sequence(nn.Module):
    """Layers by name, run in order; functions in between."""

    def __init__(self, *steps):
        super().__init__()
        self.steps = []
        for s in steps:
            if isinstance(s, tuple):
                self.add_module(*s)
                self.steps.append(s[0])
            else:
                self.steps.append(s)

    def forward(self, x):
        for s in self.steps:
            x = getattr(self, s)(x) if isinstance(s, str) else s(x)
        return x


def flat(x):
    return x.flatten(1)


def pool(x):
    return F.max_pool2d(x, 2)


def conv(i, o):
    return nn.Conv2d(i, o, 3, padding=1)


def small(name, authors):
    """The models on MNIST; in the authors' reading a batch-norm follows every layer and a sigmoid the last."""
    norms = [0]

    def norm(n, two=False):
        norms[0] += 1
        label = "bn" if name == "logistic" else f"bn{norms[0]}"
        return [(label, (nn.BatchNorm2d if two else nn.BatchNorm1d)(n))] if authors else []

    def convolution(label, i, o, after):
        return [(label, conv(i, o))] + norm(o, True) + [F.relu] + after

    def hidden(label, i, o):
        return [(label, nn.Linear(i, o))] + norm(o) + [F.relu]

    def last(label, i):
        return [(label, nn.Linear(i, 10))] + norm(10) + ([torch.sigmoid] if authors else [])

    if name == "logistic":
        steps = [flat] + last("fc", 784)
    elif name == "mlp":
        steps = [flat] + hidden("fc1", 784, 128) + hidden("fc2", 128, 128) + last("fc3", 128)
    elif name == "cnn2":
        c, side = (16, 14) if authors else (8, 7)
        steps = convolution("conv1", 1, 8, [] if authors else [pool]) + convolution("conv2", 8, c, [pool]) + [flat]
        steps += hidden("fc1", c * side * side, 128) + last("fc2", 128)
    else:
        c2, c3 = (16, 32) if authors else (8, 8)
        steps = convolution("conv1", 1, 8, [] if authors else [pool]) + convolution("conv2", 8, c2, [pool])
        steps += convolution("conv3", c2, c3, [pool] if authors else []) + [flat]
        steps += hidden("fc1", c3 * 49, 128) + hidden("fc2", 128, 128) + last("fc3", 128)
    return Sequence(*steps)


class Scale(nn.Module):
    """Layer-norm with a weight only."""

    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight)


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(d, 3 * d, bias=False)
        self.c_proj = nn.Linear(d, d, bias=False)

    def forward(self, x):
        B, T, D = x.shape
        w = D // self.heads
        q, k, v = self.c_attn(x).view(B, T, 3, self.heads, w).permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-1, -2) / math.sqrt(w)
        a = s.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf")).softmax(-1)
        return self.c_proj((a @ v).transpose(1, 2).reshape(B, T, D))


class Mlp(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.c_fc = nn.Linear(d, 4 * d, bias=False)
        self.c_proj = nn.Linear(4 * d, d, bias=False)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = Scale(d), Attention(d, heads), Scale(d), Mlp(d)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, T, d=4, heads=2, layers=2):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(6, d), wpe=nn.Embedding(T, d),
                                              h=nn.ModuleList([Block(d, heads) for _ in range(layers)]), ln_f=Scale(d)))
        self.head = nn.Linear(T * d, 2)

    def forward(self, tok):
        t = self.transformer
        x = t.wte(tok) + t.wpe.weight
        for b in t.h:
            x = b(x)
        return self.head(t.ln_f(x).flatten(1))


class Resized(nn.Module):
    def __init__(self, model, size):
        super().__init__()
        self.model, self.size = model, size

    def forward(self, x):
        return self.model(F.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False))


class Cropped(nn.Module):
    """The centre of a resized picture, by torchvision's own functions."""

    def __init__(self, model, size, crop):
        super().__init__()
        self.model, self.size, self.crop = model, size, crop

    def forward(self, x):
        return self.model(TF.center_crop(TF.resize(x, [self.size, self.size]), [self.crop, self.crop]))


# ---- results ---------------------------------------------------------------------------------------------------------
def numbers(x):
    return [float(f"{v:.10g}") for v in x.reshape(-1).tolist()]


def fill(model):
    t = 0
    for name, p in model.named_parameters():
        p.data = weights_of(name, p.shape, t)
        t += 1
    t = 1000
    for name, b in model.named_buffers():
        if b.is_floating_point():
            b.data = weights_of(name, b.shape, t)
            t += 1


def describe(x, salt):
    x = x.detach().reshape(-1)
    n = x.numel()
    out = {"norm": float(x.norm()), "dot": float((x * torch.from_numpy(hashed(n, salt))).sum())}
    out["head"] = numbers(x if n <= 32 else torch.cat([x[:4], x[n // 2:n // 2 + 2], x[-2:]]))
    return out


def case(label, name, authors, model, x, y, lr, input_size=0, full=True):
    fill(model)
    out = {"label": label, "model": name, "authors": authors, "batch": len(y), "input_size": input_size,
           "positions": x.shape[1] if name == "transformer" else 0,
           "d": sum(p.numel() for p in model.parameters())}
    model.eval()
    with torch.no_grad():
        z = model(x)
    out["eval_logits"] = numbers(z)
    out["eval_loss"] = float(F.cross_entropy(z, y))
    if full:
        model.train()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        out["loss"] = float(loss)
        out["grad"] = [dict(name=n, shape=list(p.shape), **describe(p.grad, 500 + i))
                       for i, (n, p) in enumerate(model.named_parameters())]
        floats = [(n, b) for n, b in model.named_buffers() if b.is_floating_point()]
        out["stats"] = [dict(name=n, **describe(b, 2000 + i)) for i, (n, b) in enumerate(floats)]
        fill(model)
        out["lr"] = lr
        out["sgd"] = []
        for _ in range(10):
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            out["sgd"].append(float(loss))
            for p in model.parameters():
                p.data -= lr * p.grad
    return out


def images(B, C, S, salt):
    return torch.from_numpy(2.0 * hashed(B * C * S * S, salt)).reshape(B, C, S, S)


def main():
    cases = []
    for name in ("logistic", "mlp", "cnn2", "cnn3"):
        for authors in (False, True):
            x, y = images(5, 1, 28, 7777), torch.from_numpy(below(5, 8888, 10))
            cases.append(case(name + ("-authors" if authors else ""), name, authors, small(name, authors), x, y, 0.05))
    for T, authors in ((258, False), (514, True)):
        x, y = torch.from_numpy(below(3 * T, 7777, 6)).reshape(3, T), torch.from_numpy(below(3, 8888, 2))
        cases.append(case("transformer" + ("-authors" if authors else ""), "transformer", authors, Gpt(T), x, y, 0.05))
    x, y = images(6, 3, 32, 7777), torch.from_numpy(below(6, 8888, 10))
    net = torchvision.models.resnet18(weights=None, num_classes=10)
    cases.append(case("resnet18", "resnet18", False, net, x, y, 0.001))
    fill(net)
    net.float().eval()
    with torch.no_grad():
        cases[-1]["float_logits"] = numbers(net(x.float()))
    net.double()
    cases.append(case("resnet18-64", "resnet18", False, Resized(net, 64), x[:2], y[:2], 0.01, 64, full=False))
    cases.append(case("resnet18-centre", "resnet18", False, Cropped(net, 73, 64), x[:2], y[:2], 0.01, 64, full=False))
    cases[-1]["resize"] = 73
    with open(sys.argv[1], "w") as f:
        json.dump({"torch": torch.__version__, "torchvision": torchvision.__version__, "cases": cases}, f, indent=0)
        f.write("\n")
    for c in cases:
        print(c["label"], c["d"], c.get("loss"), c["eval_loss"], c.get("sgd", [])[-1:], c["eval_logits"][:3])


main()

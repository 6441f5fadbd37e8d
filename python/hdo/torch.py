# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules as problems: parameters are the flat vector, gradients come from autograd, forward mode where torch has it.

    import hdo, hdo.torch, torch
    net = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    problem = hdo.torch.problem(net, torch.nn.functional.cross_entropy, (images, labels))
    result = hdo.minimize(problem, nodes={"fo": 2, "zo": 6}, steps=500, lr=0.05, rv=64, batch=64)
    hdo.torch.load(net, result.x)
"""

import numpy as np
import torch

from .problem import Problem

__all__ = ["problem", "load", "state"]

_HAS_FORWARD_MODE = hasattr(torch, "func")


def _arrays(dataset):
    """Inputs and targets of a data set as two tensors: a pair of tensors or arrays, or a torch Dataset of pairs."""
    if isinstance(dataset, (tuple, list)) and len(dataset) == 2 and not isinstance(dataset[0], (tuple, list)):
        return torch.as_tensor(np.asarray(dataset[0])), torch.as_tensor(np.asarray(dataset[1]))
    if hasattr(dataset, "tensors"):
        return tuple(dataset.tensors)
    items = [dataset[i] for i in range(len(dataset))]
    return torch.stack([torch.as_tensor(x) for x, _ in items]), torch.as_tensor([int(y) for _, y in items])


class _Module:
    """One flat vector in, a loss out, without changing the module itself."""

    def __init__(self, module, loss_fn, train, val):
        self.module, self.loss_fn, self.train, self.val = module, loss_fn, train, val
        self.names = [name for name, p in module.named_parameters() if p.requires_grad]
        self.shapes = [tuple(dict(module.named_parameters())[name].shape) for name in self.names]
        self.sizes = [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes]

    def split(self, flat):
        parts = torch.split(flat, self.sizes)
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes)}

    def value(self, flat, batch):
        x, y = batch
        call = torch.func.functional_call if _HAS_FORWARD_MODE else torch.nn.utils.stateless.functional_call
        return self.loss_fn(call(self.module, self.split(flat), (x,)), y)

    @staticmethod
    def _flat(x):
        return torch.from_numpy(np.array(x, np.float32))

    def loss(self, x, batch):
        with torch.no_grad():
            return float(self.value(self._flat(x), batch))

    def grad(self, x, batch):
        flat = self._flat(x).requires_grad_(True)
        loss = self.value(flat, batch)
        (g,) = torch.autograd.grad(loss, flat)
        return float(loss.detach()), g.numpy()

    def slopes(self, x, directions, batch):
        flat = self._flat(x)
        out = [torch.func.jvp(lambda v: self.value(v, batch), (flat,), (self._flat(u),)) for u in directions]
        return float(out[0][0]), np.array([float(slope) for _, slope in out])

    def correct(self, x, batch):
        inputs, labels = batch
        call = torch.func.functional_call if _HAS_FORWARD_MODE else torch.nn.utils.stateless.functional_call
        with torch.no_grad():
            return int((call(self.module, self.split(self._flat(x)), (inputs,)).argmax(-1) == labels).sum())


def problem(module, loss_fn, dataset, val_dataset=None, *, classification=None, name="torch"):
    """A module trained by a population: an hdo.Problem for minimize, check, predict and plan.

    loss_fn(module(inputs), targets): the mean loss of a batch. dataset: (inputs, targets), or a torch Dataset of pairs.
    classification: report accuracies; None: when targets are whole numbers. Modules with state beside their parameters
    (batch norm in training mode) and with randomness (dropout) are to be put into eval mode: losses must be functions of
    the parameters.
    """
    train = _arrays(dataset)
    val = _arrays(val_dataset) if val_dataset is not None else train
    m = _Module(module, loss_fn, train, val)
    if not m.names:
        raise ValueError("the module has no parameters that require a gradient: nothing to train")
    flat = torch.cat([p.detach().reshape(-1).float() for n, p in module.named_parameters() if p.requires_grad])
    if classification is None:
        classification = not torch.is_floating_point(train[1]) and train[1].dim() == 1
    return Problem(m.loss, flat.numpy(), m.grad, slopes=m.slopes if _HAS_FORWARD_MODE else None,
                   correct=m.correct if classification else None, data=train, val_data=val, name=name,
                   tensors=list(zip(m.names, m.shapes)))


def state(module, x):
    """A state dict of the module with the flat vector x as its parameters."""
    m = _Module(module, None, None, None)
    out = {key: value.detach().clone() for key, value in module.state_dict().items()}
    out.update({name: part.clone() for name, part in m.split(torch.from_numpy(np.array(x, np.float32).reshape(-1))).items()})
    return out


def load(module, x):
    """Puts the flat vector x into the module's parameters. Returns the module."""
    module.load_state_dict(state(module, x))
    return module

# SPDX-License-Identifier: Apache-2.0
"""hdo.torch: `make check-torch`, apart from the other tests because PyTorch is large."""

import unittest

import numpy as np
import torch

import hdo
import hdo.torch

cross_entropy = torch.nn.functional.cross_entropy


def data(n=300):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(n, 6, generator=g)
    return x, (x[:, 0] + 0.5 * x[:, 1] > 0).long()


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


class Modules(unittest.TestCase):
    def test_a_hybrid_population_trains_a_module(self):
        net, (x, y) = network(), data()
        problem = hdo.torch.problem(net, cross_entropy, (x, y))
        res = hdo.minimize(problem, nodes={"fo": 2, "zo": 2}, steps=150, lr=0.2, rv=16, batch=32, progress=False)
        hdo.torch.load(net, res.x)
        self.assertLess(res.fun, 0.1)
        self.assertAlmostEqual(float(cross_entropy(net(x), y)), res.fun, places=5)
        self.assertAlmostEqual(float((net(x).argmax(1) == y).float().mean()), res.rows[-1]["val/acc_mu"], places=6)
        self.assertEqual(list(res.run.tensors()), [name for name, _ in net.named_parameters()])

    def test_gradients_are_those_of_losses(self):
        problem = hdo.torch.problem(network(), cross_entropy, data())
        notes = hdo.check(problem, nodes={"fo": 2, "zo": 2}, steps=20, lr=0.1, batch=32)["notes"]
        self.assertEqual([n["text"] for n in notes if n["level"] == "problem"], [])

    def test_one_node_is_plain_gradient_descent(self):
        net, (x, y) = network(), data(64)
        res = hdo.minimize(hdo.torch.problem(net, cross_entropy, (x, y)), nodes={"fo": 1}, steps=10, lr=0.2, batch=64,
                           progress=False, **{"mixing": "none"})
        sgd = torch.optim.SGD(net.parameters(), lr=0.2)
        for _ in range(10):
            sgd.zero_grad()
            cross_entropy(net(x), y).backward()
            sgd.step()
        flat = torch.cat([p.detach().reshape(-1) for p in net.parameters()]).numpy()
        np.testing.assert_allclose(res.x, flat, atol=2e-6)


if __name__ == "__main__":
    unittest.main()

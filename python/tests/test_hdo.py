# SPDX-License-Identifier: Apache-2.0
"""The Python package against an installed or built library: python3 -m unittest discover -s tests."""

import doctest
import gc
import json
import os
import signal
import tempfile
import threading
import traceback
import unittest

import numpy as np

import hdo

QUADRATIC = {"model": {"name": "quadratic", "dim": 4}, "steps": 50}


def sphere(x):
    return float(((x - 3) ** 2).sum())


def sphere_grad(x):
    return 2 * (x - 3)


class Runs(unittest.TestCase):
    def test_rows_and_summary(self):
        r = hdo.run(QUADRATIC, population="1fo+2zo", seed=3, progress=False)
        self.assertEqual(r.status, "completed")
        self.assertEqual(r.rows[-1]["step"], 50)
        self.assertEqual(r.summary["outcome"], "completed")
        self.assertEqual(r.summary["params_sha256"], r.fingerprint)
        self.assertIs(type(r.rows[-1]["step"]), int)
        self.assertLess(r.rows[-1]["val/loss_mu"], r.rows[0]["val/loss_mu"])

    def test_same_bits_in_one_go_and_step_by_step(self):
        whole = hdo.run(QUADRATIC, progress=False)
        pieces = hdo.Run(QUADRATIC)
        self.assertEqual(list(pieces), list(range(1, 51)))
        self.assertEqual(whole.fingerprint, pieces.fingerprint)

    def test_keywords_are_keys(self):
        c = hdo.Config("e2", population="4fo+4zo", steps=20, **{"population.zo.rv": 8, "eval": {"every": 7}})
        self.assertEqual((c["population.zo.rv"], c["steps"], c["eval.every"]), ("8", "20", "7"))
        with self.assertRaisesRegex(hdo.Error, "populatoin"):
            hdo.Config("e2", **{"populatoin.zo.rv": 8})
        with self.assertRaisesRegex(hdo.Error, "e9"):
            hdo.Config("e9")
        with self.assertRaises(KeyError):
            c["nothing.like.it"]

    def test_models_are_views_that_keep_their_run(self):
        r = hdo.Run(QUADRATIC)
        x = r.params(0)
        before = x.copy()
        r.advance(10)
        self.assertFalse(np.array_equal(before, x))  # no copy
        with self.assertRaises(ValueError):
            x[0] = 1
        del r
        gc.collect()
        self.assertTrue(np.isfinite(x).all())
        with self.assertRaises(IndexError):
            hdo.Run(QUADRATIC).params(99)

    def test_mean_is_the_mean(self):
        r = hdo.run(QUADRATIC, population="3fo", progress=False)
        models = np.array([r.params(i) for i in range(3)], np.float64)
        np.testing.assert_allclose(r.mean(), models.mean(0), rtol=1e-5, atol=1e-7)

    def test_folder_and_resume(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "r")
            whole = hdo.run(QUADRATIC, progress=False)
            r = hdo.Run(QUADRATIC, out=out, **{"checkpoint.every": 10})
            r.advance(25)
            del r
            gc.collect()
            again = hdo.Run.resume(out).finish()
            self.assertEqual(again.fingerprint, whole.fingerprint)
            with open(os.path.join(out, "summary.json")) as f:
                self.assertEqual(json.load(f)["params_sha256"], whole.fingerprint)
            with self.assertRaises(hdo.Error):
                hdo.Run(QUADRATIC, out=out)

    def test_auto_rates(self):
        keys = {"population": "2fo+2zo", "population.fo.lr": "auto", "population.zo.lr": "auto", "checkpoint.every": 10}
        whole = hdo.Run(QUADRATIC, **keys).finish()
        self.assertEqual(whole.status, "completed")
        self.assertGreater(whole.rows[-1]["lr/fo"], 0)
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "r")
            hdo.Run(QUADRATIC, out=out, **keys).advance(25)
            gc.collect()
            self.assertEqual(hdo.Run.resume(out).finish().fingerprint, whole.fingerprint)

    def test_ctrl_c_returns_what_is_there(self):
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        r = hdo.run(QUADRATIC, steps=100_000_000, progress=False)
        timer.join()
        self.assertEqual(r.status, "stopped")
        self.assertGreater(r.step, 0)
        self.assertEqual(r.rows[-1]["step"], r.step)


class OwnFunctions(unittest.TestCase):
    def test_first_and_zeroth_order(self):
        res = hdo.minimize(sphere, [0.0, 0.0], sphere_grad, nodes={"fo": 2, "zo": 6}, steps=100, seed=1)
        self.assertLess(abs(res.x - 3).max(), 0.01)
        self.assertLess(res.fun, 1e-4)
        self.assertTrue(res.success)
        self.assertAlmostEqual(res.fun, sphere(res.x), places=5)

    def test_many_points_at_once_are_the_same(self):
        calls = []

        def losses(X):
            calls.append(len(X))
            return ((X - 3) ** 2).astype(np.float64).sum(1)

        one = hdo.minimize(lambda x: float(((x - 3) ** 2).astype(np.float64).sum()), np.zeros(3), steps=20, nodes={"zo": 4})
        many = hdo.minimize(None, np.zeros(3), losses=losses, steps=20, nodes={"zo": 4})
        self.assertEqual(one.run.fingerprint, many.run.fingerprint)
        self.assertGreater(max(calls), 1)

    def test_batches(self):
        rng = np.random.default_rng(1)
        A = rng.normal(size=(200, 3))
        b = A @ [1.0, -2.0, 0.5]
        seen = set()

        def loss(x, batch):
            rows, target = batch
            seen.add(len(target))
            return float(((rows @ x - target) ** 2).mean())

        def grad(x, batch):
            rows, target = batch
            return 2 * rows.T @ (rows @ x - target) / len(target)

        res = hdo.minimize(loss, np.zeros(3), grad, data=(A, b), nodes={"fo": 2, "zo": 2}, batch=16, steps=300, lr=0.05)
        np.testing.assert_allclose(res.x, [1.0, -2.0, 0.5], atol=0.02)
        self.assertIn(16, seen)
        numbers = hdo.minimize(lambda x, i: float(((A[i] @ x - b[i]) ** 2).mean()), np.zeros(3), data=200, batch=16,
                               nodes={"zo": 4}, steps=10)
        self.assertEqual(numbers.nit, 10)

    def test_exceptions_come_out_with_their_traceback(self):
        def broken(x):
            raise KeyError("the oven is cold")

        try:
            hdo.minimize(broken, [0.0], steps=5)
        except KeyError:
            said = traceback.format_exc()
        self.assertIn("in broken", said)
        self.assertIn("the oven is cold", said)

    def test_failed_evaluations_are_counted(self):
        n = [0]

        def shaky(x):
            n[0] += 1
            if n[0] % 50 == 0:
                raise hdo.EvaluationFailed("busy")
            return sphere(x)

        res = hdo.minimize(shaky, [0.0, 0.0], nodes={"zo": 4}, steps=40)
        self.assertTrue(res.success)
        self.assertGreater(res.rows[-1]["oracle/failed"], 0)

    def test_ctrl_c_inside_the_function(self):
        def slow(x):
            if slow.calls == 30:
                os.kill(os.getpid(), signal.SIGINT)
            slow.calls += 1
            return sphere(x)

        slow.calls = 0
        res = hdo.minimize(slow, [0.0, 0.0], nodes={"zo": 2}, steps=1000)
        self.assertFalse(res.success)
        self.assertEqual(res.x.shape, (2,))

    def test_wrong_shapes_are_said(self):
        with self.assertRaisesRegex(ValueError, "grad"):
            hdo.minimize(sphere, [0.0, 0.0], lambda x: np.zeros(3), steps=2)
        with self.assertRaisesRegex(ValueError, "losses"):
            hdo.minimize(None, [0.0, 0.0], losses=lambda X: 1.0, steps=2)
        with self.assertRaisesRegex(hdo.Error, "gradient"):
            hdo.minimize(sphere, [0.0, 0.0], nodes={"fo": 2}, steps=2)

    def test_x_is_read_only(self):
        def vandal(x):
            x[0] = 1
            return 0.0

        with self.assertRaises(ValueError):
            hdo.minimize(vandal, [0.0, 0.0], steps=2)

    def test_shape_of_x0_is_kept(self):
        res = hdo.minimize(lambda x: float(((x - np.eye(2)) ** 2).sum()), np.zeros((2, 2)), lambda x: 2 * (x - np.eye(2)), steps=80)
        np.testing.assert_allclose(res.x, np.eye(2), atol=0.01)

    def test_resume_of_an_own_function(self):
        problem = hdo.Problem(sphere, [0.0, 0.0], sphere_grad, identity="sphere 1")
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "r")
            keys = {"nodes": {"fo": 2, "zo": 2}, "steps": 40, "checkpoint.every": 10}
            whole = hdo.Run(problem.config(**keys)).finish()
            r = hdo.Run(problem.config(**keys), out=out)
            r.advance(25)
            del r
            gc.collect()
            again = hdo.Run.resume(out, problem=problem.config(**keys)).finish()
            self.assertEqual(again.fingerprint, whole.fingerprint)
            other = hdo.Problem(sphere, [0.0, 0.0], sphere_grad, identity="sphere 2")
            with self.assertRaises(hdo.Error):
                hdo.Run.resume(out, problem=other.config(**keys))


class Laboratory(unittest.TestCase):
    def test_check(self):
        def problems(grad, **more):
            notes = hdo.check(sphere, np.zeros(3), grad, nodes={"fo": 2, "zo": 2}, steps=40, **more)["notes"]
            return [note["text"] for note in notes if note["level"] == "problem"]

        self.assertEqual(problems(sphere_grad), [])
        self.assertIn("Derivatives disagree", problems(lambda x: 3 * (x - 3))[0])
        self.assertTrue(any("diverged" in text for text in problems(sphere_grad, lr=5.0)))

    def test_predict_agrees_with_a_run(self):
        rng = np.random.default_rng(0)
        A = rng.normal(size=(64, 5))

        def loss(x, i):
            return float(0.5 * ((A[i] - x) ** 2).sum(1).mean())

        def grad(x, i):
            return x - A[i].mean(0)

        known = {"data": 64, "batch": 4, "steps": 200, "lr": 0.1, "nodes": {"fo": 4}}
        p = hdo.predict(loss, np.zeros(5), grad, **known)[0]
        r = hdo.minimize(loss, np.zeros(5), grad, **known)
        self.assertAlmostEqual(p["val_loss_mu"], r.fun, delta=0.05 * r.fun)

    def test_plan(self):
        answer = hdo.plan("theory-fleet", fo=2, zo=4, rv=8, fleet={"seeds": 0})
        self.assertIn("worth_adding", answer)
        with self.assertRaisesRegex(hdo.Error, "flavour"):
            hdo.plan("theory-fleet", fo=2, zo=4, fleet={"flavour": 1})


class Files(unittest.TestCase):
    def test_safetensors_round_trip(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "w.safetensors")
            tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float32(2.5)}
            hdo.save_weights(path, tensors)
            back = hdo.load_weights(path)
            np.testing.assert_array_equal(back["a"], tensors["a"])
            self.assertEqual(back["b"].shape, ())
            r = hdo.run(QUADRATIC, progress=False)
            r.save(path)
            np.testing.assert_array_equal(hdo.load_weights(path)["x"], r.mean())
            with open(path, "wb") as f:
                f.write(b"nothing")
            with self.assertRaises(ValueError):
                hdo.load_weights(path)


class Leaks(unittest.TestCase):
    def test_runs_leave_nothing(self):
        def memory():
            with open("/proc/self/statm") as f:
                return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def once():
            hdo.minimize(sphere, [0.0, 0.0], sphere_grad, steps=2)

        for _ in range(50):
            once()
        gc.collect()
        before = memory()
        for _ in range(200):
            once()
        gc.collect()
        self.assertLess(memory() - before, 2 << 20)


def load_tests(loader, tests, ignore):
    for name in ("classifier", "config", "minimize", "run"):
        tests.addTests(doctest.DocTestSuite("hdo." + name))
    return tests


if __name__ == "__main__":
    unittest.main()

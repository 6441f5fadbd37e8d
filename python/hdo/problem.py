# SPDX-License-Identifier: Apache-2.0
"""A function of one's own as the library sees it: callbacks in a table of <hdo/objective.h>."""

import ctypes
import hashlib

import numpy as np

from ._native import HAS_ACCURACY, WANT_INDICES, Call, CError, GradientFn, LossesFn, LossFn, MetricsFn, ObjectiveDef, \
    Samples, SlopesFn, StartFn, TensorDef, check, hdo
from .config import Config

_double = ctypes.c_double
_FAILED, _STOP = 1, -1


class EvaluationFailed(Exception):
    """Raise it in a loss or gradient when this one evaluation failed but others may not: the node leaves out its step,
    which is counted in the column `oracle/failed`, and the run goes on."""


def _rows_of(data, index):
    """The samples of a batch: rows of one array, or a tuple of rows of several."""
    if isinstance(data, (int, np.integer)):
        return index
    if isinstance(data, tuple):
        return tuple(part[index] for part in data)
    return data[index]


def _indexable(data):
    """Lists become arrays; arrays and tensors stay what they are."""
    if data is None or isinstance(data, (int, np.integer)) or hasattr(data, "shape"):
        return data
    if isinstance(data, tuple):
        return tuple(part if hasattr(part, "shape") else np.asarray(part) for part in data)
    return np.asarray(data)


def _length(data):
    if isinstance(data, (int, np.integer)):
        return int(data)
    return len(data[0]) if isinstance(data, tuple) else len(data)


class Problem:
    """A function to be minimised by a population.

    loss(x) or, with data, loss(x, batch): a number. x is a read-only array of float32 in the shape of x0.
    grad(x[, batch]): an array like x0; None: zeroth order only. It may also return (loss, gradient).
    losses(X[, batch]): losses of many points, one a row of X, at once: the speed of zeroth-order nodes.
    slopes(x, U[, batch]): directional derivatives along the rows of U, for forward mode.
    correct(x, batch): how many samples of the batch are answered rightly; gives the accuracy columns.
    data: arrays (or a tuple of them) whose first axis counts samples, `batch` then holds rows; or a number of samples,
        `batch` then holds their numbers. val_data: the same for evaluations; None: all of data.
    identity: a text that changes when the function does; guards `Run.resume`.
    """

    def __init__(self, loss, x0, grad=None, *, losses=None, slopes=None, correct=None, data=None, val_data=None,
                 name="python", identity=None, tensors=None):
        self.x0 = np.array(x0, dtype=np.float32)
        if self.x0.size == 0:
            raise ValueError("x0 is empty: it says how many numbers there are and where to start")
        if not np.all(np.isfinite(self.x0)):
            raise ValueError("x0 has numbers that are not finite")
        if loss is None and losses is None:
            raise TypeError("a loss is needed: loss(x), or losses(X) for many points at once")
        self.loss, self.grad, self.losses, self.slopes, self.correct = loss, grad, losses, slopes, correct
        self.data = _indexable(data)
        self.val_data = self.data if val_data is None else _indexable(val_data)
        self.name, self.identity, self.tensors = name, identity, tensors
        self.thrown = None  # what a callback threw, to be thrown again by whoever called the library
        self._floats = ctypes.c_float * self.x0.size
        self._def = self._table()

    # ---- what the callbacks share ----

    def _at(self, address, shape=None):
        """Numbers of the library as a read-only array."""
        view = np.frombuffer(self._floats.from_address(address), np.float32)
        view.flags.writeable = False
        return view.reshape(self.x0.shape if shape is None else shape)

    def _many(self, address, stride, count):
        """`count` points, `stride` numbers from one to the next, as rows."""
        block = (ctypes.c_float * ((count - 1) * stride + self.x0.size)).from_address(address)
        view = np.lib.stride_tricks.as_strided(np.frombuffer(block, np.float32), (count,) + self.x0.shape,
                                               (stride * 4,) + self.x0.strides, writeable=False)
        return view

    def _batch(self, address):
        """() without data, (batch,) with: what is handed on behind x."""
        if self.data is None:
            return ()
        s = Samples.from_address(address)
        index = np.frombuffer((ctypes.c_int64 * s.count).from_address(ctypes.addressof(s.index.contents)),
                              np.int64) if s.count > 0 else np.empty(0, np.int64)
        return (_rows_of(self.data if s.train else self.val_data, index),)

    def _guard(self, call, work):
        """Runs a callback; whatever it throws ends the run and comes out of the call that made it."""
        try:
            work()
            return 0
        except EvaluationFailed as e:
            _say(call, str(e))
            return _FAILED
        except BaseException as e:  # KeyboardInterrupt and SystemExit too: nothing may pass through C
            if self.thrown is None:
                self.thrown = e
            _say(call, f"{type(e).__name__}: {e}")
            return _STOP

    # ---- the callbacks ----

    def _one(self, x, batch):
        if self.loss is not None:
            return float(self.loss(x, *batch))
        return float(np.asarray(self.losses(x[None], *batch)).reshape(-1)[0])

    def _start(self, _, call, x):
        ctypes.memmove(x, self.x0.ctypes.data, self.x0.nbytes)
        return 0

    def _loss(self, _, call, samples, x, out):
        def work():
            _double.from_address(out).value = self._one(self._at(x), self._batch(samples))
        return self._guard(call, work)

    def _losses(self, _, call, samples, points, stride, count, out):
        def work():
            values = np.asarray(self.losses(self._many(points, stride, count), *self._batch(samples)), np.float64)
            if values.shape != (count,):
                raise ValueError(f"losses(X) must return {count} numbers, one for each row of X; it returned shape {values.shape}")
            ctypes.memmove(out, np.ascontiguousarray(values).ctypes.data, 8 * count)
        return self._guard(call, work)

    def _gradient(self, _, call, samples, x, out, g):
        def work():
            at, batch = self._at(x), self._batch(samples)
            answer = self.grad(at, *batch)
            value, gradient = answer if isinstance(answer, tuple) else (self._one(at, batch), answer)
            gradient = np.ascontiguousarray(gradient, np.float32)
            if gradient.size != self.x0.size:
                raise ValueError(f"grad(x) must return {self.x0.size} numbers, like x0; it returned {gradient.size}")
            _double.from_address(out).value = float(value)
            ctypes.memmove(g, gradient.ctypes.data, gradient.nbytes)
        return self._guard(call, work)

    def _slopes(self, _, call, samples, x, directions, stride, count, out, slope):
        def work():
            at, batch = self._at(x), self._batch(samples)
            answer = self.slopes(at, self._many(directions, stride, count), *batch)
            value, values = answer if isinstance(answer, tuple) else (self._one(at, batch), answer)
            values = np.ascontiguousarray(values, np.float64)
            if values.shape != (count,):
                raise ValueError(f"slopes(x, U) must return {count} numbers, one for each row of U; it returned shape {values.shape}")
            _double.from_address(out).value = float(value)
            ctypes.memmove(slope, values.ctypes.data, values.nbytes)
        return self._guard(call, work)

    def _metrics(self, _, call, samples, x, loss_sum, correct):
        def work():
            at, batch = self._at(x), self._batch(samples)
            count = max(Samples.from_address(samples).count, 1)
            _double.from_address(loss_sum).value = self._one(at, batch) * count
            ctypes.c_int64.from_address(correct).value = int(self.correct(at, *batch))
        return self._guard(call, work)

    # ---- the table ----

    def _table(self):
        d = ObjectiveDef()
        d.struct_size = ctypes.sizeof(ObjectiveDef)
        d.name = self.name.encode()
        identity = self.identity or self.name
        d.identity = identity.encode() if len(identity) < 500 else hashlib.sha256(identity.encode()).hexdigest().encode()
        d.dim = self.x0.size
        if self.data is not None:
            d.flags = WANT_INDICES
            d.train_count, d.val_count = _length(self.data), _length(self.val_data)
        if self.tensors:
            d.n_tensors = len(self.tensors)
            d.tensors = (TensorDef * len(self.tensors))(*[
                TensorDef(name.encode(), max(1, len(shape)), (ctypes.c_int64 * 4)(*(shape or (1,))))
                for name, shape in self.tensors])
        d.start = StartFn(self._start)
        if self.loss is not None:
            d.loss = LossFn(self._loss)
        if self.losses is not None:
            d.losses = LossesFn(self._losses)
        if self.grad is not None:
            d.gradient = GradientFn(self._gradient)
        if self.slopes is not None:
            d.slopes = SlopesFn(self._slopes)
        if self.correct is not None:
            d.flags |= HAS_ACCURACY
            d.metrics = MetricsFn(self._metrics)
        return d

    def use(self, config):
        """Makes it the objective of a configuration."""
        error = CError()
        check(hdo.hdo_config_use_objective(config._c, ctypes.byref(self._def), None, ctypes.byref(error)), error)
        config._own = self
        return config

    def config(self, nodes=None, steps=200, lr=0.05, rv=16, seed=1, batch=None, **keys):
        """The configuration hdo.minimize runs: see there."""
        config = Config({"name": self.name, "population": self._classes(nodes, lr, rv, batch)})
        self.use(config)
        config["seed"], config["steps"] = seed, steps
        if "threads" not in keys:
            config["threads"] = 1  # Python runs one thread at a time
        if "eval.every" not in keys and "eval" not in keys:
            config["eval.every"] = max(1, steps // 50)
        for key, value in keys.items():
            config[key] = value
        return config

    def _classes(self, nodes, lr, rv, batch):
        if nodes is None:
            nodes = {"zo": 8} if self.grad is None else {"fo": 2, "zo": 6}
        classes = {}
        for name, given in nodes.items():
            own = dict(given) if isinstance(given, dict) else {"count": int(given)}
            own.setdefault("estimator", "fo" if name.startswith("fo") else "fd")
            own.setdefault("lr", lr)
            if own["estimator"] != "fo":
                own.setdefault("rv", rv)
            if batch is not None:
                own.setdefault("batch", batch)
            classes[name] = own
        return classes


def _say(call, sentence):
    c = Call.from_address(call)
    raw = sentence.encode("utf-8", "replace")[:c.message_cap - 1] + b"\0"
    ctypes.memmove(c.message, raw, len(raw))

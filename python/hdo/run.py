# SPDX-License-Identifier: Apache-2.0
"""Runs: made, advanced, looked at."""

import ctypes
import json
import os
import time

import numpy as np

from ._native import CError, Error, LogFn, RUNNING, STOPS, check, hdo, lab, text, words
from .config import Config
from .progress import Progress

_WHOLE = ("step", "interactions", "oracle/forward", "oracle/backward", "oracle/jvp", "oracle/cost", "bytes_exchanged",
          "nodes/present", "oracle/failed")
_PIECE_S = 0.1  # seconds of one call into the library: between two of them Python hears Ctrl-C


class Run:
    """A population on its way. `hdo.run` makes one and lets it finish; make one by hand to go step by step:

    >>> r = Run({"steps": 3, "model": {"name": "quadratic", "dim": 4}, "population": {"fo": {"count": 2, "estimator": "fo"}}})
    >>> [step for step in r]
    [1, 2, 3]
    >>> r.status
    'completed'

    The first argument and the keywords are those of hdo.Config. `out` is a folder to keep the run in (as `hdo run -o`),
    `force` replaces a run that is there. `progress`: True, False, or None for "when somebody is looking".
    """

    def __init__(self, base=None, *, out=None, force=False, progress=None, **keys):
        self.config = base if isinstance(base, Config) and not keys else Config(base, **keys)
        self._begin(progress)
        error = CError()
        self._open(self.config._c, None)
        if out is not None:
            check(hdo.hdo_run_open_dir(self._r, os.fsencode(os.fspath(out)), force, ctypes.byref(error)), error)
            self._dir = out

    @classmethod
    def resume(cls, folder, *, problem=None, progress=None):
        """Goes on with the run stored in `folder`, bit for bit. `problem`: the Config with the function of one's own it was
        made with."""
        self = cls.__new__(cls)
        self.config = problem
        self._begin(progress)
        self._open(problem._c if problem is not None else None, os.fsencode(os.fspath(folder)))
        self._dir = folder
        return self

    def _begin(self, progress):
        self._r = ctypes.c_void_p()
        self._dir = None
        self._why = RUNNING
        self._rows = []
        self._progress = Progress(progress)
        self.log = []  # what the run said: (level, sentence)

    def _open(self, config, folder):
        error = CError()
        status = lab().hdo_lab_run_open(ctypes.byref(self._r), config, folder, ctypes.byref(error))
        self._raise_own()
        check(status, error)
        self._columns = words(hdo.hdo_run_columns(self._r))
        self._encoded = [name.encode() for name in self._columns]
        said = self.log  # not self: a run that nobody holds must end

        def hear(_, level, message):
            said.append((("debug", "info", "warning")[level], message.decode("utf-8", "replace")))

        self._hear = LogFn(hear)
        error = CError()
        check(hdo.hdo_run_on_log(self._r, self._hear, None, ctypes.byref(error)), error)

    # ---- going on ----

    def _raise_own(self):
        """What a function of one's own threw comes out again, with its traceback."""
        own = self.config._own if self.config is not None else None
        if own is not None and own.thrown is not None:
            thrown, own.thrown = own.thrown, None
            raise thrown

    def advance(self, steps=1):
        """Up to `steps` more steps. False when the run is over."""
        why, error = ctypes.c_int(self._why), CError()
        status = hdo.hdo_run_advance(self._r, steps, ctypes.byref(why), ctypes.byref(error))
        self._why = why.value
        self._raise_own()
        check(status, error)
        return self._why == RUNNING

    def __iter__(self):
        """Step by step: yields the number of each step when it is done."""
        while self._why == RUNNING:
            before = self.step
            self.advance(1)
            if self.step > before:
                yield self.step

    def finish(self):
        """Goes on to the end. Ctrl-C ends it early and keeps what is there (`status` is then 'stopped'). Returns self."""
        piece, total = 1, self._total()
        try:
            while self._why == RUNNING:
                start = time.perf_counter()
                self.advance(piece)
                spent = time.perf_counter() - start
                piece = max(1, min(2 * piece, int(piece * _PIECE_S / max(spent, 1e-9))))
                self._progress.show(self.step, total, self)
        except KeyboardInterrupt:
            try:
                self.stop()
            except Error:  # it struck inside a function of one's own: there is no further evaluation
                self._why = STOPS.index("stopped")
        finally:
            self._progress.end()
        if self._dir is not None and self._why != RUNNING:
            error = CError()
            check(hdo.hdo_run_write_summary(self._r, ctypes.byref(error)), error)
        return self

    def stop(self):
        """Ends the run early, with one more evaluation."""
        error = CError()
        status = hdo.hdo_run_stop(self._r, ctypes.byref(error))
        self._raise_own()
        check(status, error)
        self._why = STOPS.index("stopped")

    def save(self, path):
        """Writes the model the run offers, the mean, to a safetensors file: named tensors as PyTorch has them."""
        from . import weights
        weights.save(path, self.tensors())

    def tensors(self, node=None):
        """The mean model (or that of one node) as a dict of named arrays."""
        from . import weights
        return weights.named(self, self.mean() if node is None else self.params(node))

    # ---- looking ----

    def _total(self):
        config = hdo.hdo_run_config(self._r)
        return sum(int(_get(config, key)) for key in (b"steps", b"warmup"))

    @property
    def step(self):
        """Steps done, warm-up included."""
        return hdo.hdo_run_step(self._r)

    @property
    def nodes(self):
        return hdo.hdo_run_nodes(self._r)

    @property
    def dim(self):
        return hdo.hdo_run_dim(self._r)

    @property
    def status(self):
        """'running', 'completed', 'target', 'timeout', 'diverged' or 'stopped'."""
        return STOPS[self._why]

    @property
    def summary(self):
        """summary.json as a dict."""
        return json.loads(text(hdo.hdo_run_summary(self._r)))

    @property
    def rows(self):
        """All evaluations so far, a dict each, with the names of metrics.jsonl. Figures that are not known are NaN."""
        for i in range(len(self._rows), hdo.hdo_run_row_count(self._r)):
            row = hdo.hdo_run_row(self._r, i)
            values = {name: hdo.hdo_row_value(row, key) for name, key in zip(self._columns, self._encoded)}
            for name in _WHOLE:
                if name in values and values[name] == values[name]:
                    values[name] = int(values[name])
            self._rows.append(values)
        return self._rows

    def frame(self):
        """The rows as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise ImportError("frame() needs pandas: pip install pandas, or apt install python3-pandas") from None
        return pandas.DataFrame(self.rows)

    def params(self, node):
        """The model of one node: no copy, read only, changes as the run goes on."""
        d = ctypes.c_size_t()
        pointer = hdo.hdo_run_params(self._r, node, ctypes.byref(d))
        if not pointer:
            raise IndexError(f"there is no node {node}: nodes are 0 to {self.nodes - 1}")
        block = (ctypes.c_float * d.value).from_address(ctypes.addressof(pointer.contents))
        block._run = self  # the memory is the run's: it lives as long as somebody looks at it
        view = np.frombuffer(block, dtype=np.float32)
        view.flags.writeable = False
        return view

    def mean(self):
        """The mean of all models."""
        out, error = np.empty(self.dim, np.float32), CError()
        pointer = out.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        check(hdo.hdo_run_mean(self._r, pointer, ctypes.byref(error)), error)
        return out

    @property
    def fingerprint(self):
        """SHA-256 over all models: two runs are equal if and only if these are."""
        buffer = ctypes.create_string_buffer(65)
        hdo.hdo_run_fingerprint(self._r, buffer)
        return buffer.value.decode()

    def plot(self, ax=None, columns=("val/loss_mu", "val/loss_mean"), label=None):
        """Draws curves over steps with matplotlib; shown by itself in notebooks. Returns the axes."""
        from .plot import curves
        return curves(self, ax, columns, label)

    def __repr__(self):
        last = self.rows[-1] if self.rows else {}
        loss = last.get("val/loss_mu", float("nan"))
        return f"<hdo.Run {self.status}: {self.nodes} nodes, d = {self.dim}, step {self.step}, loss of the mean {loss:.6g}>"

    def __del__(self):
        if getattr(self, "_r", None) and hdo is not None:
            hdo.hdo_run_free(self._r)
            self._r = None


def _get(config, key):
    buffer, error = ctypes.create_string_buffer(2048), CError()
    check(hdo.hdo_config_get(config, key, buffer, len(buffer), ctypes.byref(error)), error)
    return buffer.value.decode()


def run(base=None, *, out=None, force=False, progress=None, **keys):
    """Runs a configuration to its end and returns it.

    >>> r = run({"model": {"name": "quadratic", "dim": 4}, "steps": 50}, population="1fo+2zo", progress=False)
    >>> r.status, r.step
    ('completed', 50)
    """
    return Run(base, out=out, force=force, progress=progress, **keys).finish()

# SPDX-License-Identifier: Apache-2.0
"""Functions of one's own: minimised, checked, predicted, planned."""

import ctypes
import json

from ._native import CError, lab, text
from .problem import Problem
from .run import Run


class Result:
    """What hdo.minimize found: `x` (the mean model), `fun` (its loss), `rows`, `message`, `success`, `nit`, `nfev`, `run`."""

    def __init__(self, run, problem):
        self.run, self.rows = run, run.rows
        self.x = run.mean().astype(float).reshape(problem.x0.shape)
        last = self.rows[-1] if self.rows else {}
        self.fun = last.get("val/loss_mu", float("nan"))
        self.nit = run.step
        self.nfev = sum(last.get(column, 0) for column in ("oracle/forward", "oracle/backward", "oracle/jvp"))
        self.status = run.status
        self.success = run.status in ("completed", "target")
        self.message = {
            "completed": f"all {run.step} steps are done",
            "target": f"the target was reached at step {run.step}",
            "timeout": f"the time was used up at step {run.step}",
            "diverged": f"the run diverged at step {run.step}: a smaller lr, or more random vectors (rv), would help",
            "stopped": f"stopped at step {run.step}",
        }.get(run.status, run.status)

    def __repr__(self):
        return f"<hdo.Result fun={self.fun:.6g}, {self.message}>"


def _problem(loss, x0, grad, options):
    if isinstance(loss, Problem):
        return loss
    if x0 is None:
        raise TypeError("x0 is needed: where to start, and how many numbers there are")
    known = ("losses", "slopes", "correct", "data", "val_data", "name", "identity")
    return Problem(loss, x0, grad, **{key: options.pop(key) for key in known if key in options})


def minimize(loss, x0=None, grad=None, *, nodes=None, steps=200, lr=0.05, rv=16, seed=1, batch=None, out=None,
             force=False, progress=None, **options):
    """Minimises a function with a hybrid population and returns a Result.

    loss, x0, grad, and the options losses, slopes, correct, data, val_data, name, identity: see hdo.Problem, which may be
    given itself in place of loss. nodes: how many of each class, {"fo": 2, "zo": 6}; a class whose name begins with fo has
    gradients, others estimate theirs from rv random directions; a dict instead of a number sets more ({"zo": {"count": 6,
    "estimator": "fd-central"}}). Further keywords are keys of the configuration. Ctrl-C returns what is there.

    >>> r = minimize(lambda x: ((x - 3) ** 2).sum(), [0.0, 0.0], lambda x: 2 * (x - 3), steps=100, progress=False)
    >>> bool(abs(r.x - 3).max() < 0.05)
    True
    """
    problem = _problem(loss, x0, grad, options)
    problem.thrown = None
    config = problem.config(nodes, steps, lr, rv, seed, batch, **options)
    return Result(Run(config, out=out, force=force, progress=progress).finish(), problem)


def _ask(function, config, *arguments):
    error = CError()
    answer = function(config._c, *arguments, ctypes.byref(error))
    own = config._own
    if own is not None and own.thrown is not None:
        thrown, own.thrown = own.thrown, None
        raise thrown
    return json.loads(text(answer, error))


def _list(words):
    return (ctypes.c_char_p * (len(words) + 1))(*[w.encode() for w in words], None)


def check(loss, x0=None, grad=None, *, nodes=None, steps=200, lr=0.05, rv=16, seed=1, batch=None, **options):
    """Examines a problem before it is run, as `hdo check` does: gradients against differences, noise of the estimates, rates
    outside their range, a trial of a few dozen steps. Returns a dict; `notes` has what is to be said, each with a `level`
    ("problem" is the worst) and a `text`.

    The first argument may also be a configuration (preset, path, dict, hdo.Config).
    """
    return _ask(lab().hdo_lab_check, _config(loss, x0, grad, nodes, steps, lr, rv, seed, batch, options))


def predict(loss, x0=None, grad=None, *, populations=None, horizon=0, nodes=None, steps=200, lr=0.05, rv=16, seed=1,
            batch=None, **options):
    """What populations will reach, computed before they run (`hdo predict`): a list of dicts, one for each population
    ("24fo+256zo"; None: that of nodes)."""
    config = _config(loss, x0, grad, nodes, steps, lr, rv, seed, batch, options)
    return _ask(lab().hdo_lab_predict, config, _list(populations or []), horizon)["predictions"]


def plan(loss, x0=None, grad=None, *, fo, zo, fleet=None, nodes=None, steps=200, lr=0.05, rv=16, seed=1, batch=None,
         **options):
    """Is it worth adding up to zo forward-only nodes to fo nodes with gradients (`hdo plan`)? fleet: speeds and limits as the
    options of the command, {"zo-speed": 3, "memory": 64}. Returns a dict; `worth_adding` is the answer."""
    config = _config(loss, x0, grad, nodes, steps, lr, rv, seed, batch, options)
    words = [str(word) for pair in {"fo": fo, "zo": zo, "rv": rv, **(fleet or {})}.items() for word in pair]
    return _ask(lab().hdo_lab_plan, config, _list(words))


def _config(loss, x0, grad, nodes, steps, lr, rv, seed, batch, options):
    from .config import Config
    if isinstance(loss, Problem) or callable(loss):
        return _problem(loss, x0, grad, options).config(nodes, steps, lr, rv, seed, batch, **options)
    return Config(loss, **options)

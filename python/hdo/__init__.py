# SPDX-License-Identifier: Apache-2.0
"""Hybrid decentralised optimisation: one model trained by nodes with gradients and nodes that can only run it forward.

    import hdo
    r = hdo.run("e2", population="4fo+4zo", steps=20, seed=1)
    res = hdo.minimize(loss, x0, grad=None, nodes={"zo": 8}, steps=200, lr=0.05, rv=16)
"""

from ._native import Error, hdo as _hdo
from .classifier import Classifier
from .config import Config, presets
from .minimize import Result, check, minimize, plan, predict
from .problem import EvaluationFailed, Problem
from .run import Run, run
from .weights import load as load_weights, save as save_weights

__version__ = _hdo.hdo_version().decode()
__all__ = ["Classifier", "Config", "Error", "EvaluationFailed", "Problem", "Result", "Run", "check", "load_weights",
           "minimize", "plan", "predict", "presets", "run", "save_weights"]

# SPDX-License-Identifier: Apache-2.0
"""A classifier with the methods scikit-learn's have, trained by a population."""

import numpy as np

from .problem import Problem
from .run import Run


class Classifier:
    """Softmax regression trained by a hybrid population.

    >>> X = np.concatenate([np.random.default_rng(0).normal(-2, 1, (50, 2)), np.random.default_rng(1).normal(2, 1, (50, 2))])
    >>> y = np.array([0] * 50 + [1] * 50)
    >>> Classifier(steps=100, progress=False).fit(X, y).score(X, y) > 0.95
    True
    """

    def __init__(self, nodes=None, steps=300, lr=0.1, rv=32, batch=32, seed=1, progress=None, **keys):
        self.nodes, self.steps, self.lr, self.rv, self.batch = nodes, steps, lr, rv, batch
        self.seed, self.progress, self.keys = seed, progress, keys

    def get_params(self, deep=True):
        return {"nodes": self.nodes, "steps": self.steps, "lr": self.lr, "rv": self.rv, "batch": self.batch,
                "seed": self.seed, "progress": self.progress, **self.keys}

    def set_params(self, **params):
        for key, value in params.items():
            if key in ("nodes", "steps", "lr", "rv", "batch", "seed", "progress"):
                setattr(self, key, value)
            else:
                self.keys[key] = value
        return self

    def fit(self, X, y):
        X = np.asarray(X, np.float64).reshape(len(X), -1)
        self.classes_, y = np.unique(np.asarray(y), return_inverse=True)
        self.mean_, self.scale_ = X.mean(0), X.std(0)
        self.scale_[self.scale_ == 0] = 1
        self.n_features_in_ = X.shape[1]
        Z, k, f = (X - self.mean_) / self.scale_, len(self.classes_), X.shape[1]
        if k < 2:
            raise ValueError("there is one class only: nothing to tell apart")
        x0 = np.zeros((f + 1, k), np.float32)

        def logits(w, Z):
            return Z @ w[..., :-1, :].astype(np.float64) + w[..., -1:, :]

        def losses(W, batch):
            Z, t = batch
            a = logits(W, Z)
            top = a.max(-1, keepdims=True)
            log = np.log(np.exp(a - top).sum(-1)) + top[..., 0]
            return (log - a[..., np.arange(len(t)), t]).mean(-1)

        def grad(w, batch):
            Z, t = batch
            a = logits(w, Z)
            p = np.exp(a - a.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            p[np.arange(len(t)), t] -= 1
            return np.concatenate([Z.T @ p, p.sum(0, keepdims=True)]) / len(t)

        def correct(w, batch):
            return (logits(w, batch[0]).argmax(-1) == batch[1]).sum()

        problem = Problem(lambda w, batch: losses(w[None], batch)[0], x0, grad, losses=losses, correct=correct,
                          data=(Z, y), name="classifier")
        config = problem.config(self.nodes, self.steps, self.lr, self.rv, self.seed, min(self.batch, len(y)), **self.keys)
        self.run_ = Run(config, progress=self.progress).finish()
        self.coef_ = self.run_.mean().astype(float).reshape(x0.shape)
        return self

    def decision_function(self, X):
        Z = (np.asarray(X, np.float64).reshape(len(X), -1) - self.mean_) / self.scale_
        return Z @ self.coef_[:-1] + self.coef_[-1]

    def predict_proba(self, X):
        a = self.decision_function(X)
        p = np.exp(a - a.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.decision_function(X).argmax(-1)]

    def score(self, X, y):
        return float((self.predict(X) == np.asarray(y)).mean())

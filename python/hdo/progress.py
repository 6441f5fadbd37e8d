# SPDX-License-Identifier: Apache-2.0
"""How far a run is: one line in a terminal, one line in a notebook, nothing in a pipe."""

import sys
import time

_EVERY_S = 0.25


def _in_notebook():
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


class Progress:
    def __init__(self, wanted):
        self._notebook = _in_notebook()
        self._on = (sys.stderr.isatty() or self._notebook) if wanted is None else bool(wanted)
        self._next = time.perf_counter() + _EVERY_S
        self._start = time.perf_counter()
        self._handle = None
        self._shown = 0

    def show(self, step, total, run):
        now = time.perf_counter()
        if not self._on or now < self._next:
            return
        self._next = now + _EVERY_S
        left = (now - self._start) * (total - step) / max(step, 1)
        rows = run.rows
        loss = f"  loss of the mean {rows[-1]['val/loss_mu']:.4g}" if rows else ""
        line = f"step {step} of {total}{loss}  {left:.0f} s left"
        if self._notebook:
            from IPython.display import display
            if self._handle is None:
                self._handle = display(line, display_id=True)
            else:
                self._handle.update(line)
        else:
            sys.stderr.write("\r" + line.ljust(self._shown))
            sys.stderr.flush()
            self._shown = len(line)

    def end(self):
        if self._shown:
            sys.stderr.write("\r" + " " * self._shown + "\r")
            sys.stderr.flush()
            self._shown = 0

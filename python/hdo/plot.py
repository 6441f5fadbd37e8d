# SPDX-License-Identifier: Apache-2.0
"""Curves with matplotlib, for notebooks; `hdo plot` draws the figures of the documentation."""


def curves(run, ax, columns, label):
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plot() needs matplotlib: pip install matplotlib, or apt install python3-matplotlib") from None
    if ax is None:
        _, ax = plt.subplots(figsize=(6, 4), constrained_layout=True)
    names = {"val/loss_mu": "mean model", "val/loss_mean": "mean over nodes"}
    steps = [row["step"] for row in run.rows]
    for k, column in enumerate(columns):
        values = [row.get(column, float("nan")) for row in run.rows]
        if all(v != v for v in values):
            continue
        name = names.get(column, column)
        ax.plot(steps, values, label=f"{label}, {name}" if label else name, linewidth=2.2 if k == 0 else 1.2)
    if all(v > 0 for line in ax.lines for v in line.get_ydata() if v == v):
        ax.set_yscale("log")
    ax.set_xlabel("step")
    ax.set_ylabel("validation loss")
    ax.legend(frameon=False)
    return ax

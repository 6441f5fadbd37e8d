#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An aarch64 member (tools/build-node FOLDER NATS-SOURCES aarch64, under qemu-user) and one of this machine, in TAP: the
same steps to the bit, and one run together.

    tests/fleet/arm.py HDO FOLDER/hdo-node
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import natsline as nl

CONFIG = """
name: t
steps: {steps}
engine: fleet
kernels: {kernels}
model: logistic
data: {{name: synthetic, classes: 4, features: 20, train: 4000, val: 200, separation: 2.0}}
population:
  zo: {{count: 4, estimator: {estimator}, rv: 4, lr: 0.01, batch: 8}}
eval: {{every: 0}}
fleet: {{beat_s: 0.5}}
"""


def alone(hdo, exe, **config):
    """The fingerprint of a member that meets nobody."""
    f = nl.Fleet(hdo, CONFIG.format(steps=30, **config))
    try:
        p = subprocess.run([*exe, "--join", f.url, "--run", "t", "--name", "a", "--place", "2", "--config", f.config, "-q", "--json",
                            "--threads", "1"], capture_output=True, text=True, timeout=200, check=False)
        return json.loads(p.stdout)["params_sha256"] if p.returncode == 0 else p.stderr
    finally:
        f.close()


def together(hdo, arm):
    f = nl.Fleet(hdo, CONFIG.format(steps=400, kernels="auto", estimator="forward"))
    try:
        f.node("here", "--place", "1", "--pace", "0.01")
        with open(os.path.join(f.dir, "arm.log"), "wb") as log:
            f.members["arm"] = subprocess.Popen([*arm, "--join", f.url, "--run", "t", "--name", "arm", "--role", "zo", "--pace",
                                                 "0.01", "--threads", "1", "-o", os.path.join(f.dir, "arm")], stdout=log, stderr=log)
        codes = f.wait(timeout=120)
        if set(codes.values()) != {0}:
            return f"{codes} {f.log('arm')}"
        all_ = [f.summary(n) for n in ("here", "arm")]
        if min(s["fleet"]["exchanges"] for s in all_) < 5 or nl.drift(all_)[0] > 1e-5:
            return str([s["fleet"] for s in all_])
        return ""
    finally:
        f.close()


def main():
    hdo, arm = os.path.abspath(sys.argv[1]), ["qemu-aarch64", os.path.abspath(sys.argv[2])]
    cases = [(k, e) for k in ("ref", "auto") for e in ("fd", "forward")]
    print(f"1..{len(cases) + 1}")
    bad = 0
    for n, (kernels, estimator) in enumerate(cases):
        a, b = (alone(hdo, exe, kernels=kernels, estimator=estimator) for exe in ([hdo, "node"], arm))
        bad += a != b
        print(f"{'ok' if a == b else 'not ok'} {n + 1} - kernels {kernels}, {estimator}: the same bits", flush=True)
    text = together(hdo, arm)
    bad += text != ""
    print(f"{'not ok' if text else 'ok'} {len(cases) + 1} - one run together\n" + ("# " + text if text else ""), flush=True)
    sys.exit(1 if bad else 0)


main()

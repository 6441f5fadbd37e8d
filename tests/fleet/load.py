#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fleet under load and faults, in TAP: many members, killed -9 and restarted at random, a bus that restarts, a partition, a
member a thousand times slower, a full disk, large models.

    tests/fleet/load.py HDO [--members 64] [--seconds 600] [--seed 1] [--only churn,partition,disk,large]

Needs root for the partition (network namespaces) and the full disk (a small tmpfs). Every process is ended here, by its id.
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import natsline as nl

CONFIG = """
name: t
model: logistic
data: {{name: synthetic, classes: 5, features: 20, train: 8000, val: 500, separation: 2.0}}
steps: 1000000000
engine: fleet
population:
  fo: {{count: {fo}, estimator: fo, lr: 0.05, batch: 8}}
  zo: {{count: {zo}, estimator: forward, rv: 8, lr: 0.05, batch: 8}}
eval: {{every: 200}}
fleet: {{beat_s: 1, forget_s: {forget}}}
checkpoint: {{every_s: 5, keep: 1}}
"""
ARGS = None


def require(ok, text):
    if not ok:
        raise AssertionError(text)


def say(text):
    print(f"# {text}", flush=True)


def config(members, forget=120):
    fo = max(1, members // 8)
    return CONFIG.format(fo=fo, zo=members - fo, forget=forget)


def start_all(f, members, pace):
    fo = max(1, members // 8)
    for k in range(members):
        f.node(f"m{k}", "--role", "fo" if k < fo else "zo", "--place", str(k + 1), "--pace", str(pace))


def totals(f, wait=2.5):
    s = f.status(wait=wait)
    return s, {m["name"]: m for m in s["members"]}


class Steps:
    """Steps done by all lives, from what status says: a life's count starts where its checkpoint was."""

    def __init__(self):
        self.first, self.last = {}, {}

    def note(self, members):
        for m in members.values():
            key = (m["name"], m["epoch"])
            self.first.setdefault(key, m["step"] if m["steps_per_s"] == 0 else m["step"])
            self.last[key] = m["step"]

    def done(self):
        return sum(self.last[k] - self.first[k] for k in self.last)


def measure(f, seconds, pause=5.0, each=None):
    """Steps a second of the whole fleet over that time, and what status said at the end."""
    steps, end = Steps(), time.monotonic() + seconds
    start, now = time.monotonic(), {}
    while time.monotonic() < end:
        _, now = totals(f, 1.5)
        steps.note(now)
        if each is not None:
            each()
        time.sleep(max(0.0, min(pause, end - time.monotonic())))
    return steps.done() / (time.monotonic() - start), now


def test_churn():
    """30% of the members killed and restarted at random; the bus restarted three times; one a thousand times slower."""
    members, seconds = ARGS.members, ARGS.seconds
    rng = random.Random(ARGS.seed)
    pace = members / 400  # 400 steps a second in all: this machine also has to run the bus
    f = nl.Fleet(ARGS.hdo, config(members))
    try:
        start_all(f, members, pace)
        time.sleep(15)
        quiet, before = measure(f, min(60, seconds / 4))
        require(len(before) == members, f"{len(before)} of {members} members are there")
        memory0 = {n: m["memory"] for n, m in before.items()}
        say(f"undisturbed: {quiet:.0f} steps/s, loss {sum(m['loss'] for m in before.values()) / members:.4f}")
        f.kill(f"m{members - 1}")  # comes back a thousand times slower
        f.node(f"m{members - 1}", "--role", "zo", "--pace", str(1000 * pace))
        victims = rng.sample(range(members - 1), int(0.3 * members))
        state = {"kills": 0, "restarts": 0, "next": time.monotonic()}
        start = time.monotonic()

        def disturb():
            now = time.monotonic()
            while state["next"] < now:
                name = f"m{rng.choice(victims)}"
                if name in f.members:
                    f.kill(name)
                    f.node(name, "--role", "fo" if int(name[1:]) < max(1, members // 8) else "zo", "--pace", str(pace),
                           config=False)
                    state["kills"] += 1
                state["next"] += rng.expovariate(len(victims) / 60.0)  # each of them about once a minute
            if state["restarts"] < 3 and now - start > (state["restarts"] + 1) * seconds / 4:
                f.stop_server()
                time.sleep(2)
                f.start_server()
                state["restarts"] += 1
                say(f"{now - start:.0f} s: the bus was restarted")

        disturbed, _ = measure(f, seconds, 1.0, disturb)
        time.sleep(10)
        _, after = totals(f, 3.0)
        say(f"disturbed: {disturbed:.0f} steps/s ({100 * disturbed / quiet:.0f}%), {state['kills']} kills, "
            f"{state['restarts']} restarts of the bus, {len(after)} members at the end")
        require(len(after) == members, "members are missing")
        grown = [m["memory"] / memory0[n] for n, m in after.items() if n in memory0 and int(n[1:]) not in victims]
        say(f"memory of those that lived through: {min(grown):.2f} to {max(grown):.2f} times that of before")
        p = f.stop()
        require(p.returncode == 0, p.stderr)
        codes = f.wait(timeout=60)
        # The slow one is in the middle of a step that takes minutes.
        require(all(c == 0 for n, c in codes.items() if n != f"m{members - 1}"), str({n: c for n, c in codes.items() if c != 0}))
        all_ = [f.summary(n) for n, c in codes.items() if c == 0]
        size, relative = nl.drift(all_)
        loss = sum(s["final"]["val_loss_mean"] for s in all_) / len(all_)
        expired = sum(s["fleet"]["expired"] for s in all_)
        say(f"{len(all_)} summaries: loss {loss:.4f}, exchanges {sum(s['fleet']['exchanges'] for s in all_) // 2}, drift {size:.2g} a "
            f"coordinate ({relative:.1g} of what was moved), given up {expired}")
        require(disturbed > 0.88 * quiet, f"{disturbed:.0f} of {quiet:.0f} steps/s")
        require(loss < 1.25, "the target loss was not reached")
        require(size < 1e-5 and relative < 1e-3, "drift")
        require(max(grown) < 1.25, "memory has grown")
    finally:
        f.close()


def ip(*args, ok=True):
    return subprocess.run(["ip", *args], capture_output=True, check=ok)


def test_partition():
    """Half of the members lose the bus for a minute (their link goes down), then come back; nothing is lost."""
    out = min(60, ARGS.seconds / 4)
    f = nl.Fleet(ARGS.hdo, config(8))
    ns, a, b = f"hdo{os.getpid() % 10000}", f"hv{os.getpid() % 10000}a", f"hv{os.getpid() % 10000}b"
    try:
        ip("netns", "add", ns)
        ip("link", "add", a, "type", "veth", "peer", "name", b)
        ip("link", "set", b, "netns", ns)
        ip("addr", "add", "10.211.7.1/24", "dev", a)
        ip("link", "set", a, "up")
        for cmd in (["addr", "add", "10.211.7.2/24", "dev", b], ["link", "set", b, "up"], ["link", "set", "lo", "up"]):
            ip("netns", "exec", ns, "ip", *cmd)
        # A second server in the middle is not needed: ours listens on every address.
        f.stop_server()
        f.server_config = os.path.join(f.dir, "server.conf")
        with open(f.server_config, "w", encoding="utf-8") as out_file:
            out_file.write(f"listen: \"0.0.0.0:{f.port}\"\nping_interval: \"5s\"\nping_max: 3\n")
        f.start_server()
        for k in range(4):
            f.node(f"m{k}", "--role", "fo" if k == 0 else "zo", "--place", str(k + 1), "--pace", "0.02")
        real = f.hdo
        for k in range(4, 8):
            argv = ["ip", "netns", "exec", ns, real, "node", "--join", f"nats://10.211.7.1:{f.port}", "--run", "t", "--name",
                    f"m{k}", "--role", "zo", "--place", str(k + 1), "--pace", "0.02", "--threads", "1", "-q", "--config", f.config,
                    "-o", os.path.join(f.dir, f"m{k}")]
            log = open(os.path.join(f.dir, f"m{k}.log"), "ab")
            f.members[f"m{k}"] = subprocess.Popen(argv, stdout=log, stderr=log)
            log.close()
        time.sleep(12)
        _, before = totals(f)
        require(len(before) == 8, str(sorted(before)))
        ip("link", "set", a, "down")
        time.sleep(out)
        _, during = totals(f)
        say(f"after {out:.0f} s of partition {len(during)} members are seen from this side")
        require(len(during) == 4, "the others should be gone")
        require(all(during[n]["step"] > before[n]["step"] + 10 for n in during), "this side stands still")
        ip("link", "set", a, "up")
        time.sleep(30)
        _, after = totals(f)
        require(len(after) == 8, f"only {sorted(after)} came back")
        require(all(after[n]["step"] > before[n]["step"] + 10 * out for n in after), "the other side stood still")
        p = f.stop()
        require(p.returncode == 0 and set(f.wait(timeout=30).values()) == {0}, p.stderr)
        all_ = [f.summary(f"m{k}") for k in range(8)]
        size, relative = nl.drift(all_)
        say(f"drift {size:.2g} a coordinate ({relative:.1g}), given up {sum(s['fleet']['expired'] for s in all_)}, unsettled "
            f"{sum(s['fleet']['unsettled'] for s in all_)}")
        require(size < 1e-5, "drift")
        require(sum(s["fleet"]["expired"] for s in all_) == 0, "exchanges were given up")
    finally:
        f.close()
        ip("link", "del", a, ok=False)
        ip("netns", "del", ns, ok=False)


def test_disk():
    """The disk of one member is full: it says so, and everybody goes on."""
    f = nl.Fleet(ARGS.hdo, config(4))
    small = os.path.join(f.dir, "small")
    os.mkdir(small)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], check=True)
        for k in range(3):
            f.node(f"m{k}", "--role", "fo" if k == 0 else "zo", "--place", str(k + 1), "--pace", "0.01")
        f.node("full", "--role", "zo", "--place", "4", "--pace", "0.01", "-o", os.path.join(small, "full"), folder=False)
        time.sleep(6)
        fd = os.open(os.path.join(small, "ballast"), os.O_WRONLY | os.O_CREAT)
        try:
            while True:
                os.write(fd, b"x" * 4096)
        except OSError:
            os.close(fd)
        time.sleep(20)
        _, now = totals(f)
        require(len(now) == 4 and all(m["step"] > 500 for m in now.values()), str({n: m["step"] for n, m in now.items()}))
        text = f.log("full")
        require("No space left" in text, text)
        say("the member says: " + text.splitlines()[0])
        first = now["full"]["step"]
        time.sleep(3)
        require(totals(f)[1]["full"]["step"] > first, "it stands still")
        f.stop()
        codes = f.wait(timeout=30)
        require([codes[f"m{k}"] for k in range(3)] == [0, 0, 0] and codes["full"] != 0, str(codes))
    finally:
        f.close(keep=True)
        subprocess.run(["umount", small], check=False)
        shutil.rmtree(f.dir)


def test_large():
    """Models of 45 MB (ResNet-18): exchanges go through, heartbeats do not starve."""
    text = config(4).replace("model: logistic", "model: resnet18").replace("batch: 8", "batch: 1").replace(
        "classes: 5, features: 20, train: 8000, val: 500", "classes: 10, features: 3072, train: 64, val: 8").replace(
        "every: 200", "every: 0").replace("rv: 8", "rv: 1").replace("lr: 0.05", "lr: 0.0001")
    text = text.replace("{name: synthetic, classes: 10, features: 3072, train: 64, val: 8, separation: 2.0}",
                        "{name: cifar10, train: 64, val: 8}")
    f = nl.Fleet(ARGS.hdo, text)
    try:
        for k in range(3):
            f.node(f"m{k}", "--role", "zo", "--place", str(k + 2), "--pace", "2", folder=False)
        end = time.monotonic() + min(180, ARGS.seconds)
        silent = 0.0
        while time.monotonic() < end:
            _, now = totals(f, 3.0)
            silent = max([silent] + [m["silent_s"] for m in now.values()])
            if len(now) == 3 and min(m["exchanges"] for m in now.values()) >= 6:
                break
        say(f"exchanges {[m['exchanges'] for m in now.values()]}, longest silence {silent:.1f} s, memory "
            f"{max(m['memory'] for m in now.values()) / 1e6:.0f} MB, sent {[round(m['bytes'] / 1e6) for m in now.values()]} MB")
        require(len(now) == 3 and min(m["exchanges"] for m in now.values()) >= 4, str(now) + f.log("m0"))
        require(silent < 3.0, "heartbeats starve")
        f.stop()
        f.wait(timeout=60)
    finally:
        f.close()


def main():
    global ARGS
    p = argparse.ArgumentParser()
    p.add_argument("hdo")
    p.add_argument("--members", type=int, default=64)
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="churn,partition,disk,large")
    ARGS = p.parse_args()
    ARGS.hdo = os.path.abspath(ARGS.hdo)
    names = ARGS.only.split(",")
    print(f"1..{len(names)}")
    bad = 0
    for k, name in enumerate(names):
        start = time.monotonic()
        try:
            globals()["test_" + name]()
            print(f"ok {k + 1} - {name} ({time.monotonic() - start:.0f} s)", flush=True)
        except Exception:
            bad += 1
            print(f"not ok {k + 1} - {name} ({time.monotonic() - start:.0f} s)")
            print("\n".join("# " + x for x in traceback.format_exc().splitlines()), flush=True)
    sys.exit(1 if bad else 0)


main()

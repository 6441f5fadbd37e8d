#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fleet of real processes on a real server (nats-server on the loopback, a free port), in TAP.

    tests/fleet/fleet.py HDO [NAME...]

Every process started here is ended here, by its id.
"""
import concurrent.futures
import json
import os
import random
import struct
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import natsline as nl

CONFIG = """
name: t
model: logistic
data: {name: synthetic, classes: 4, features: 20, train: 4000, val: 1000, separation: 2.0}
steps: 100000000
engine: fleet
population:
  fo: {count: 2, estimator: fo, lr: 0.1, batch: 16}
  zo: {count: 6, estimator: forward, rv: 16, lr: 0.1, batch: 16}
eval: {every: 50}
fleet: {beat_s: 0.2}
checkpoint: {every_s: 0.5}
"""
HDO = None


def until(what, seconds, step=0.2):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(step)
    return bool(what())


def require(ok, text):
    if not ok:
        raise AssertionError(text)


def by_name(status):
    return {m["name"]: m for m in status["members"]}


# ---- tests ----

def test_demo():
    dir_ = nl.tempfile.mkdtemp(prefix="hdo-fleet-")
    p = subprocess.run([HDO, "fleet", "demo", "-o", dir_, "--seconds", "8", "--json", "-q"], capture_output=True, text=True,
                       timeout=100, check=False)
    require(p.returncode == 0, p.stderr)
    j = json.loads(p.stdout)
    require(j["members"] == 8 and j["left"] == 7 and j["killed"] == 3 and j["joined"] == 2, p.stdout)
    require(j["exchanges"] > 200, p.stdout)
    require(j["drift"] < 1e-5 and j["drift_relative"] < 1e-4, p.stdout)
    require(0 < j["loss"] < 1.3, p.stdout)
    mean = nl.safetensors(os.path.join(dir_, "mean.safetensors"))
    require(all(abs(v) < 100 for t in mean.values() for v in t), "the mean model")
    subprocess.run(["rm", "-rf", dir_], check=True)


def test_lives():
    """Late joiners take configuration, step and model from the run; the killed come back from their checkpoint with a new
    epoch; the bus may go away for a while; the sum stays."""
    f = nl.Fleet(HDO, CONFIG)
    try:
        for k in range(3):
            f.node(f"m{k}", "--role", "fo" if k == 0 else "zo", "--pace", "0.005")
        require(until(lambda: sum(m["exchanges"] > 20 for m in f.status()["members"]) == 3, 20), str(f.status()))
        f.node("late", "--role", "zo", "--pace", "0.005", config=False)
        require(until(lambda: by_name(f.status()).get("late", {}).get("exchanges", 0) > 10, 15), str(f.status()))
        before = by_name(f.status())
        require(len({m["place"] for m in before.values()}) == 4, str(before))
        require(before["late"]["step"] > 100 and before["m0"]["class"] == "fo", str(before))
        f.kill("m1")
        time.sleep(0.3)
        f.node("m1", "--role", "zo", "--pace", "0.005", config=False)
        f.stop_server()
        time.sleep(1.0)
        f.start_server()
        require(until(lambda: len(f.status()["members"]) == 4, 15), str(f.status()))
        again = by_name(f.status())["m1"]
        require(again["epoch"] > before["m1"]["epoch"] and again["step"] > 50 and again["place"] == before["m1"]["place"],
                f"{before['m1']} {again}")
        count = again["exchanges"]
        require(until(lambda: by_name(f.status()).get("m1", {}).get("exchanges", 0) > count + 20, 15), "no exchanges any more")
        path = os.path.join(f.dir, "mean.safetensors")
        p = f.stop("--save", path)
        require(p.returncode == 0 and "mean of 4 models" in p.stderr, p.stderr)
        require(set(f.wait().values()) == {0}, str({n: f.log(n) for n in f.members}))
        all_ = [f.summary(n) for n in ("m0", "m1", "m2", "late")]
        size, relative = nl.drift(all_)
        require(size < 1e-5 and relative < 1e-4, f"drift {size} {relative}")
        require(sum(s["fleet"]["expired"] for s in all_) == 0, "exchanges were given up")
        require(all(s["fleet"]["reconnects"] >= 1 for s in all_ if s["fleet"]["member"] in ("m0", "m2")), "no reconnect")
        require(max(s["final"]["val_loss_mean"] for s in all_) < 1.2, "loss")
        require(sum(len(v) for v in nl.safetensors(path).values()) == all_[0]["d"], "the mean model")
    finally:
        f.close()


def test_own_data():
    """Two members with files of their own and nobody's configuration of them; the bus never carries a sample."""
    f = nl.Fleet(HDO, CONFIG.replace("{name: synthetic, classes: 4, features: 20, train: 4000, val: 1000, separation: 2.0}",
                                     "{name: csv, scaling: unit}").replace("steps: 100000000", "steps: 400"))
    try:
        rng = random.Random(1)
        secret = struct.pack("<f", 0.123456789)
        for k in range(2):
            with open(os.path.join(f.dir, f"d{k}.csv"), "w", encoding="utf-8") as out:
                out.write("a,b,label\n")
                for i in range(300):
                    out.write(f"{0.123456789 if i % 7 == 0 else rng.gauss(i % 3, 1):.9f},{rng.gauss(-(i % 3), 1):.6f},{i % 3}\n")
        line = nl.Line(f.port, [">"])
        for k in range(2):
            f.node(f"m{k}", "--role", "zo", "--pace", "0.005", "--data", os.path.join(f.dir, f"d{k}.csv"))
        codes = f.wait(timeout=25)
        require(codes == {"m0": 0, "m1": 0}, str(codes) + f.log("m0") + f.log("m1"))
        traffic = [d for _, d in line.poll(0.3)]
        require(len(traffic) > 50, "nothing was said")
        for d in traffic:
            require(b"0.1234567" not in d and secret not in d and b".csv" not in d, "a sample was on the bus")
        a, b = f.summary("m0"), f.summary("m1")
        require(a["fleet"]["exchanges"] > 20 and a["steps"] == 400 and a["reason"] == "completed", str(a["fleet"]))
        require(a["final"]["val_loss_mean"] != b["final"]["val_loss_mean"], "evaluation is their own")
        f.node("bad", "--data", os.path.join(f.dir, "nosuch.csv"), wait=True)
        require("nosuch.csv" in f.log("bad"), f.log("bad"))
        line.close()
    finally:
        f.close()


def test_wrong_members():
    """Wrong version, run, class, epoch, sender and plain garbage are dropped and counted; wrong newcomers get a sentence."""
    f = nl.Fleet(HDO, CONFIG)
    try:
        f.node("m0", "--pace", "0.01")
        line = nl.Line(f.port, ["hdo.t.*.beat"])
        beat = next(iter(d for s, d in line.poll(10)), None)
        require(beat is not None, f.log("m0"))
        h = nl.parse(beat)
        require(h["run"] == nl.run_id("t") and h["frm"] == nl.member_id("m0"), str(h))
        me = nl.member_id("evil")
        good = dict(run=h["run"], config=h["config"], frm=me, to=h["frm"], to_epoch=h["from_epoch"], class_id=1)
        say = lambda data, tail="to.m0": line.publish("hdo.t.evil." + tail, data)
        rng = random.Random(2)
        for _ in range(200):
            say(bytes(rng.randrange(256) for _ in range(rng.randrange(300))))
        say(nl.packet(nl.BEAT, body=nl.beat_body("evil"), version=2, **good), "beat")
        say(nl.packet(nl.EXCHANGE, nl.ASK, **(good | {"run": b"x" * 16})))
        say(nl.packet(nl.EXCHANGE, nl.ASK, **(good | {"config": b"x" * 16})))
        say(nl.packet(nl.EXCHANGE, nl.ASK, **(good | {"class_id": 9})))
        say(nl.packet(nl.EXCHANGE, nl.ASK, **(good | {"to_epoch": 1})))
        say(nl.packet(nl.EXCHANGE, nl.ASK, **(good | {"frm": nl.member_id("m1")})))
        say(nl.packet(nl.EXCHANGE, nl.OFFER, body=struct.pack("<84f", *[float("nan")] * 84), **good))
        require(until(lambda: f.status()["drops"].get("not_finite", 0) == 1, 5), str(f.status()))
        d = f.status()["drops"]
        require(d["length"] == 200 and all(d[k] == 1 for k in ("version", "run", "class", "epoch", "sender")), str(d))
        require(d["configuration"] >= 1 and by_name(f.status())["m0"]["step"] > 10, str(d))

        p = f.node("w1", "--role", "nosuch", config=False, wait=True)
        require(p.returncode == 2 and "has no nodes of class 'nosuch': it has fo, zo" in f.log("w1"), f.log("w1"))
        p = f.node("w2", "--set", "seed=2", wait=True)
        require(p.returncode == 2 and "has another configuration than this member" in f.log("w2"), f.log("w2"))
        require(until(lambda: f.status()["drops"]["configuration"] > d["configuration"], 3), "not counted")
        p = f.command("node", "--join", f.url, "--run", "other", "-q")
        require(p.returncode == 5 and "nobody of run 'other' is there" in p.stderr, p.stderr)
        p = f.command("node", "--join", f"nats://127.0.0.1:{nl.free_port()}", "--patience", "0", "--run", "t", "-q")
        require(p.returncode == 5 and "no connection to the bus" in p.stderr, p.stderr)
        f.stop()
        require(f.wait(["m0"]) == {"m0": 0}, f.log("m0"))
        # Members of another version alone on the bus.
        say(b"", "x")
        end = time.monotonic() + 4
        p = f.node("w3")
        while time.monotonic() < end and p.poll() is None:
            say(nl.packet(nl.BEAT, body=nl.beat_body("evil"), version=2, **(good | {"to": 0, "to_epoch": 0})), "beat")
            time.sleep(0.1)
        require(p.wait(10) == 5 and "speaks another version of the protocol" in f.log("w3"), f.log("w3"))
        line.close()
    finally:
        f.close()


def garbage_member(f, line, seconds):
    """A member in good standing that offers nonsense, and answers offers with nonsense."""
    me, seq, peers = nl.member_id("evil"), 0, {}
    end = time.monotonic() + seconds
    said = 0
    while time.monotonic() < end:
        for subject, d in line.poll(0.05):
            h = nl.parse(d)
            if h["type"] == nl.BEAT and h["frm"] != me:
                peers[subject.split(".")[2]] = h
            if h["type"] == nl.EXCHANGE and h["kind"] == nl.OFFER:
                body = struct.pack(f"<{h['total'] // 4}f", *[1e5] * (h["total"] // 4))
                line.publish(f"hdo.t.evil.to.{subject.split('.')[2]}",
                             nl.packet(nl.EXCHANGE, nl.ANSWER, h["run"], h["config"], me, h["frm"], 1, h["from_epoch"], h["seq"],
                                       class_id=1, body=body))
        for name, h in peers.items():
            line.publish("hdo.t.evil.beat", nl.packet(nl.BEAT, 0, h["run"], h["config"], me, 0, 1, class_id=1,
                                                      body=nl.beat_body("evil", place=7)))
            seq += 1
            said += 1
            line.publish(f"hdo.t.evil.to.{name}",
                         nl.packet(nl.EXCHANGE, nl.OFFER, h["run"], h["config"], me, h["frm"], 1, h["from_epoch"], seq,
                                   class_id=1, body=struct.pack("<84f", *[-1e5] * 84)))
    return said


def test_clip():
    """A member sends garbage models: with mixing.clip the run still reaches its target loss."""
    f = nl.Fleet(HDO, CONFIG.replace("lr: 0.1", "lr: 0.004") + "mixing: {clip: 10}\nstop: {loss: 0.95}\n")
    try:
        line = nl.Line(f.port, ["hdo.t.*.beat", "hdo.t.*.to.evil"])
        for k in range(3):
            f.node(f"m{k}", "--role", "fo" if k == 0 else "zo", "--pace", "0.004")
        require(until(lambda: sum(m["exchanges"] > 10 for m in f.status()["members"]) == 3, 20), str(f.status()))
        require(garbage_member(f, line, 3.0) > 30, "no garbage was said")
        codes = f.wait(timeout=40)
        require(set(codes.values()) == {0}, str(codes) + f.log("m0") + str(f.status()))
        all_ = [f.summary(n) for n in f.members]
        require(all(s["reason"] == "target" and s["final"]["val_loss_mean"] < 1.0 for s in all_),
                str([(s["reason"], s["final"]["val_loss_mean"]) for s in all_]))
        require(sum(s["fleet"]["far"] for s in all_) > 10, "no garbage was refused")
        line.close()
    finally:
        f.close()


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


def make_certificates(dir_):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test-ca",
            "-keyout", f"{dir_}/ca-key.pem", "-out", f"{dir_}/ca.pem")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost", "-keyout",
            f"{dir_}/server-key.pem", "-out", f"{dir_}/server.csr")
    with open(f"{dir_}/ext", "w", encoding="utf-8") as f:
        f.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", f"{dir_}/server.csr", "-CA", f"{dir_}/ca.pem", "-CAkey", f"{dir_}/ca-key.pem",
            "-CAcreateserial", "-days", "2", "-extfile", f"{dir_}/ext", "-out", f"{dir_}/server.pem")


def test_security():
    """TLS and users of hdo fleet serve-config; who has the wrong ones is told so."""
    dir_ = nl.tempfile.mkdtemp(prefix="hdo-fleet-")
    port = nl.free_port()
    make_certificates(dir_)
    p = subprocess.run([HDO, "fleet", "serve-config", "--members", "m0,m1", "--run", "t", "--tls", dir_, "--listen",
                        f"127.0.0.1:{port}", "-o", dir_], capture_output=True, text=True, check=False)
    require(p.returncode == 0, p.stderr)
    require(os.stat(f"{dir_}/m0.user").st_mode & 0o077 == 0, "a password that others can read")
    f = nl.Fleet(HDO, CONFIG, server_config=f"{dir_}/server.conf", port=port)
    try:
        f.url = f"tls://127.0.0.1:{port}"
        tls = ["--tls-ca", f"{dir_}/ca.pem"]
        for k in range(2):
            f.node(f"m{k}", "--role", "zo", "--pace", "0.005", *tls, "--credentials", f"{dir_}/m{k}.user")
        operator = tls + ["--credentials", f"{dir_}/operator.user"]
        status = lambda: json.loads(f.command("fleet", "status", f.url, "--run", "t", "--wait", "0.6", "--json", *operator).stdout
                                    or '{"members": []}')
        require(until(lambda: sum(m["exchanges"] > 10 for m in status()["members"]) == 2, 20),
                str(status()) + f.log("m0") + f.log("m1"))
        with open(f"{dir_}/bad.user", "w", encoding="utf-8") as out:
            out.write("user m0\npassword wrong\n")
        p = f.node("w1", *tls, "--credentials", f"{dir_}/bad.user", folder=False, wait=True)
        require(p.returncode == 5 and "does not let 'm0' in" in f.log("w1"), f.log("w1"))
        p = f.node("w2", "--credentials", f"{dir_}/m0.user", folder=False, wait=True)
        require(p.returncode == 5 and "no secure connection" in f.log("w2"), f.log("w2"))
        # A name that is not one's own: the server forbids it.
        p = f.node("w3", *tls, "--credentials", f"{dir_}/m1.user", folder=False, wait=True)
        require(p.returncode == 5 and "does not let member 'w3' of run 't'" in f.log("w3"), f.log("w3"))
        p = f.command("fleet", "stop", f.url, "--run", "t", "--wait", "0.6", *tls, "--credentials", f"{dir_}/m1.user")
        require(p.returncode == 5 and "could not be said" in p.stderr, p.stderr)
        p = f.command("fleet", "stop", f.url, "--run", "t", "--wait", "0.6", *operator)
        require(p.returncode == 0, p.stderr)
        require(f.wait(["m0", "m1"]) == {"m0": 0, "m1": 0}, f.log("m0"))
    finally:
        f.close()
        subprocess.run(["rm", "-rf", dir_], check=True)


def attempt(test):
    start = time.monotonic()
    try:
        test()
        return "", time.monotonic() - start
    except Exception:  # a failing test must not hide the others
        return traceback.format_exc(), time.monotonic() - start


def main():
    global HDO
    HDO = os.path.abspath(sys.argv[1])
    tests = {k[5:]: v for k, v in globals().items() if k.startswith("test_")}
    names = sys.argv[2:] or list(tests)
    print(f"1..{len(names)}")
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(3) as pool: # they mostly wait
        for k, (name, (text, s)) in enumerate(zip(names, pool.map(lambda n: attempt(tests[n]), names))):
            bad += text != ""
            print(f"{'not ok' if text else 'ok'} {k + 1} - {name} ({s:.1f} s)")
            print("".join("# " + x + "\n" for x in text.splitlines()), end="", flush=True)
    sys.exit(1 if bad else 0)


main()

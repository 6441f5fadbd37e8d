# SPDX-License-Identifier: Apache-2.0
"""Just enough of the NATS protocol to listen in and to say wrong things, and of ours to forge them."""
import hashlib
import json
import math
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time

HEAD = struct.Struct("<4sHBB16s16sQQIIQQIfQQII")
BEAT, HELLO, REFUSE, ASK_CONFIG, CONFIG, ASK_MODEL, MODEL, EXCHANGE, STOP = range(1, 10)
OFFER, ASK, ACK, ANSWER = 1, 2, 3, 4


def member_id(name):
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") & ~255


def run_id(name):
    return hashlib.sha256(b"run " + name.encode()).digest()[:16]


def packet(type_, kind=0, run=b"\0" * 16, config=b"\0" * 16, frm=0, to=0, from_epoch=1, to_epoch=0, seq=1, step=0, class_id=0,
           weight=1.0, body=b"", version=1):
    return HEAD.pack(b"HDOF", version, type_, kind, run, config, frm, to, from_epoch, to_epoch, seq, step, class_id, weight,
                     len(body), 0, len(body), 0) + body


def parse(data):
    names = "magic version type kind run config frm to from_epoch to_epoch seq step class_id weight total offset len zero"
    return dict(zip(names.split(), HEAD.unpack(data[:HEAD.size]))) | {"body": data[HEAD.size:]}


def beat_body(name, role="zo", place=0, beat_ms=200, nodes=1):
    text = lambda s: s.encode().ljust(32, b"\0")
    return text(name) + text("0.1.0") + text(role) + struct.pack("<6I", nodes, place, beat_ms, 0, 0, 0) + \
        struct.pack("<3d", 0, 0, 0) + struct.pack("<16Q", *[0] * 16)


class Line:
    """A connection that subscribes and publishes."""

    def __init__(self, port, subjects=()):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.buf = b""
        self.sock.sendall(b'CONNECT {"verbose":false,"pedantic":false,"echo":false}\r\n')
        for k, s in enumerate(subjects):
            self.sock.sendall(b"SUB %s %d\r\n" % (s.encode(), k + 1))

    def publish(self, subject, data):
        self.sock.sendall(b"PUB %s %d\r\n" % (subject.encode(), len(data)) + data + b"\r\n")

    def poll(self, seconds):
        """(subject, data) of the messages that come in that time."""
        until = time.monotonic() + seconds
        while True:
            line, sep, rest = self.buf.partition(b"\r\n")
            if sep and line.startswith(b"MSG "):
                part = line.split()
                n = int(part[-1])
                if len(rest) >= n + 2:
                    self.buf = rest[n + 2:]
                    yield part[1].decode(), rest[:n]
                    continue
            elif sep:
                self.buf = rest
                if line == b"PING":
                    self.sock.sendall(b"PONG\r\n")
                continue
            left = until - time.monotonic()
            if left <= 0:
                return
            self.sock.settimeout(left)
            try:
                more = self.sock.recv(1 << 20)
            except (TimeoutError, socket.timeout):
                return
            if not more:
                return
            self.buf += more

    def close(self):
        self.sock.close()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Fleet:
    """A server and members, all of them ours, ended by their ids."""

    def __init__(self, hdo, config=None, server_config=None, run="t", port=None):
        self.hdo, self.run_name = hdo, run
        self.dir = tempfile.mkdtemp(prefix="hdo-fleet-")
        self.port = port or free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.server_config = server_config
        self.server = None
        self.members = {}
        self.start_server()
        if config is not None:
            self.config = os.path.join(self.dir, "fleet.yaml")
            with open(self.config, "w", encoding="utf-8") as f:
                f.write(config)

    def start_server(self):
        argv = ["nats-server", "-a", "127.0.0.1", "-p", str(self.port)]
        if self.server_config is not None:
            argv = ["nats-server", "-c", self.server_config]
        self.server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("nats-server does not listen")

    def stop_server(self):
        if self.server is not None:
            self.server.terminate()
            self.server.wait(10)
            self.server = None

    def node(self, name, *args, config=True, folder=True, wait=False, url=None, env=None):
        argv = [self.hdo, "node", "--join", url or self.url, "--run", self.run_name, "--name", name, "--threads", "1", "-q",
                *args]
        if config:
            argv += ["--config", self.config]
        if folder:
            argv += ["-o", os.path.join(self.dir, name)]
        log = open(os.path.join(self.dir, name + ".log"), "ab")
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        log.close()
        self.members[name] = p
        if wait:
            p.wait(60)
        return p

    def log(self, name):
        with open(os.path.join(self.dir, name + ".log"), encoding="utf-8") as f:
            return f.read()

    def kill(self, name):
        p = self.members.pop(name)
        p.send_signal(signal.SIGKILL)
        p.wait(10)

    def command(self, *args, timeout=60):
        return subprocess.run([self.hdo, *args], capture_output=True, text=True, timeout=timeout, check=False)

    def status(self, wait=0.6):
        p = self.command("fleet", "status", self.url, "--run", self.run_name, "--wait", str(wait), "--json")
        return json.loads(p.stdout) if p.returncode == 0 else {"members": [], "drops": {}, "error": p.stderr}

    def stop(self, *args):
        return self.command("fleet", "stop", self.url, "--run", self.run_name, "--wait", "0.6", *args)

    def wait(self, names=None, timeout=20):
        """Exit codes of members that end by themselves."""
        codes = {}
        until = time.monotonic() + timeout
        for n in names or list(self.members):
            p = self.members[n]
            try:
                codes[n] = p.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                codes[n] = None
        return codes

    def summary(self, name):
        with open(os.path.join(self.dir, name, "summary.json"), encoding="utf-8") as f:
            return json.load(f)

    def close(self, keep=False):
        for p in self.members.values():
            if p.poll() is None:
                p.kill()
            p.wait(10)
        self.stop_server()
        if not keep:
            subprocess.run(["rm", "-rf", self.dir], check=True)


def drift(summaries):
    """What exchanges between these lives have moved in all: (a coordinate of the mean, relative to all that was moved)."""
    lives = {}
    for s in summaries:
        f = s["fleet"]
        lives[member_id(f["member"]) if f["member"] else 0] = f["epoch"]
    net = gross = 0.0
    nodes = sum(s["fleet"]["nodes"] for s in summaries)
    for s in summaries:
        for f in s["fleet"]["flows"]:
            if lives.get(int(f["partner"], 16) & ~255) == f["epoch"]:
                net += f["moved"]
                gross += abs(f["moved"])
    return abs(net) / (math.sqrt(summaries[0]["d"]) * nodes), abs(net) / gross if gross else 0.0


def safetensors(path):
    """{name: list of floats} of a file of F32 tensors."""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    out = {}
    for name, t in head.items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = list(struct.unpack(f"<{(b - a) // 4}f", data[a:b]))
    return out

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random faults under engine mpi: each must end in time, with a sentence and a documented code, and lose nothing.

    tests/mpi/faults.py HDO [--mpi openmpi|mpich|both] [--count N] [--seed S] [--deadline D] [--only WORD] [-v]

A fault is a signal (SIGSTOP, SIGKILL, SIGTERM) to a rank, to mpirun or to the launcher; or, between two machines made of
network namespaces (as root, with iproute2), a link that goes down, a network that swallows everything, a firewall that is
there from the start, a machine that is killed. It strikes a new run in its first moments (`new`), a new run at some time
after its first checkpoint (`running`), or a stored run that is being resumed, at any time (`resumed`). It passes if

  - the launcher ends within the deadline and 5 s, and by then no rank is left on any machine;
  - the exit code is a documented one (5; 130 or 143 where somebody asked it to stop) and there is a sentence (but for a
    launcher that was killed itself);
  - what is stored resumes in the simulator to the fingerprint of an undisturbed run: from the newest checkpoint, which
    must be there (but for `new`), otherwise from the beginning.

Prints a line a fault and a summary; exit code 0 if all passed. Signals go to processes of this test alone: they are
found by a variable of their environment that nobody else has, or by their network namespace.
"""
import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

STEPS = 3000
SLOW = "0:400"  # of an MPI run: long enough for a fault, while the simulator that checks it is quick
NP = 3
WITHIN_S = 5.0
BASE = ["--set", "data.train=400", "--set", "data.val=100", "--population", "3fo+8zo", "--set",
        "population.zo.estimator=fd", "--set", "population.zo.rv=4", "--set", f"steps={STEPS}", "--set",
        "eval.every=0", "--set", "threads=1", "--set", "kernels=ref"]


# ---- processes of this test ----

def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


class Job:
    """A run under a launcher, with everything that belongs to it."""

    def __init__(self, hdo, mpi, folder, deadline, net=None, stored=None):
        self.id = f"{os.getpid()}-{os.path.basename(folder)}"
        self.out, self.net = os.path.join(folder, "run"), net
        env = dict(os.environ, HDO_MPI=mpi, HDO_TEST_ID=self.id, NO_COLOR="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", UCX_LOG_LEVEL="fatal", HWLOC_HIDE_ERRORS="2", TMPDIR=folder)
        words = ["demo", *BASE, "--set", "checkpoint.every=5", "--set", f"mpi.slow={SLOW}", "--set",
                 f"mpi.deadline_s={deadline}", "-o", self.out]
        if stored:
            shutil.copytree(stored, self.out)
            words = ["--resume", self.out]
        words = [hdo, "run", *words, "--engine", "mpi", "--np", str(NP)]
        if net:
            words += ["--hostfile", net.hosts(mpi)]
            env.update(net.env())
            words = net.inside("a", words)
        self.err = open(os.path.join(folder, "err"), "w+")
        self.stdout = open(os.path.join(folder, "out"), "w+")
        self.start = time.monotonic()
        self.p = subprocess.Popen(words, env=env, cwd=folder, stdout=self.stdout, stderr=self.err,
                                  stdin=subprocess.DEVNULL)

    def processes(self):
        """pid -> (kind, rank): launcher, mpirun, rank."""
        mark, found = b"HDO_TEST_ID=" + self.id.encode(), {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            parts = read(f"/proc/{name}/environ").split(b"\0")
            if mark not in parts:
                continue
            words = read(f"/proc/{name}/cmdline").split(b"\0")
            program = os.path.basename(words[0]).decode()
            rank = [x.split(b"=")[1] for x in parts if x.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK="))]
            if program.startswith(("mpirun", "mpiexec")):
                found[int(name)] = ("mpirun", -1)
            elif program == "hdo":
                found[int(name)] = ("rank", int(rank[0])) if rank else ("launcher", -1)
        return found

    def find(self, kind, rank=-1, wait=5.0):
        end = time.monotonic() + wait
        while time.monotonic() < end and self.p.poll() is None:
            for pid, what in self.processes().items():
                if what == (kind, rank):
                    return pid
            time.sleep(0.005)
        return None

    def checkpoints(self):
        folder = os.path.join(self.out, "checkpoints")
        return [f for f in os.listdir(folder) if f.endswith(".safetensors")] if os.path.isdir(folder) else []

    def saved(self, wait=20.0):
        """Waits for the first checkpoint."""
        end = time.monotonic() + wait
        while not self.checkpoints() and time.monotonic() < end and self.p.poll() is None:
            time.sleep(0.01)
        return self.checkpoints()

    def left(self):
        return [pid for pid, (kind, _) in self.processes().items() if kind in ("rank", "launcher")]

    def clear(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if self.net:
            self.net.clear()
        self.p.wait()

    def text(self):
        self.err.flush()
        return read(self.err.name).decode(errors="replace"), read(self.stdout.name).decode(errors="replace")


# ---- two machines ----

def sh(*words, check=True):
    return subprocess.run(words, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Net:
    """Machines a and b: a network and a host name of their own, a link between them, and a daemon on b in place of sshd
    (b's processes must not be children of the launcher on a)."""

    ADDRESS = {"a": "10.213.77.1", "b": "10.213.77.2"}

    def __init__(self, folder):
        self.folder, self.tag = folder, f"hdo{os.getpid() % 100000}"
        self.socket = os.path.join(folder, "b.sock")
        self.agent = os.path.join(folder, "agent")
        for m in "ab":
            sh("ip", "netns", "add", self.tag + m)
        sh("ip", "link", "add", "v0", "netns", self.tag + "a", "type", "veth", "peer", "name", "v0", "netns", self.tag + "b")
        for m in "ab":
            self.ip(m, "addr", "add", self.ADDRESS[m] + "/24", "dev", "v0")
            self.ip(m, "link", "set", "lo", "up")
        self.mend()
        with open(self.agent, "w") as f:
            f.write(f"#!/bin/sh\nexec {sys.executable} {os.path.abspath(__file__)} --agent {self.socket} \"$@\"\n")
        os.chmod(self.agent, 0o755)
        self.daemon = subprocess.Popen(self.inside("b", [sys.executable, os.path.abspath(__file__), "--daemon", self.socket]),
                                       stdin=subprocess.DEVNULL)
        while not os.path.exists(self.socket):
            time.sleep(0.02)

    def ip(self, machine, *words, check=True):
        return sh("ip", "-n", self.tag + machine, *words, check=check)

    def inside(self, machine, words):
        return ["ip", "netns", "exec", self.tag + machine, "unshare", "-u", "sh", "-c",
                f"hostname hdo-{machine} && exec \"$@\"", "sh", *words]

    def hosts(self, mpi):
        path = os.path.join(self.folder, "hosts-" + mpi)
        with open(path, "w") as f:
            for m, n in (("a", 1), ("b", NP - 1)):
                f.write(f"{self.ADDRESS[m]} slots={n}\n" if mpi == "openmpi" else f"{self.ADDRESS[m]}:{n}\n")
        return path

    def env(self):
        return {"OMPI_MCA_plm_rsh_agent": self.agent, "OMPI_MCA_btl_tcp_if_include": "v0",
                "OMPI_MCA_oob_tcp_if_include": "v0", "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": self.agent,
                "HYDRA_IFACE": "v0", "UCX_TLS": "self,tcp", "UCX_NET_DEVICES": "v0", "FI_TCP_IFACE": "v0"}

    def mend(self):
        for m in "ab":
            self.ip(m, "link", "set", "v0", "up")
            self.ip(m, "neigh", "flush", "dev", "v0", "nud", "all", check=False)
            for other in "ab".replace(m, ""):
                self.ip(m, "neigh", "del", self.ADDRESS[other], "dev", "v0", check=False)

    def unplug(self):
        self.ip("a", "link", "set", "v0", "down")

    def swallow(self):
        """Packets leave for an address that nobody has: no error, no answer."""
        for m in "ab":
            for other in "ab".replace(m, ""):
                self.ip(m, "neigh", "replace", self.ADDRESS[other], "lladdr", "02:00:00:00:00:99", "dev", "v0", "nud", "permanent")

    def pids(self, machine):
        return [int(p) for p in sh("ip", "netns", "pids", self.tag + machine, check=False).stdout.split()]

    def clear(self, machines="ab"):
        """Everything there but the daemon, also what is only being forked. -> how many processes"""
        killed = 0
        for m in machines:
            while found := [pid for pid in self.pids(m) if pid != self.daemon.pid]:
                for pid in found:
                    try:
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
                    except OSError:
                        pass
                time.sleep(0.01)
        return killed

    def kill_far(self, job):
        """A machine that nothing runs on yet would not be missed."""
        while self.clear("b") == 0 and job.p.poll() is None:
            time.sleep(0.01)

    def close(self):
        self.daemon.kill()
        self.daemon.wait()
        self.clear()
        for m in "ab":
            sh("ip", "netns", "del", self.tag + m, check=False)


def daemon(path):
    """Runs what agents ask for, as sshd would: each connection is a command; its output and code go back."""
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen(16)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        c, _ = s.accept()
        if os.fork() != 0:
            c.close()
            continue
        s.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        command = b""
        while not command.endswith(b"\0"):
            command += c.recv(65536)
        fd = c.fileno()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI", "PMI", "HYDRA"))}
        code = subprocess.call(["sh", "-c", command[:-1].decode()], stdin=subprocess.DEVNULL, stdout=fd, stderr=fd,
                               env=env, start_new_session=True)
        try:
            c.sendall(b"\0%d" % (code & 255))
        except OSError:
            pass
        os._exit(0)


def agent(path, words):
    while words and words[0].startswith("-"):
        words = words[1:]
    c = socket.socket(socket.AF_UNIX)
    c.connect(path)
    c.sendall(" ".join(words[1:]).encode() + b"\0")
    data = b""
    while chunk := c.recv(65536):
        data += chunk
        if b"\0" not in data:
            sys.stderr.buffer.write(data)
            data = b""
    sys.exit(int(data.split(b"\0")[1] or b"1") if b"\0" in data else 255)


# ---- faults ----

LOCAL = [(s, w) for s in ("STOP", "KILL", "TERM") for w in ("rank", "mpirun", "launcher")]
FAR = ["unplug", "swallow", "firewall", "stop far rank", "kill far machine"]


def draw(rng, net, only):
    while True:
        name = rng.choice(FAR) if net and rng.random() < 0.4 else " ".join(rng.choice(LOCAL))
        when = rng.choice(["new", "running", "running", "resumed"])
        if name == "firewall" and when == "running":
            when = "resumed"  # nothing runs behind it
        at = rng.uniform(0.0, 0.4) if when == "new" or rng.random() < 0.3 else rng.uniform(0.0, 3.0)
        rank = rng.randrange(NP)
        if name == "stop far rank":
            rank = rng.randrange(1, NP)
        if not only or only in name:
            return name, when, at, rank


def strike(job, net, name, at, rank):
    """Returns when it happened, or None if the job was over before."""
    if name in FAR and name != "stop far rank":
        if name != "firewall":
            if job.find("rank", 0) is None:
                return None
            time.sleep(at)
            {"unplug": net.unplug, "swallow": net.swallow, "kill far machine": lambda: net.kill_far(job)}[name]()
        return time.monotonic()
    sig = signal.SIGSTOP if name == "stop far rank" else getattr(signal, "SIG" + name.split()[0])
    kind = "rank" if name == "stop far rank" else name.split()[1]
    pid = job.find(kind, rank if kind == "rank" else -1)
    if pid is None:
        return None
    time.sleep(at)
    try:
        os.kill(pid, sig)
    except OSError:
        return None
    struck = time.monotonic()
    if name == "TERM mpirun" and at < 0.1:  # MPICH's loses it in its first moments: whoever asks does so again
        time.sleep(1.0)
        if job.p.poll() is None and job.find("rank", 0, 0.1) is not None:
            os.kill(pid, sig)
            struck = time.monotonic()
    if name == "STOP launcher":  # nobody watches meanwhile; afterwards nothing may be amiss
        time.sleep(1.5)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.5)
        if job.p.poll() is None:
            os.kill(pid, signal.SIGTERM)
        struck = time.monotonic()
    return struck


def judge(job, name, code, took, left, limit, text, out):
    bad = []
    if took > limit:
        bad.append(f"took {took:.1f} s, more than {limit:g}")
    if left:
        bad.append(f"{len(left)} processes are left")
    asked = "TERM" in name or name == "STOP launcher"
    good = {5} | ({130, 143} if asked else set())
    if name == "KILL launcher":
        good = {-9, 137}
    if code not in good:
        bad.append(f"exit code {code}")
    sentence = "hdo: error:" in text if code == 5 else True
    if code in (130, 143):
        sentence = "hdo:" in text or "stopped after" in out
    if not sentence:
        bad.append("no sentence")
    return bad


def check_resume(hdo, job, want, when):
    """What is stored becomes the undisturbed run in the simulator. -> what was resumed, what is wrong with it"""
    saved = job.checkpoints()
    if not saved and when != "new":
        return "", "no checkpoint is left"
    if not os.path.exists(os.path.join(job.out, "config.yaml")):
        return "", None  # it had not begun
    done = subprocess.run([hdo, "run", "--resume", job.out, "-q", "--json"], capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        return "", f"does not resume: {done.stderr.strip()}"
    got = json.loads(done.stdout)["params_sha256"]
    return "checkpoint" if saved else "beginning", None if got == want else "resumed to another fingerprint"


def store(args):
    """A run that was asked to stop after its first checkpoints."""
    folder = os.path.join(args.folder, "stored")
    os.mkdir(folder)
    job = Job(args.hdo, args.flavours[0], folder, args.deadline)
    saved = job.saved()
    job.p.terminate()
    code = job.p.wait(60)
    if not saved or code not in (130, 143):
        sys.exit(f"faults: no run to start from: code {code}\n{''.join(job.text())}")
    return job.out


def one(args, rng, net, mpi, want, number):
    name, when, at, rank = draw(rng, net, args.only)
    folder = tempfile.mkdtemp(prefix="f", dir=args.folder)
    far = name in FAR
    if far and name == "firewall":
        net.swallow()
    job = Job(args.hdo, mpi, folder, args.deadline, net if far else None, args.stored if when == "resumed" else None)
    if when == "running":
        job.saved()
    struck = strike(job, net, name, at, rank)
    if struck is None and job.p.poll() is None:
        struck = time.monotonic()
    limit = args.deadline + WITHIN_S
    struck = struck or job.start
    try:
        code = job.p.wait(max(0.1, struck + 3.0 * limit - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = None
    took = time.monotonic() - struck
    while job.left() and time.monotonic() < struck + limit:
        time.sleep(0.05)
    left = job.left()
    text, out = job.text()
    job.clear()
    if far:
        net.mend()
    bad = judge(job, name, code, took, left, limit, text, out)
    resumed, wrong = check_resume(args.hdo, job, want, when)
    if wrong:
        bad.append(wrong)
    word = "ok" if not bad else "not ok"
    print(f"{word} {number} - {mpi}: {name}{f' {rank}' if 'rank' in name else ''}, {when}, at {at:.2f} s: code {code} in {took:.1f} s"
          f"{', resumed from its ' + resumed if resumed else ''}{': ' + '; '.join(bad) if bad else ''}", flush=True)
    if bad or args.verbose:
        print("".join(f"# {line}\n" for line in text.splitlines()[-12:]), end="", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return not bad, took, resumed


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--daemon":
        daemon(sys.argv[2])
    if len(sys.argv) > 2 and sys.argv[1] == "--agent":
        agent(sys.argv[2], sys.argv[3:])
    p = argparse.ArgumentParser()
    p.add_argument("hdo")
    p.add_argument("--mpi", default="both")
    p.add_argument("--count", type=int, default=20)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--deadline", type=float, default=3.0)
    p.add_argument("--only", default="")
    p.add_argument("-v", "--verbose", action="store_true")
    args = p.parse_args()
    args.hdo = os.path.abspath(args.hdo)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of checkpoints
    args.folder = os.path.realpath(tempfile.mkdtemp(prefix="hdo-faults-", dir=memory))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    args.flavours = ["openmpi", "mpich"] if args.mpi == "both" else [args.mpi]
    rng, net, passed, slowest, resumed = random.Random(args.seed), None, 0, 0.0, {"checkpoint": 0, "beginning": 0, "": 0}
    try:
        if os.geteuid() == 0 and shutil.which("ip") and sh("unshare", "-n", "true", check=False).returncode == 0:
            net = Net(args.folder)
        else:
            print("# no network namespaces here: signals only", flush=True)
        want = json.loads(sh(args.hdo, "run", "demo", *BASE, "-q", "--json", "-o", args.folder + "/want").stdout)["params_sha256"]
        args.stored = store(args)
        for k in range(args.count):
            good, took, again = one(args, rng, net, args.flavours[k % len(args.flavours)], want, k + 1)
            passed += good
            resumed[again] += 1
            slowest = max(slowest, took)
    finally:
        if net:
            net.close()
        shutil.rmtree(args.folder, ignore_errors=True)
    print(f"1..{args.count}\n# {passed} of {args.count} passed; resumed from a checkpoint {resumed['checkpoint']}, from the "
          f"beginning {resumed['beginning']}, nothing stored yet {resumed['']}; seed {args.seed}, deadline {args.deadline:g} s, "
          f"slowest end {slowest:.1f} s")
    sys.exit(0 if passed == args.count else 1)


if __name__ == "__main__":
    main()

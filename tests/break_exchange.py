#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the exchange protocol on purpose, one rule at a time, and demands that the fault simulator notices.

    break_exchange.py CC SOURCE_ROOT SCHEDULES OBJECTS...
"""
import os
import subprocess
import sys
import tempfile

BREAKS = [
    ("applies a repeated offer again",
     [("if (a != NULL) { /* heard before */", "if (false) {"), ("if (msg->seq <= p->seen) {", "if (false) {")]),
    ("forgets the answer it gave", [("    answer(m, a, out);\n}\n\nstatic void take_ask", "    answer(m, a, out);\n    a->from = 0;\n}\n\nstatic void take_ask")]),
    ("does not look at epochs",
     [("msg->to_epoch != m->s.epoch || ", ""), ("if (o->epoch >= epoch) continue;", "continue;"),
      ("epoch < p->epoch", "false")]),
    ("says unknown and applies the offer when it comes", [("if (msg->seq > p->seen) p->seen = msg->seq;", "")]),
    ("gives up when no answer comes in time", [("m->out = -1; /* a doubt from now on */", "{ close_offer(m, o); return; }")]),
    ("applies an answer twice", [("    learn_round(m, o);\n    close_offer(m, o);\n    if (!near", "    learn_round(m, o);\n    if (!near")]),
    ("refuses and applies a copy later", [("    p->seen = msg->seq;\n    a = free_slot(m);", "    a = free_slot(m);")]),
    ("forgets answers without an ack", [("    m->stats.probed++;\n", "    if (a->t.wait_us > m->s.wait_max_us) { a->from = 0; return; }\n    m->stats.probed++;\n")]),
    ("never asks whether an answer arrived", [("if (a->from != 0 && a->t.due_us <= m->now_us) tick_slot(m, a, out);", "if (false) tick_slot(m, a, out);")]),
    ("answers with half of the difference", [("hdo__axpy(m->s.len, -msg->weight / (", "hdo__axpy(m->s.len, -0.5f * msg->weight / (")]),
]


def main():
    cc, root, schedules = sys.argv[1].split(), sys.argv[2], sys.argv[3]
    objects = sys.argv[4:]
    text = open(os.path.join(root, "src/exchange/exchange.c")).read()
    print(f"1..{len(BREAKS)}")
    bad = 0
    for number, (name, edits) in enumerate(BREAKS, 1):
        broken = text
        for old, new in edits:
            if old not in broken:
                print(f"not ok {number} - {name}: the line to break is not there: {old!r}")
                bad += 1
                break
            broken = broken.replace(old, new, 1)
        else:
            with tempfile.TemporaryDirectory() as tmp:
                os.mkdir(os.path.join(tmp, "exchange"))
                with open(os.path.join(tmp, "exchange/exchange.c"), "w") as f:
                    f.write(broken)
                exe = os.path.join(tmp, "broken")
                subprocess.run(cc + ["-std=c11", "-O1", "-w", "-D_POSIX_C_SOURCE=200809L", "-I" + tmp,
                                     "-I" + os.path.join(root, "src"), "-I" + os.path.join(root, "include"),
                                     os.path.join(root, "tests/fault_exchange.c"), *objects, "-lm", "-o", exe], check=True)
                r = subprocess.run([exe, schedules], capture_output=True, text=True)
            found = r.returncode != 0
            bad += not found
            first = r.stdout.splitlines()[0] if r.stdout else ""
            print(f"{'ok' if found else 'not ok'} {number} - {name}: {first if found else 'nobody noticed'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

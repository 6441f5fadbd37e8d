#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The paper's experiments, sweeps, comparisons, pages and evaluation through the command line.
load helper

field() { python3 -c 'import json,sys; d=json.load(sys.stdin); print(eval(sys.argv[1], {"d": d}))' "$1"; }

@test "paper: list, help, mistakes" {
    run "$HDO" paper list
    [ "$status" -eq 0 ]
    [[ "$output" == *"24fo+256zo"* && "$output" == *"authors"* && "$output" == *"(7)"* ]]
    run "$HDO" paper --help
    [ "$status" -eq 0 ]
    [[ "$output" == *"Example:"* ]]
    run "$HDO" paper e9
    [ "$status" -eq 2 ]
    run "$HDO" paper e2 --reading nosuch
    [ "$status" -eq 2 ]
    run "$HDO" paper
    [ "$status" -eq 2 ]
    run "$HDO" paper report -o nothing
    [ "$status" -eq 3 ]
}

@test "paper: a dry run names the folders and writes nothing" {
    run "$HDO" paper e2 --quick --dry-run -q -o p
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 18 ]
    [[ "${lines[0]}" == "p/e2-text-quick/1fo/seed-0" ]]
    [ ! -e p ]
}

@test "paper: runs, does not repeat, resumes, draws, judges, reports" {
    run "$HDO" paper e4 --quick --only 1 --seeds 0-0 --dry-run -q -o p
    [ "${#lines[@]}" -eq 4 ] # 1zo, 1fo, 16zo, 4fo+16zo
    run "$HDO" paper e4 --quick --only 1fo --seeds 0-1 -o p
    [ "$status" -eq 0 ]
    [[ "$output" == *"2 runs to do, 0 done before"* ]]
    [[ "$output" == *"claim 2 undecided"* ]]
    [ -s p/e4-text-quick/claims.json ]
    [ -s p/e4-text-quick/figures/e4-loss.csv ]
    [ -s p/e4-text-quick/figures/e4-loss.svg ]
    before=$(cat p/e4-text-quick/1fo/seed-0/summary.json)
    run "$HDO" paper e4 --quick --only 1fo --seeds 0-1 -o p
    [[ "$output" == *"0 runs to do, 2 done before"* ]]
    [ "$before" = "$(cat p/e4-text-quick/1fo/seed-0/summary.json)" ]
    rm p/e4-text-quick/1fo/seed-0/summary.json # as if it had been interrupted
    run "$HDO" paper e4 --quick --only 1fo --seeds 0-1 -o p
    [[ "$output" == *"1 runs to do, 1 done before"* ]]
    [ "$(field 'd["params_sha256"]' < p/e4-text-quick/1fo/seed-0/summary.json)" = "$(echo "$before" | field 'd["params_sha256"]')" ]
    run "$HDO" paper report -o p --markdown r.md
    [ "$status" -eq 0 ]
    [ -s p/report.html ]
    grep -q "<svg" p/report.html
    run grep -qE '<script|src="http|href="http' p/report.html
    [ "$status" -eq 1 ]
    grep -q "reading \`text\`, quick" r.md
}

@test "sweep: grid with halving, table, heat map, best configuration; random; per class" {
    run "$HDO" sweep demo $small --grid population.fo.lr=0.01,0.1,0.5 --grid population.zo.lr=0.01,0.1 --halving --set steps=60 -o s
    [ "$status" -eq 0 ]
    [ "$(wc -l < s/sweep.csv)" -eq 7 ]
    [ -s s/heatmap.svg ]
    run "$HDO" config check s/best.yaml
    [ "$status" -eq 0 ]
    run "$HDO" sweep demo $small --random 3 population.zo.lr=0.01:0.2:log -o r
    [ "$status" -eq 0 ]
    [ "$(wc -l < r/sweep.csv)" -eq 4 ]
    run "$HDO" sweep demo $small --grid population.fo.lr=0.01,0.2 --grid population.zo.lr=0.01,0.2 --per-class -o c
    [ "$status" -eq 0 ]
    [ -s c/fo/sweep.csv ]
    [ -s c/zo/sweep.csv ]
    [ -s c/best.yaml ]
    run "$HDO" sweep demo
    [ "$status" -eq 2 ]
    run "$HDO" sweep demo --grid nosuch=1,2 -o n
    [ "$status" -eq 2 ]
}

@test "compare and report" {
    "$HDO" run demo $small --seeds 0-2 -o a > /dev/null
    "$HDO" run demo $small --population 8fo --seeds 0-2 -o b > /dev/null
    run "$HDO" compare a b
    [ "$status" -eq 0 ]
    [[ "$output" == *"A - B = "* && "$output" == *"pairs"* ]]
    "$HDO" compare a b --at bytes_exchanged --json > c.json
    [ "$(field 'd["paired"] and d["low"] < d["diff"] < d["high"]' < c.json)" = True ]
    "$HDO" compare a b --at cost --json > c.json
    [ "$(field 'd["axis"] == "cost" and d["at"] > 0' < c.json)" = True ]
    run "$HDO" compare a b --at oracle/forward # forward-law makes no forward pass: all would be step 0
    [ "$status" -eq 2 ]
    [[ "$output" == *"'a' cannot be compared at equal oracle/forward, which is 0 from beginning to end"* ]]
    run "$HDO" compare b/seed-0 a/seed-1 --at nodes/present
    [ "$status" -eq 2 ]
    [[ "$output" == *"'b/seed-0'"*"nodes/present, which is 8"* ]]
    run "$HDO" compare a b --at val/loss_mu
    [ "$status" -eq 2 ]
    [[ "$output" == *"which falls there"* ]]
    run "$HDO" plot a b --x cost -o fig
    [ "$status" -eq 0 ]
    run "$HDO" compare a b --metric no/such
    [ "$status" -eq 2 ]
    run "$HDO" compare a
    [ "$status" -eq 2 ]
    run "$HDO" compare a nosuch
    [ "$status" -eq 3 ]
    run "$HDO" report a b -o page.html --x bytes_exchanged
    [ "$status" -eq 0 ]
    grep -q "<svg" page.html
    run grep -qE '<script|src="http|href="http' page.html
    [ "$status" -eq 1 ]
}

@test "eval: run, node, checkpoint, weights, mistakes" {
    "$HDO" run demo $small --set steps=40 -o a > /dev/null
    "$HDO" eval a --json > e.json
    [ "$(field 'abs(d["loss"] - __import__("json").load(open("a/summary.json"))["final"]["val_loss_mu"]) < 1e-6' < e.json)" = True ]
    [ "$(field 'sum(map(sum, d["confusion"])) == d["samples"] == 200' < e.json)" = True ]
    "$HDO" eval a --node 0 --json > n.json
    [ "$(field 'abs(d["loss"] - __import__("json").load(open("a/summary.json"))["final"]["val_loss_node0"]) < 1e-6' < n.json)" = True ]
    run "$HDO" eval a/checkpoints/step-000000040.safetensors --limit 100
    [ "$status" -eq 0 ]
    [[ "$output" == *"100 samples"* ]]
    sed -i 's/"version": "3"/"version": "2"/' a/checkpoints/step-000000040.safetensors
    run "$HDO" eval a/checkpoints/step-000000040.safetensors
    [ "$status" -eq 2 ]
    [[ "$output" == *"has format 2"* ]]
    sed -i 's/"version": "2"/"version": "3"/' a/checkpoints/step-000000040.safetensors
    run "$HDO" eval a --node 99
    [ "$status" -eq 2 ]
    run "$HDO" eval nosuch --model logistic
    [ "$status" -eq 3 ]
    run "$HDO" eval nosuch.safetensors
    [ "$status" -eq 2 ]
    printf 'not a model' > bad.safetensors
    run "$HDO" eval bad.safetensors --model logistic --data synthetic
    [ "$status" -eq 3 ]
}

@test "seeds: a signal ends every process, each saves itself, and the group goes on later" {
    "$HDO" run demo --set steps=10000000 --set data.val=200 --set data.train=400 --threads 2 --seeds 0-1 -o s -q &
    pid=$!
    for _ in $(seq 100); do [ -s s/seed-0/metrics.jsonl ] && [ -s s/seed-1/metrics.jsonl ] && break; sleep 0.2; done
    kill -TERM $pid
    code=0
    wait $pid || code=$?
    [ "$code" -eq 143 ]
    for k in 0 1; do
        [ "$(field 'd["outcome"]' < s/seed-$k/summary.json)" = stopped ]
        ls s/seed-$k/checkpoints/*.safetensors
    done
}

@test "paper: the stand-in start concerns e3 only" {
    run "$HDO" paper e2 --reading stand-in -o p
    [ "$status" -eq 2 ]
    [[ "$output" == *"reading 'stand-in' concerns the start of e3 only"* ]]
    run "$HDO" paper all --quick --reading stand-in --dry-run -q -o p
    [ "$status" -eq 0 ]
    [[ "$output" == *"p/e3-stand-in-quick/1fo+5zo/seed-0"* ]]
    [[ "$output" != *"e2"* ]]
}

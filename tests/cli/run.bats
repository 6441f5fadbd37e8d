#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
bats_require_minimum_version 1.5.0
load helper

@test "help goes to stdout and exits 0, for the program and every command" {
    run --separate-stderr "$HDO" --help
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [[ "$output" == *"Usage: hdo COMMAND"* ]]
    n=0
    for c in $("$HDO" --help | sed -n '/^Commands:/,/^$/p' | awk '/^  [a-z]/ {print $1}'); do
        [ "$c" = version ] && continue
        run --separate-stderr "$HDO" "$c" --help
        [ "$status" -eq 0 ]
        [ -n "$output" ]
        [ -z "$stderr" ]
        n=$((n + 1))
    done
    [ "$n" -ge 12 ]
}

@test "no command and unknown command exit with 2" {
    run "$HDO"; [ "$status" -eq 2 ]
    run "$HDO" nosuch; [ "$status" -eq 2 ]; [[ "$output" == *"no command 'nosuch'"* ]]
}

@test "a run writes its folder, whole" {
    run --separate-stderr "$HDO" run demo $small -o out
    [ "$status" -eq 0 ]
    for f in config.yaml manifest.json metrics.jsonl summary.json log.txt; do [ -f "out/$f" ]; done
    jq -e '.outcome == "completed" and .n == 32 and .steps == 20 and (.params_sha256 | length) == 64' out/summary.json
    jq -e '.seed == 1 and .version != null and .host.threads >= 1' out/manifest.json
    [ "$(wc -l < out/metrics.jsonl)" -eq 3 ]
    jq -es 'map(.step) == [0, 10, 20]' out/metrics.jsonl
    no_litter out
}

@test "--json prints exactly one JSON document with the promised keys" {
    "$HDO" run demo $small --json -o out > summary.json
    jq -e 'has("schema_version") and has("outcome") and has("model") and has("d") and has("n") and has("classes") and
           has("seed") and has("steps") and has("interactions") and has("final") and has("time") and has("oracle") and
           has("bytes_exchanged") and has("params_sha256")' summary.json
    jq -e '.final | has("val_loss_mean") and has("val_loss_std") and has("val_loss_min") and has("val_loss_max") and
           has("val_acc_mean") and has("val_loss_mu") and has("gamma") and .classes.fo and .classes.zo' summary.json
    jq -e '.time | has("wall_s") and has("step_s") and has("eval_s")' summary.json
    jq -e '.oracle | has("forward") and has("backward") and has("jvp") and has("cost")' summary.json
}

@test "the stored configuration reruns to the same bits" {
    "$HDO" run demo $small --seed 7 -o a
    "$HDO" run a/config.yaml -q -o b
    [ "$(jq -r .params_sha256 a/summary.json)" = "$(jq -r .params_sha256 b/summary.json)" ]
    diff <(jq -c 'del(.time)' a/metrics.jsonl) <(jq -c 'del(.time)' b/metrics.jsonl)
}

@test "threads and vector unit do not change the bits" {
    "$HDO" run demo $small --set kernels=ref --threads 1 -o a
    "$HDO" run demo $small --set kernels=ref --threads 2 -o b
    HDO_SIMD=portable "$HDO" run demo $small --set kernels=ref --threads 2 -o c
    a=$(jq -r .params_sha256 a/summary.json)
    [ "$a" = "$(jq -r .params_sha256 b/summary.json)" ]
    [ "$a" = "$(jq -r .params_sha256 c/summary.json)" ]
}

@test "--population sets counts and drops the rest" {
    "$HDO" run demo $small --population 3fo --json -o a | jq -e '.n == 3 and (.classes | length) == 1'
    "$HDO" run demo $small --population 1fo+4zo --json -o b | jq -e '.n == 5'
    run "$HDO" run demo $small --population 3fx
    [ "$status" -eq 2 ]; [[ "$output" == *"fo"* ]]
    run "$HDO" run demo $small --population 0fo
    [ "$status" -eq 2 ]
}

@test "n = 1 and odd n" {
    "$HDO" run demo $small --population 1fo -o a
    "$HDO" run demo $small --population 1zo -o b
    "$HDO" run demo $small --population 2fo+5zo -o c
}

@test "an existing run is not overwritten without --force" {
    "$HDO" run demo $small -o out
    before=$(sha256sum out/summary.json)
    run "$HDO" run demo $small --seed 9 -o out
    [ "$status" -eq 2 ]; [[ "$output" == *"already holds a run"* ]]
    [ "$before" = "$(sha256sum out/summary.json)" ]
    "$HDO" run demo $small --seed 9 -o out --force
    [ "$before" != "$(sha256sum out/summary.json)" ]
    [ "$(wc -l < out/metrics.jsonl)" -eq 3 ]
}

@test "--dry-run computes nothing and writes nothing" {
    run "$HDO" run demo --dry-run -o out
    [ "$status" -eq 0 ]
    [ ! -e out ]
    [[ "$output" == *"d = 105"* ]]
    "$HDO" run demo --dry-run --json | jq -e '.d == 105 and .n == 32'
}

@test "--seeds runs one folder a seed and reports a standard error" {
    "$HDO" run demo $small --seeds 0-2 --json -o group | jq -e '.seeds == 3 and .val_loss_se > 0'
    for k in 0 1 2; do [ -f "group/seed-$k/summary.json" ]; done
    run "$HDO" run demo $small --seeds 3-1
    [ "$status" -eq 2 ]
}

@test "diverging is an outcome with exit code 4" {
    run "$HDO" run demo -q --set model=quadratic --set population.fo.lr=1e6 --set steps=500 -o out
    [ "$status" -eq 4 ]
    jq -e '.outcome == "diverged"' out/summary.json
}

@test "default folder is named and under HDO_RUNS_DIR" {
    "$HDO" run demo $small
    [ "$(ls runs | grep -c '^demo-[0-9]*-[0-9]*-[0-9a-f]*$')" -eq 1 ]
}

@test "seeds that diverge: JSON says null and how many, text says so" {
    run "$HDO" run demo --set steps=500 --set model=quadratic --set population.fo.lr=1e6 --set eval.every=0 \
        --seeds 0-1 --json -q -o group
    [ "$status" -eq 4 ]
    echo "$output" | jq -e '.val_loss_mean == null'
    echo "$output" | jq -e '.val_loss_se == null'
    echo "$output" | jq -e '.diverged == 2'
    run "$HDO" run demo --set steps=500 --set model=quadratic --set population.fo.lr=1e6 --set eval.every=0 \
        --seeds 0-1 -q -o group --force
    [[ "$output" == *"2 diverged"* ]]
    [[ "$output" != *nan* ]]
}

@test "seeds: a killed worker is named and gives 7; --resume goes on with all seeds, also more of them" {
    set="--set steps=100000000 --set eval.every=0 --set checkpoint.every=500 --set data.train=400 --set data.val=200"
    "$HDO" run demo $set --seeds 0-2 --threads 2 -q -o s 2>err & pid=$!
    for _ in $(seq 200); do [ -e s/seed-0/checkpoints ] && [ -e s/seed-1/checkpoints ] && break; sleep 0.05; done
    for k in 1 0; do kill -9 "$(sed 's/process \([0-9]*\) .*/\1/' s/seed-$k/run.lock)"; sleep 0.3; done
    code=0; wait $pid || code=$?
    [ "$code" -eq 7 ]
    grep -q "the process of 'seed 1' was killed by signal 9" err
    [ "$(cat s/seeds.txt)" = "seeds 0-2, 3 runs" ]
    "$HDO" run --resume s --seeds 3-3 --max-time 0.3 -q --json > out.json # stderr may say that a run begins anew
    [ "$(jq .seeds out.json)" -eq 4 ]
    [ -e s/seed-3/summary.json ]
}

@test "seeds: workers end when their parent is killed" {
    set="--set steps=100000000 --set eval.every=0 --set checkpoint.every=500 --set data.train=400 --set data.val=200"
    "$HDO" run demo $set --seeds 0-1 --threads 2 -q -o s 2>err & pid=$!
    for _ in $(seq 200); do [ -e s/seed-0/checkpoints ] && [ -e s/seed-1/checkpoints ] && break; sleep 0.05; done
    kill -9 $pid
    wait $pid || true
    for _ in $(seq 100); do [ -e s/seed-0/run.lock ] || [ -e s/seed-1/run.lock ] || break; sleep 0.05; done
    [ ! -e s/seed-0/run.lock ]
    [ ! -e s/seed-1/run.lock ]
    [ "$(jq -r .outcome s/seed-0/summary.json)" = stopped ]
}

@test "seeds: damage makes no pool replace a run" {
    "$HDO" run demo $small --set checkpoint.every=7 --seeds 0-1 -o s
    want=$(jq -r .params_sha256 s/seed-0/summary.json)
    id=$(jq -r .run_id s/seed-0/manifest.json)
    printf 'x' | dd of=s/seed-0/checkpoints/step-000000020.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
    run "$HDO" run --resume s -q
    [ "$status" -eq 0 ]
    [[ "$output" == *"damaged"*"step 14"* ]]
    [ "$want" = "$(jq -r .params_sha256 s/seed-0/summary.json)" ]
    [ "$id" = "$(jq -r .run_id s/seed-0/manifest.json)" ]
    sed -i 's/"step"/"stop"/' s/seed-0/metrics.jsonl
    run "$HDO" run --resume s -q
    [ "$status" -eq 3 ]
    [[ "$output" == *"metrics.jsonl' is damaged"* ]]
    [ -e s/seed-0/checkpoints/step-000000014.safetensors ]
}

# The longest line on a terminal of that many columns, escape sequences apart.
longest_line() { # longest_line COLUMNS ARGS...
    columns=$1
    shift
    script -qec "stty cols $columns; unset COLUMNS; TERM=xterm '$HDO' $*" /dev/null < /dev/null | tr '\r' '\n' |
        sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | grep -E '[0-9]+/[0-9]+ \(|runs done' | LC_ALL=C.UTF-8 wc -L
}

@test "progress fits the terminal" {
    for columns in 20 40 59 80 120; do
        n=$(longest_line $columns run demo --set steps=1000000 --set stop.time_s=0.7 -o out --force)
        [ "$n" -gt 5 ]
        [ "$n" -lt "$columns" ]
    done
    n=$(longest_line 30 run demo --set steps=1000000 --set stop.time_s=0.7 --seeds 1-4 -o seeds)
    [ "$n" -gt 5 ]
    [ "$n" -lt 30 ]
}

#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Bad input: a clear sentence, the documented exit code, nothing half-written.
load helper

refuses() { # refuses CODE TEXT COMMAND...
    local code=$1 text=$2
    shift 2
    run "$@"
    [ "$status" -eq "$code" ] || { echo "status $status: $output"; return 1; }
    [[ "$output" == *"$text"* ]] || { echo "no '$text' in: $output"; return 1; }
}

@test "missing, empty, binary, huge, folder as configuration" {
    refuses 2 nosuch.yaml "$HDO" run nosuch.yaml
    : > empty.yaml
    refuses 2 empty.yaml "$HDO" run empty.yaml
    head -c 4096 /dev/urandom > bin.yaml
    refuses 2 bin.yaml "$HDO" run bin.yaml
    head -c 3000000 /dev/zero | tr '\0' '#' > huge.yaml
    refuses 2 huge.yaml "$HDO" run huge.yaml
    mkdir folder.yaml
    refuses 2 folder.yaml "$HDO" run folder.yaml
    [ ! -e runs ]
}

@test "unknown key, duplicate key, wrong type, out of range: file, line, column and the remedy" {
    printf 'steps: 10\npopulation:\n  zo: {count: 2, rw: 3}\n' > a.yaml
    refuses 2 "a.yaml:3:" "$HDO" run a.yaml
    [[ "$output" == *"did you mean 'rv'"* ]] || [[ "$output" == *"Did you mean 'rv'"* ]]
    printf 'steps: 10\nsteps: 11\n' > b.yaml
    refuses 2 "b.yaml:2:" "$HDO" run b.yaml
    printf 'steps: ten\n' > c.yaml
    refuses 2 "c.yaml:1:" "$HDO" run c.yaml
    printf 'population:\n  zo: {count: 2, rv: 0}\n' > d.yaml
    refuses 2 "d.yaml:2:" "$HDO" run d.yaml
    printf 'population:\n  zo: {count: 2, estimator: forwardlaw}\n' > e.yaml
    refuses 2 "e.yaml:2:" "$HDO" run e.yaml
    [[ "$output" == *"forward-law"* ]]
}

@test "NaN, infinite and negative hyper-parameters" {
    for bad in population.fo.lr=nan population.fo.lr=-0.1 population.zo.nu=0 population.zo.nu=inf \
               population.fo.momentum=1.5 steps=-1 population.fo.batch=0 population.zo.rv=1e99 seed=-3; do
        refuses 2 "${bad%%=*}" "$HDO" run demo --set "$bad" -o out
    done
    [ ! -e out ]
}

@test "empty population" {
    refuses 2 "population" "$HDO" run demo --set population.fo.count=0 --set population.zo.count=0 -o out
    [ ! -e out ]
}

@test "--set without value, unknown option, two configurations" {
    refuses 2 "key=value" "$HDO" run demo --set steps
    refuses 2 "" "$HDO" run demo --nosuch
    refuses 2 "one configuration" "$HDO" run demo demo
    refuses 2 "which configuration" "$HDO" run
}

@test "unwritable output" {
    refuses 1 "/proc/nosuch" "$HDO" run demo $small -o /proc/nosuch/run
    : > file
    refuses 1 "file" "$HDO" run demo $small -o file/run
    refuses 1 "" "$HDO" run demo $small -o file
}

@test "disk full while writing to standard output" {
    run bash -c '"$HDO" config schema > /dev/full'
    [ "$status" -eq 1 ]; [[ "$output" == *"standard output"* ]]
    run bash -c '"$HDO" run demo '"$small"' --json -o out > /dev/full'
    [ "$status" -eq 1 ]
}

@test "closed pipe: hdo ... | head" {
    run bash -c 'set -o pipefail; "$HDO" config help | head -1'
    [ "$status" -eq 0 ]
    [[ "$output" != *"error"* ]]
}

@test "Ctrl-C finishes the step, saves and exits with 130; SIGTERM with 143" {
    for pair in INT:130 TERM:143; do
        rm -rf out
        "$HDO" run demo --set steps=100000000 --set eval.every=0 -q -o out &
        pid=$!
        for _ in $(seq 100); do [ -s out/metrics.jsonl ] && break; sleep 0.05; done
        sleep 0.2
        kill -s "${pair%:*}" "$pid"
        code=0; wait "$pid" || code=$?
        [ "$code" -eq "${pair#*:}" ]
        jq -e '.outcome == "stopped" and .steps > 0' out/summary.json
        no_litter out
    done
}

@test "little address space is enough: no library takes it" {
    run bash -c "ulimit -v 200000; timeout -s KILL 60 '$HDO' run demo $small --threads 1 -o out"
    [ "$status" -eq 0 ]
}

@test "SIGTERM in the middle of a very long step saves the state before it" {
    "$HDO" run demo $small --population 1fo+2zo --set population.zo.estimator=fd --set population.zo.rv=1000000000 -o out &
    pid=$!
    for _ in $(seq 200); do [ -s out/metrics.jsonl ] && break; sleep 0.05; done
    sleep 0.2
    kill -s TERM "$pid"
    code=0
    for _ in $(seq 200); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
    if kill -0 "$pid" 2>/dev/null; then kill -s KILL "$pid"; fi
    wait "$pid" || code=$?
    [ "$code" -eq 143 ]
    jq -e '.outcome == "stopped" and .steps == 0' out/summary.json
    [ -s out/checkpoints/step-000000000.safetensors ]
    [ "$(grep -c . out/metrics.jsonl)" -eq 1 ]
}

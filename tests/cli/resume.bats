#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Checkpoints: resumed and uninterrupted runs are the same, bit for bit; damage is refused.
load helper

sha() { jq -r .params_sha256 "$1/summary.json"; }
rows() { jq -c 'del(.time)' "$1/metrics.jsonl"; }

# Runs the same configuration once whole and once stopped at step 37 and resumed.
same_after_resume() {
    "$HDO" run demo $small --set steps=60 "$@" -o whole --force
    "$HDO" run demo $small --set steps=60 "$@" --set checkpoint.every=37 -o parts --force &
    wait $!
    rm -f parts/checkpoints/step-000000060.* parts/summary.json
    "$HDO" run --resume parts -q
    [ "$(sha whole)" = "$(sha parts)" ] || { echo "$*: $(sha whole) $(sha parts)"; return 1; }
    diff <(rows whole) <(rows parts)
}

@test "resumed at step 37: every mixing mode" {
    for m in matching pairwise none allreduce; do same_after_resume --set mixing=$m; done
}

@test "resumed at step 37: every estimator" {
    n=0
    for e in $("$HDO" config schema | jq -r '.. | .estimator? // empty | .. | .enum? // empty | .[]' | sort -u); do
        rv="--set population.zo.rv=4"
        case $e in fo | fd-coord) rv= ;; esac # they have no random vectors
        same_after_resume --set population.zo.estimator=$e $rv
        n=$((n + 1))
    done
    [ $n -ge 10 ]
}

@test "resumed at step 37: momentum, warm-up, cosine, balanced rates, noise weights, churn, time model, y_T, trace" {
    same_after_resume --set population.fo.momentum=0.9 --set population.zo.momentum=0.5 --set warmup=40 \
        --set population.fo.schedule=cosine --set population.zo.lr=balanced --set mixing.average=noise \
        --set churn.leave=0.1 --set churn.loss=0.1 --set churn.straggle=0.1 --set churn.model=fresh \
        --set population.fo.backward_s=0.01 --set population.zo.latency_s=0.1 --set eval.weighted=0.05 --set eval.trace=true
    diff whole/trace.jsonl parts/trace.jsonl
}

@test "resume with another number of threads" {
    "$HDO" run demo $small --set steps=60 --threads 1 -o whole
    "$HDO" run demo $small --set steps=60 --threads 1 --set checkpoint.every=37 -o parts
    rm parts/checkpoints/step-000000060.*
    "$HDO" run --resume parts -q --threads 2
    [ "$(sha whole)" = "$(sha parts)" ]
}

@test "Ctrl-C saves; resume finishes to the same bits; resuming a finished run changes nothing" {
    "$HDO" run demo $small --set steps=4000 -o whole
    "$HDO" run demo $small --set steps=4000 -o parts &
    pid=$!
    for _ in $(seq 100); do [ -s parts/metrics.jsonl ] && break; sleep 0.02; done
    kill -INT $pid
    code=0; wait $pid || code=$?
    [ "$code" -eq 130 ] || [ "$code" -eq 0 ]
    "$HDO" run --resume parts -q
    [ "$(sha whole)" = "$(sha parts)" ]
    diff <(rows whole) <(rows parts)
    before=$(sha parts)
    "$HDO" run --resume parts -q
    [ "$before" = "$(sha parts)" ]
}

@test "SIGUSR1 saves and goes on" {
    "$HDO" run demo $small --set steps=100000000 --set eval.every=0 -o out &
    pid=$!
    for _ in $(seq 100); do [ -s out/metrics.jsonl ] && break; sleep 0.05; done
    kill -USR1 $pid
    for _ in $(seq 100); do ls out/checkpoints/*.json >/dev/null 2>&1 && break; sleep 0.05; done
    ls out/checkpoints/*.json
    kill -0 $pid
    kill -TERM $pid
    code=0; wait $pid || code=$?
    [ "$code" -eq 143 ]
}

@test "kill -9 at a random moment, 20 times: never unreadable, same bits in the end" {
    set="--set steps=3000 --set checkpoint.every=50 --set eval.every=500 --threads 1"
    "$HDO" run demo $small $set -o whole
    "$HDO" run demo $small $set -o parts & pid=$!
    for i in $(seq 20); do
        sleep "0.0$((RANDOM % 6 + 2))"
        kill -9 $pid 2>/dev/null || true
        wait $pid 2>/dev/null || true
        if ls parts/checkpoints/*.json >/dev/null 2>&1; then
            "$HDO" run --resume parts -q & pid=$!
        else
            rm -rf parts
            "$HDO" run demo $small $set -o parts & pid=$!
        fi
    done
    wait $pid || true
    "$HDO" run --resume parts -q
    [ "$(sha whole)" = "$(sha parts)" ]
    diff <(rows whole) <(rows parts)
}

@test "only the last checkpoints are kept" {
    "$HDO" run demo $small --set checkpoint.every=2 --set checkpoint.keep=3 -o out
    [ "$(ls out/checkpoints/*.json | wc -l)" -eq 3 ]
    [ "$(ls out/checkpoints | wc -l)" -eq 6 ]
}

@test "a truncated, tampered or foreign checkpoint is refused with a sentence" {
    "$HDO" run demo $small --set checkpoint.every=10 -o out
    f=out/checkpoints/step-000000020.safetensors
    cp $f good
    head -c 1000 good > $f
    run "$HDO" run --resume out; [ "$status" -eq 3 ]; [[ "$output" == *"truncated"* ]]
    cp good $f
    printf 'x' | dd of=$f bs=1 seek=5000 conv=notrunc 2>/dev/null
    run "$HDO" run --resume out; [ "$status" -eq 3 ]; [[ "$output" == *"damaged"* ]]
    cp good $f
    "$HDO" run demo $small --population 3fo -o other
    cp other/checkpoints/step-000000020.* out/checkpoints/
    run "$HDO" run --resume out; [ "$status" -eq 3 ]; [[ "$output" == *"3 nodes"* ]]
    run "$HDO" run --resume nosuch; [ "$status" -eq 2 ]
    mkdir empty; cp out/config.yaml empty/
    run "$HDO" run --resume empty; [ "$status" -eq 3 ]; [[ "$output" == *"no checkpoint"* ]]
}

@test "a diverged run keeps its last good checkpoint" {
    run "$HDO" run demo -q --set model=quadratic --set population.fo.lr=3 --set population.fo.count=2 \
        --set model.smoothness=1.5 --set steps=5000 --set eval.every=0 --set checkpoint.every=20 -o out
    [ "$status" -eq 4 ]
    last=$(ls out/checkpoints/*.json | tail -1)
    [ "$(jq .step "$last")" -lt "$(jq .steps out/summary.json)" ]
}

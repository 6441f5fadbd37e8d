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
    for _ in $(seq 100); do ls out/checkpoints/*.safetensors >/dev/null 2>&1 && break; sleep 0.05; done
    n=$(find out/checkpoints -name '*.safetensors' | wc -l)
    alive=0; kill -0 $pid || alive=$?
    kill -TERM $pid
    code=0; wait $pid || code=$?
    [ "$n" -ge 1 ]
    [ "$alive" -eq 0 ]
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
        if [ -e parts/config.yaml ]; then
            "$HDO" run --resume parts -q 2>/dev/null & pid=$!
        else
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
    [ "$(echo out/checkpoints/*)" = "out/checkpoints/step-000000016.safetensors out/checkpoints/step-000000018.safetensors out/checkpoints/step-000000020.safetensors" ]
}

@test "a truncated or tampered checkpoint: the one before is taken, and said; the bits are the same" {
    "$HDO" run demo $small --set checkpoint.every=7 -o whole
    for how in truncated tampered; do
        rm -rf out
        cp -r whole out
        f=out/checkpoints/step-000000020.safetensors
        if [ $how = truncated ]; then
            truncate -s 3000 $f
        else
            printf 'x' | dd of=$f bs=1 seek=9000 conv=notrunc 2>/dev/null
        fi
        run "$HDO" eval out
        [ "$status" -eq 0 ]
        [[ "$output" == *"damaged"*"older checkpoint"* ]]
        [[ "$output" == *"step 14"* ]]
        run "$HDO" run --resume out -q
        [ "$status" -eq 0 ]
        [[ "$output" == *"damaged"*"going on from that of step 14"* ]]
        [ "$(sha whole)" = "$(sha out)" ]
        diff <(rows whole) <(rows out)
    done
}

@test "every checkpoint damaged, or none: from the beginning, and said; the bits are the same" {
    "$HDO" run demo $small --set checkpoint.every=7 -o whole
    cp -r whole out
    for f in out/checkpoints/*; do printf 'x' | dd of="$f" bs=1 seek=9000 conv=notrunc 2>/dev/null; done
    run "$HDO" eval out; [ "$status" -eq 3 ]; [[ "$output" == *"damaged"* ]]
    run "$HDO" weights convert out -o x.safetensors; [ "$status" -eq 3 ]; [[ "$output" == *"damaged"* ]]
    run "$HDO" run --resume out -q; [ "$status" -eq 0 ]; [[ "$output" == *"from the beginning"* ]]
    [ "$(sha whole)" = "$(sha out)" ]
    diff <(rows whole) <(rows out)
    rm out/checkpoints/*
    run "$HDO" run --resume out -q; [ "$status" -eq 0 ]; [[ "$output" == *"from the beginning"* ]]
    [ "$(sha whole)" = "$(sha out)" ]
    diff <(rows whole) <(rows out)
}

@test "the newest checkpoint is the one of the largest step, whatever the folder's order" {
    "$HDO" run demo $small --set checkpoint.every=1 --set checkpoint.keep=12 -o out
    for s in 20 19 18; do rm out/checkpoints/step-0000000$s.*; done
    for i in 9 12 10; do f=out/checkpoints/step-0000000$(printf %02d $i).safetensors; cp $f t; rm $f; mv t $f; done
    run "$HDO" run --resume out
    [[ "$output" == *"at step 17 of 20"* ]]
}

@test "a checkpoint of another run, of an older format, with other data, other rows or another configuration is refused" {
    "$HDO" run demo $small --set checkpoint.every=7 -o out
    "$HDO" run demo $small --set checkpoint.every=7 -o twin
    cp -r out good
    cp twin/checkpoints/* out/checkpoints/
    run "$HDO" run --resume out -q; [ "$status" -eq 3 ]; [[ "$output" == *"of another run"* ]]
    rm -rf out; cp -r good out
    sed -i '2s/step/stop/' out/metrics.jsonl
    run "$HDO" run --resume out -q; [ "$status" -eq 3 ]; [[ "$output" == *"metrics.jsonl' is damaged"* ]]
    rm -rf out; cp -r good out
    sed -i 's/"version": "3"/"version": "2"/' out/checkpoints/step-000000020.safetensors
    run "$HDO" run --resume out -q; [ "$status" -eq 2 ]; [[ "$output" == *"format 2"* ]]
    run "$HDO" eval out; [ "$status" -eq 2 ]; [[ "$output" == *"format 2"* ]]
    rm -rf out; cp -r good out
    sed -i 's/^steps: 20/steps: 25/' out/config.yaml
    run "$HDO" run --resume out -q; [ "$status" -eq 0 ]; [[ "$output" == *"config.yaml' is not as the run wrote it"* ]]
    [ "$(sha good)" = "$(sha out)" ]
    cmp good/config.yaml out/config.yaml
    rm out/checkpoints/*
    sed -i 's/^steps: 20/steps: 25/' out/config.yaml
    run "$HDO" run --resume out -q; [ "$status" -eq 3 ]; [[ "$output" == *"damaged or edited"* ]]
    run "$HDO" run --resume nosuch; [ "$status" -eq 2 ]
}

@test "data that changed between stop and resume are refused" {
    for i in $(seq 60); do echo "$((i * 7 % 11)),$((i * 5 % 13)),$((i % 2))"; done >d.csv
    "$HDO" run demo --set data.name=csv --set data.path=d.csv --set data.train=40 --set data.val=10 \
        --set population.fo.batch=4 --set population.zo.batch=4 --set steps=20 --set checkpoint.every=10 -q -o out
    "$HDO" run --resume out -q
    sed -i '3s/1$/0/;4s/0$/1/' d.csv
    run "$HDO" run --resume out -q
    [ "$status" -eq 3 ]
    [[ "$output" == *"training data of 'out' have changed"* ]]
}

@test "--force drops the old checkpoints first: a killed --force never goes on with another run's" {
    "$HDO" run demo $small --set checkpoint.every=7 --seed 5 -o out
    before=$(jq -r .run_id out/manifest.json)
    "$HDO" run demo $small --seed 6 --force -o out
    [ "$before" != "$(jq -r .run_id out/manifest.json)" ]
    [ "${#before}" -eq 32 ]
    "$HDO" run demo $small --seed 6 -o whole
    [ "$(sha whole)" = "$(sha out)" ]
}

@test "two writers: the second is refused and told who the first is; a stale lock does no harm" {
    "$HDO" run demo $small --set steps=100000000 --set eval.every=0 --set checkpoint.every=1000 -o out & pid=$!
    for _ in $(seq 100); do [ -s out/metrics.jsonl ] && break; sleep 0.05; done
    run "$HDO" run --resume out -q
    one=$status text=$output
    run "$HDO" run demo $small --force -o out
    two=$status
    kill -9 $pid
    wait $pid || true
    [ "$one" -eq 1 ]
    [[ "$text" == *"being written by another run (process $pid on "* ]]
    [ "$two" -eq 1 ]
    [ -e out/run.lock ]
    mkdir -p out/checkpoints
    touch out/config.yaml.tmp.123 out/checkpoints/step-000000001.safetensors.tmp.123 out/mine.tmp.1
    "$HDO" run --resume out -q --max-time 0.2
    [ ! -e out/run.lock ]
    [ ! -e out/config.yaml.tmp.123 ]
    [ ! -e out/checkpoints/step-000000001.safetensors.tmp.123 ]
    [ -e out/mine.tmp.1 ]
}

@test "a folder removed in mid-run ends the run with a sentence" {
    "$HDO" run demo $small --set steps=100000000 --set eval.every=1000 --set checkpoint.every=1000 -o out 2>err & pid=$!
    for _ in $(seq 100); do [ -s out/metrics.jsonl ] && break; sleep 0.05; done
    mv out elsewhere
    for _ in $(seq 200); do kill -0 $pid 2>/dev/null || break; sleep 0.05; done
    kill -9 $pid 2>/dev/null || true
    code=0; wait $pid || code=$?
    [ "$code" -eq 1 ]
    grep -q "was removed or replaced while the run was writing" err
    [ ! -e out ]
}

@test "links in a fresh folder are not followed" {
    for f in log.txt run.lock; do
        rm -rf out; mkdir out
        echo precious > target
        ln -s "$PWD/target" out/$f
        run "$HDO" run demo $small -o out
        [ "$status" -eq 1 ]
        [[ "$output" == *"$f"*"symbolic link"* ]]
        [ "$(cat target)" = precious ]
    done
}

@test "--max-time is of this session: the run goes on with --resume, and a finished one takes more steps" {
    "$HDO" run demo $small --set steps=100000000 --set eval.every=0 --max-time 0.3 -o out
    [ "$(jq -r .reason out/summary.json)" = timeout ]
    run grep time_s out/config.yaml
    [[ "$output" == *"time_s: 0" ]]
    a=$(jq .steps out/summary.json)
    "$HDO" run --resume out -q --max-time 0.3
    b=$(jq .steps out/summary.json)
    [ "$b" -gt "$((a + 10))" ]
    "$HDO" run demo $small --set steps=33 -o whole
    "$HDO" run demo $small -o parts
    "$HDO" run --resume parts -q --set steps=33
    [ "$(sha whole)" = "$(sha parts)" ]
    diff <(rows whole) <(rows parts)
    "$HDO" run --resume parts -q
    [ "$(sha whole)" = "$(sha parts)" ]
    run "$HDO" run --resume parts -q --set steps=10; [ "$status" -eq 2 ]; [[ "$output" == *"33 steps already"* ]]
    run "$HDO" run --resume parts -q --set population.fo.lr=1; [ "$status" -eq 2 ]; [[ "$output" == *"population.fo.lr"* ]]
    "$HDO" run demo $small --set population.fo.schedule=cosine -o cosine
    run "$HDO" run --resume cosine -q --set steps=33; [ "$status" -eq 2 ]; [[ "$output" == *"no cosine"* ]]
}

@test "a diverged run keeps its last good checkpoint" {
    run "$HDO" run demo -q --set model=quadratic --set population.fo.lr=3 --set population.fo.count=2 \
        --set model.smoothness=1.5 --set steps=5000 --set eval.every=0 --set checkpoint.every=20 -o out
    [ "$status" -eq 4 ]
    last=$(find out/checkpoints -name 'step-*.safetensors' | sort | tail -1 | sed 's/.*step-0*\([0-9]*\).*/\1/')
    [ "$last" -ge 20 ]
    [ "$last" -lt "$(jq .steps out/summary.json)" ]
}

#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Runs on the real data sets: same bits from 1 and 2 threads, resumed and not, and again.

setup() {
    ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    : "${HDO:=$ROOT/build/hdo}"
    T=$(mktemp -d)
    cd "$T" || exit 1
    export NO_COLOR=1
}

teardown() {
    cd /
    rm -rf "$T"
}

sha() { jq -r .params_sha256 "$1/summary.json"; }

@test "16-node hybrid cnn2 on MNIST: one fingerprint for 1 and 2 threads, resumed at step 37, and a rerun" {
    set="--population 8fo+8zo --set steps=50 --set warmup=5 --eval-every 0 --set data.val=200 --set population.fo.batch=32 --set population.zo.batch=32 --set population.fo.lr=0.02 --set population.zo.lr=0.02 -q"
    "$HDO" run e7 $set --threads 1 -o one
    "$HDO" run e7 $set --threads 2 -o two
    "$HDO" run e7 $set --threads 1 -o again
    "$HDO" run e7 $set --threads 2 --set checkpoint.every=37 -o parts
    rm parts/checkpoints/step-000000055.*
    "$HDO" run --resume parts -q
    [ "$(sha one)" = "$(sha two)" ]
    [ "$(sha one)" = "$(sha again)" ]
    [ "$(sha one)" = "$(sha parts)" ]
}

@test "one ResNet-18 node on CIFAR-10: the same bits from 1 and 2 threads" {
    set="--population 1fo --set steps=2 --set warmup=0 --eval-every 0 --set data.val=100 -q"
    "$HDO" run e3 $set --threads 1 -o one
    "$HDO" run e3 $set --threads 2 -o two
    [ "$(sha one)" = "$(sha two)" ]
}

@test "e2 learns: 24 first-order nodes reach 85% on MNIST in 200 steps" {
    "$HDO" run e2 --population 24fo --max-steps 200 --eval-every 0 -q --json -o out | jq -e '.final.val_acc_mean > 0.85'
}

@test "paper e3 --reading stand-in: learns a start without labels, then tunes a model with another head" {
    run "$HDO" paper e3 --quick --reading stand-in --only 1fo --seeds 0-0 -o p
    [ "$status" -eq 0 ]
    run "$HDO" weights info p/e3-start-quick/mean.safetensors
    [[ "$output" == *"fc.weight"*"(4, 512)"* ]]
    grep -q 'e3-start-quick/mean.safetensors' p/e3-stand-in-quick/1fo/seed-0/config.yaml
    grep -q 'not ImageNet' p/e3-stand-in-quick/figures/e3-loss.gp
    stamp=$(stat -c %Y p/e3-start-quick/summary.json)
    rm p/e3-start-quick/mean.safetensors # killed between the run and its export
    run "$HDO" paper e3 --quick --reading stand-in --only 1zo --seeds 0-0 -o p
    [ "$status" -eq 0 ]
    [ "$(stat -c %Y p/e3-start-quick/summary.json)" -eq "$stamp" ] # made once
}

@test "check complains before a run that diverges: label skew, small batches, a rate above the recommended" {
    run "$HDO" check e7 -q --time 0.3 --population 4fo+12zo --set "data.split=dirichlet(0.1)" \
        --set population.fo.batch=32 --set population.zo.batch=32
    [ "$status" -eq 1 ]
    [[ "$output" == *"Class 'zo': lr = 0.1 is above"* ]]
    [[ "$output" == *"the population diverged"* ]]
}

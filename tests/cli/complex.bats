#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# complex-step on networks: analytic ones run, those with kinks are refused unless allowed.
bats_require_minimum_version 1.5.0
load helper

zo="--population 2fo+2zo --set population.zo.estimator=complex-step --set population.zo.nu=1e-20 --set population.zo.rv=8"
slow="--set population.fo.lr=0.01 --set population.zo.lr=0.001"
gelu=(--set model.name=custom --set "model.layers=linear 16, gelu, linear 16, sigmoid, linear classes")
gpt="--set model.name=transformer --set data.name=brackets --set data.positions=34 --set data.train=200 --set data.val=50"

sha() { jq -r .params_sha256 "$1/summary.json"; }

refused() { # refused CLASS
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "$stderr" = "hdo: error: class '$1': estimator 'complex-step' needs an analytic model, but 'mlp' has a kink (ReLU behind fc1); use forward, or take the slope of the active piece with --allow-piecewise (population.$1.allow_piecewise: true)" ]
}

@test "a model with kinks is refused, by run and by check" {
    run --separate-stderr "$HDO" run demo $small $zo $slow --set model.name=mlp -o out
    refused zo
    [ ! -e out ]
    run --separate-stderr "$HDO" check demo -q $zo --set model.name=mlp
    refused zo
}

@test "--allow-piecewise accepts it for the classes with complex-step, and is stored as their option" {
    "$HDO" run demo $small $zo $slow --set model.name=mlp --allow-piecewise -o a
    "$HDO" run demo $small $zo $slow --set model.name=mlp --set population.zo.allow_piecewise=true -o b
    "$HDO" run a/config.yaml -q -o c
    [ "$(sha a)" = "$(sha b)" ]
    [ "$(sha a)" = "$(sha c)" ]
    [ "$(grep -c 'allow_piecewise: true' a/config.yaml)" -eq 1 ]
    "$HDO" check demo -q $zo --set model.name=mlp --allow-piecewise --json --time 0.1 | jq -e '.agreement.complex_error < 1e-4'
    run "$HDO" run --resume a --allow-piecewise
    [ "$status" -eq 2 ]
}

@test "a gelu network: complex-step follows forward mode" {
    "$HDO" run demo $small $zo $slow "${gelu[@]}" -o a
    "$HDO" run demo $small ${zo/--set population.zo.nu=1e-20/} $slow "${gelu[@]}" --set population.zo.estimator=forward -o b
    jq -e -s '(.[0].final.val_loss_mean - .[1].final.val_loss_mean) | fabs < 1e-5' a/summary.json b/summary.json
    jq -e '.oracle.forward == 20 * 2 * 9' a/summary.json
}

@test "the transformer: same bits on one and two threads, and resumed" {
    "$HDO" run demo $small $zo $slow $gpt --threads 1 -o a
    "$HDO" run demo $small $zo $slow $gpt --threads 2 --set checkpoint.every=7 -o b
    jq -e '.outcome == "completed" and (.final.val_loss_mean < 2)' a/summary.json
    [ "$(sha a)" = "$(sha b)" ]
    rm -f b/checkpoints/step-00000002*.* b/summary.json
    "$HDO" run --resume b -q
    [ "$(sha a)" = "$(sha b)" ]
    diff <(jq -c 'del(.time)' a/metrics.jsonl) <(jq -c 'del(.time)' b/metrics.jsonl)
}

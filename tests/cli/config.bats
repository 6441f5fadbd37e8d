#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
load helper

bats_require_minimum_version 1.5.0

@test "show prints YAML that loads back to itself" {
    "$HDO" config show demo > a.yaml
    "$HDO" config show a.yaml > b.yaml
    diff a.yaml b.yaml
}

@test "show --origin says where values come from" {
    run "$HDO" config show demo --set population.zo.rv=16 --origin
    [ "$status" -eq 0 ]
    [[ "$output" == *"rv: 16"*"--set"* ]]
    [[ "$output" == *"# default"* ]]
}

@test "check is silent for every preset" {
    n=0
    for p in $("$HDO" run --help | sed -n 's/^Presets://p'); do
        run "$HDO" config check "$p"
        [ "$status" -eq 0 ]
        [ -z "$output" ]
        n=$((n + 1))
    done
    [ "$n" -eq "$(ls "$HDO_SOURCE/presets" | wc -l)" ]
}

@test "a setting without effect is refused, and both keys are named; a preset's is not" {
    run --separate-stderr "$HDO" run demo --set mixing.graph=ring -o out
    [ "$status" -eq 2 ]
    [ "$stderr" = "hdo: error: mixing.graph is 'ring', but has no effect while mixing.kind is 'matching': it needs mixing.kind = graph. Set that, or leave mixing.graph out" ]
    [ ! -e out ]
    run "$HDO" config check e2 --set population.zo.estimator=fo # the preset's rv is idle now
    [ "$status" -eq 0 ]
    run "$HDO" config check e2 --set population.zo.estimator=fo --set population.zo.rv=8
    [ "$status" -eq 2 ]
    printf 'mpi: {deadline_s: 7}\n' >mine.yaml # a user's own defaults are for all runs
    HDO_CONFIG=mine.yaml run "$HDO" config check demo
    [ "$status" -eq 0 ]
    run "$HDO" config check mine.yaml
    [ "$status" -eq 2 ]
    [[ "$output" == *"mine.yaml:1:19"* ]]
    [[ "$output" == *"engine is 'sim'"* ]]
    "$HDO" config show e6 --set population.zo.estimator=fo --origin >shown.yaml
    grep -q "no effect: needs estimator != fo" shown.yaml
    "$HDO" config check shown.yaml
}

@test "schema is JSON and knows the keys" {
    "$HDO" config schema | jq -e '.properties.population and .properties.steps and .properties.model'
}

@test "help knows a key, and says which one was meant" {
    run "$HDO" config help modle
    [ "$status" -eq 2 ]
    [[ "$output" == *"unknown key 'modle'; did you mean 'model'?"* ]]
    run "$HDO" config help data.splt
    [ "$status" -eq 2 ]
    [[ "$output" == *"did you mean 'split'?"* ]]
    run "$HDO" config help data.split
    [ "$status" -eq 0 ]
    [[ "$output" == *dirichlet* ]]
    [[ "$output" != *scaling* ]]
}

@test "help lists keys with bounds" {
    run "$HDO" config help population
    [ "$status" -eq 0 ]
    [[ "$output" == *"estimator"* ]]
    [[ "$output" == *"momentum"* ]]
}

@test "doctor and version" {
    run "$HDO" doctor; [ "$status" -eq 0 ]; [[ "$output" == *"simd"* ]]
    run "$HDO" version; [ "$status" -eq 0 ]; [[ "$output" == "hdo "[0-9]* ]]
    [ "$("$HDO" --version)" = "$("$HDO" version)" ]
}

@test "doctor says which vector unit the kernels use" {
    run "$HDO" doctor
    [ "$status" -eq 0 ]
    [[ "$output" == *"kernels "*"own, "* ]]
    HDO_SIMD=portable run "$HDO" doctor
    [ "$status" -eq 0 ]
    [[ "$output" == *"own, portable"* ]]
}

@test "plot draws runs and groups of seeds" {
    "$HDO" run demo $small --seeds 0-1 -o group
    "$HDO" run demo $small --population 2fo -o single
    "$HDO" plot group single --y val/loss_mu -o fig/two
    for f in svg png pdf csv gp; do [ -s "fig/two.$f" ]; done
    grep -q '<svg' fig/two.svg
    run "$HDO" plot nosuch -o fig/x; [ "$status" -eq 3 ]
    run "$HDO" plot group --y val/nosuch -o fig/x; [ "$status" -eq 2 ]
}

@test "check: a population that diverges is a problem and exit code 1; explain says who went first" {
    run "$HDO" check demo -q --time 0.1 --set model=quadratic --set population.zo.lr=5
    [ "$status" -eq 1 ]
    [[ "$output" == *"the population diverged"* ]]
    run "$HDO" check demo -q --time 0.1 --set model=quadratic --set population.zo.lr=5 --json
    [ "$status" -eq 1 ]
    echo "$output" | jq -e '.trial.diverged'
    echo "$output" | jq -e '.trial.class == "zo"'
    run "$HDO" check demo -q --time 0.1 --json
    [ "$status" -eq 0 ]
    echo "$output" | jq -e '.trial.steps == 60'
    run "$HDO" run demo -q --set model=quadratic --set population.zo.lr=5 -o out
    [ "$status" -eq 4 ]
    run "$HDO" explain out
    [ "$status" -eq 0 ]
    [[ "$output" == *"of class 'zo' went first, in step "* ]]
    "$HDO" explain out --json | jq -e '.divergence.first.class == "zo"'
    run "$HDO" explain out --check
    [[ "$output" == *"too large"* ]]
    run "$HDO" explain nosuch
    [ "$status" -eq 3 ]
    run "$HDO" explain
    [ "$status" -eq 2 ]
}

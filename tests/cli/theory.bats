#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
bats_require_minimum_version 1.5.0
load helper

@test "theory explains a quadratic without measuring" {
    run --separate-stderr "$HDO" theory theory-pair
    [ "$status" -eq 0 ] && [ -z "$stderr" ]
    [[ "$output" == *"constants: certified"* ]]
    [[ "$output" == *"Strongly convex bounds"* && "$output" == *"Non-convex bound"* ]]
    [[ "$output" == *"Do the zeroth-order nodes help?"* ]]
}

@test "theory --json is one document with bounds and warnings" {
    "$HDO" theory theory-match --json > t.json
    jq -e '.quality == "certified" and .n == 12 and .strongly_convex.assumptions_hold and .non_convex.exists and
           (.warnings | length) > 0 and .constants.L.how == "certified"' t.json
}

@test "theory says which assumption fails" {
    run "$HDO" theory theory-pair --set population.fo.momentum=0.9
    [ "$status" -eq 0 ]
    [[ "$output" == *"FAILS"*"momentum"* && "$output" == *"AN ASSUMPTION FAILS"* ]]
}

@test "theory --run holds measured curves against bounds and draws them" {
    run "$HDO" theory theory-pair --run --seeds 8 --set steps=200 -q -o f/pair
    [ "$status" -eq 0 ] || [[ "$output" == *"gnuplot"* ]]
    [ -f f/pair-gamma.csv ] && [ -f f/pair-distance.gp ]
    "$HDO" theory theory-pair --run --seeds 8 --set steps=200 -q --json > r.json
    jq -e '.violated == false and .seeds == 8 and .quantities.gamma.slack > 1' r.json
}

@test "theory --run exits with 1 and says so loudly when a bound is violated" {
    run --separate-stderr "$HDO" theory theory-match --run --seeds 20 --set steps=200 --L 0.11 --sigma 0.1 -q
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"EXCEEDS ITS BOUND"* ]]
    [[ "$output" == *"VIOLATED"* ]]
}

@test "theory --measure labels what it measured" {
    "$HDO" theory demo --measure --set model.name=logistic-l2 --set data.train=480 --set data.val=100 --set steps=40 \
        -q --json > m.json
    jq -e '.constants.L.how == "certified" and .classes[0].sigma.how == "measured" and .quality == "measured"' m.json
}

@test "theory without constants asks for them" {
    run "$HDO" theory demo
    [ "$status" -eq 0 ]
    [[ "$output" == *"--measure"* ]]
}

@test "plan answers yes to cheap directions and no to slow ones" {
    "$HDO" plan theory-fleet --fo 4 --zo 28 --rv 64 --zo-speed 1000 --seeds 0 -q --json > yes.json
    jq -e '.worth_adding and .best.zo == 28 and .gain > 1' yes.json
    "$HDO" plan theory-fleet --fo 4 --zo 28 --rv 64 --zo-speed 0.01 --seeds 0 -q --json > no.json
    jq -e '(.worth_adding | not) and .gain < 1' no.json
    run "$HDO" plan theory-fleet --fo 4 --zo 28 --seeds 3 --sim-steps 200 -q
    [ "$status" -eq 0 ]
    [ "$(printf '%s\n' "$output" | wc -l)" -le 30 ]
}

@test "plan and theory explain wrong usage" {
    run "$HDO" plan theory-fleet; [ "$status" -eq 2 ]; [[ "$output" == *"--fo"* ]]
    run "$HDO" plan theory-fleet --fo x --zo 2; [ "$status" -eq 2 ]
    run "$HDO" theory; [ "$status" -eq 2 ]
    run "$HDO" theory theory-pair --L minus; [ "$status" -eq 2 ]
}

#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
bats_require_minimum_version 1.5.0
load helper

@test "theory explains a quadratic without measuring" {
    run --separate-stderr "$HDO" theory theory-pair
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
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
    [ -f f/pair-gamma.csv ]
    [ -f f/pair-distance.gp ]
    "$HDO" theory theory-pair --run --seeds 8 --set steps=200 -q --json > r.json
    jq -e '.violated == false and .seeds == 8 and .quantities.gamma.slack > 1' r.json
}

@test "theory --run exits with 1 and says so loudly when a bound is violated" {
    run --separate-stderr "$HDO" theory theory-match --run --seeds 20 --set steps=200 --L 0.11 --sigma 0.1 -q
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"EXCEEDS ITS BOUND"* ]]
    [[ "$output" == *"VIOLATED"* ]]
}

@test "theory --scaling: agrees at more than 3 standard errors only with an allowance that is printed" {
    "$HDO" theory --scaling --quick -q --json > s.json
    jq -e '.laws | length == 4 and all(.se > 0 and .limit_se == 3 and .allowance > 0 and (.allowance_why | length) > 20)' s.json
    jq -e '.laws | all(if .off_se > 3 then .verdict != "agrees" else .verdict == "agrees" end)' s.json
    jq -e '.laws | all(.verdict != "disagrees")' s.json
    jq -e '.laws[] | select(.name == "threshold") | .off_se > 3 and .verdict == "agrees with allowance"' s.json
}

@test "theory: beyond the condition of the theorem there is no bound, and it says so" {
    far="--set population.fo.lr=theorem --set population.zo.lr=theorem --set steps=500"
    run "$HDO" theory theory-pair --run --seeds 3 $far -q
    [ "$status" -eq 0 ]
    [[ "$output" == *"theorem does not apply here: spectral radius 2.262, must be below 1; lr = 0.7955, at most 0.1645"* ]]
    [[ "$output" == *"lr: theorem"*"from T = 4668 on; here T = 500"* ]]
    [[ "$output" != *"below its bound"* ]]
    [[ "$output" != *"e+1"* ]]
    "$HDO" theory theory-pair --run --seeds 3 $far -q --json > r.json
    jq -e '.quantities | all(.applies == false and .bound == null and .slack == null and .tightest_t == null)' r.json
    "$HDO" theory theory-pair $far --json > t.json
    jq -e '.strongly_convex | .applies == false and .distance == null and .value_noise == null' t.json
    run "$HDO" theory theory-pair $far
    [[ "$output" == *"theorem does not apply here"* ]]
}

@test "theory --json: what is not known is null, not 0" {
    "$HDO" theory demo --set population.zo.estimator=fd --json > t.json
    jq -e '.constants.L.value == null and (.published.noise_terms_convex | all(. == null)) and .published.T_min == null' t.json
    jq -e '.zeroth_order | all(. == null)' t.json
    jq -e '.classes[1] | .bias == null and .kappa == null and .noise == null and .nu_best == null' t.json
    jq -e '.classes[0] | .bias == 0 and .nu == null' t.json
    run "$HDO" theory demo
    [[ "$output" != *"nan"* ]]
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

#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Spectra, predictions, and rates that a run chooses for itself.
load helper

quad="--set model=quadratic --set data=none --set model.dim=60 --set model.convexity=0.001 --set model.start=0.3"
sha() { jq -r .params_sha256 "$1/summary.json"; }

@test "spectrum knows the trace of a quadratic" {
    "$HDO" spectrum demo $quad --set model.convexity=1 --json -q > s.json
    jq -e '.trace > 59.9 and .trace < 60.1' s.json
    jq -e '.l_max > 0.999 and .l_max < 1.001' s.json
    jq -e '.horizon.effective_dim | length > 10' s.json
    run "$HDO" spectrum
    [ "$status" -eq 2 ]
}

@test "predict gives what scripts rely on, for several populations" {
    "$HDO" predict demo $quad --set steps=100 --population 4fo --population 4fo+8zo --json -q > p.json
    jq -e '.predictions | length == 2' p.json
    jq -e '.predictions[1].population == "4fo+8zo"' p.json
    jq -e '.predictions[1] | (.val_loss_mu - .val_loss_free - .noise_mu | fabs) < 1e-9' p.json
    jq -e '.predictions[1] | (.val_loss_mean - .val_loss_mu - .spread | fabs) < 1e-9' p.json
    jq -e '.predictions[1].classes.zo | .noise_ratio > 1 and .lr_max > 0 and .effective_dim > 0' p.json
    run grep -i nan p.json
    [ "$status" -ne 0 ]
    run "$HDO" predict demo $quad --seeds 3
    [ "$status" -eq 2 ]
}

@test "auto: same bits on any number of threads and after a resume" {
    all="$small --set steps=40 --set population.fo.lr=auto --set population.zo.lr=auto --set mixing.average=auto --set mixing.partners=auto"
    "$HDO" run demo $all --threads 1 -o one
    "$HDO" run demo $all --threads 2 -o two
    [ "$(sha one)" = "$(sha two)" ]
    "$HDO" run demo $all --set checkpoint.every=13 --set checkpoint.keep=9 -o parts
    rm -f parts/checkpoints/step-000000026.* parts/checkpoints/step-000000039.* parts/checkpoints/step-000000040.*
    rm -f parts/summary.json
    "$HDO" run --resume parts -q
    [ "$(sha one)" = "$(sha parts)" ]
    grep -q "auto: 'zo' has lr" one/log.txt
}

@test "auto is refused where nobody can choose" {
    run "$HDO" theory demo --set population.zo.lr=auto
    [ "$status" -ne 0 ]
    [[ "$output" == *"auto"* ]]
}

@test "plan: seconds, bytes and joules are axes, and both sides are tried at tuned rates" {
    fleet="--fo 4 --zo 8 --rv 4 --fo-joules 10 --zo-joules 0.5 --set steps=400"
    "$HDO" plan theory-fleet $fleet --seeds 2 --sim-steps 200 -q --json > p.json
    # 12 nodes of d = 50 numbers send 12 * 200 bytes a round; forward mode takes 2 rv passes
    jq -e '.prediction.by_zo[-1] | .bytes == .rounds * 12 * 200' p.json
    jq -e '.prediction.by_zo[-1] | (.joules - .rounds * (4 * 10 + 8 * 2 * .rv * 0.5) | fabs) < 1e-6' p.json
    jq -e '.prediction.by_zo[-1] | (.seconds - .rounds * .round_s | fabs) < 1e-6' p.json
    jq -e '.simulation.tuned_without > 0 and .simulation.tuned_with > 0' p.json
    "$HDO" plan theory-fleet $fleet --traffic 0.1 --seeds 0 -q --json > t.json
    jq -e '.prediction.by_zo[-1].rounds == 41 and .prediction.without.rounds == 125' t.json
    "$HDO" plan theory-fleet $fleet --energy 4000 --seeds 0 -q --json > e.json
    jq -e '.prediction.without.rounds == 100 and .prediction.by_zo[-1].joules <= 4000' e.json
    run "$HDO" plan theory-fleet --fo 4 --zo 8 --energy 10 -q
    [ "$status" -eq 2 ]
    [[ "$output" == *"--fo-joules"* ]]
}

@test "check: recommendations by the directions that a run will learn" {
    # a quadratic of 60 equal curvatures: every direction is learnt alike, 60 (1 - (1 - lr)^(2 T))
    q="$quad --set model.convexity=1 --set population.fo.lr=0.01 --set population.zo.lr=0.01 --set population.zo.rv=2"
    "$HDO" check demo $q --set steps=50 --population 4fo+4zo --try 0 --time 0.1 --json -q > c.json
    jq -e '.curvature.effective_dim > 37.9 and .curvature.effective_dim < 38.2' c.json # 60 (1 - 0.99^100) = 38.04
    jq -e '.classes[1] | .noise_ratio > 3 and .rv_even > .rv' c.json
    jq -e '[.notes[].text | select(contains("effective dimension"))] | length == 1' c.json
    even=$(jq '.classes[1].rv_even | ceil' c.json)
    "$HDO" check demo $q --set steps=50 --set population.zo.rv=$even --population 4fo+4zo --try 0 --time 0.1 --json -q > d.json
    jq -e '.classes[1].noise_ratio > 2.7 and .classes[1].noise_ratio <= 3.02' d.json # the break-even 2 + 4/4
}

@test "partners: a share of the meetings inside the classes, and what it does to lambda" {
    "$HDO" run demo $small --population 4fo+4zo --set steps=20 --set "mixing.partners=own(0.5)" -o own
    jq -e '(.mixing.lambda - (0.5 + 0.5 * 6 / 14) | fabs) < 1e-9' own/summary.json # (n - 2) / (2 (n - 1)) for all 8
    "$HDO" run demo $small --population 4fo+4zo --set steps=20 --set "mixing.partners=own(0)" -o none
    "$HDO" run demo $small --population 4fo+4zo --set steps=20 -o any
    [ "$(sha none)" = "$(sha any)" ]
    [ "$(sha own)" != "$(sha any)" ]
    run "$HDO" config check demo --set mixing=pairwise --set mixing.partners=auto
    [[ "$output" == *"mixing.partners"* ]]
}

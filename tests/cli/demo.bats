#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hdo demo: the table agrees with the stored runs, the figure is there, the reason is given.
bats_require_minimum_version 1.5.0
load helper

@test "demo: three populations, table, reason, verdict, figure" {
    run --separate-stderr "$HDO" demo --seeds 2 -q -o d
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    for f in svg png pdf csv gp; do [ -s "d/figure.$f" ]; done
    for p in 8fo 24zo 8fo+24zo; do
        mean=$(jq -s 'map(.final.val_loss_mu) | add / length | . * 100000 | round' d/$p/seed-0/summary.json d/$p/seed-1/summary.json)
        shown=$(awk -v p="$p" '{ for (i = 1; i < NF; i++) if ($i == p) { printf "%d", $(i + 1) * 100000 + 0.5; exit } }' <<<"$output")
        [ "$mean" -eq "$shown" ]
        jq -e '.outcome == "completed" and .steps == 600' "d/$p/seed-1/summary.json"
    done
    [[ "$output" == *"d = 105 dimensions is 2.66 times as noisy"* ]]
    [[ "$output" == *"The hybrid beats both parts"* || "$output" == *"Not decided here"* ]]
    [[ "$output" == *"Figure: d/figure.svg"* ]]
}

@test "demo: wrong usage" {
    run "$HDO" demo --seeds 1
    [ "$status" -eq 2 ]
    [[ "$output" == *"--seeds must be 2 to 64"* ]]
    run "$HDO" demo --nosuch
    [ "$status" -eq 2 ]
    : > file
    run "$HDO" demo --seeds 2 -q -o file/d
    [ "$status" -eq 1 ]
}

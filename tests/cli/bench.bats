#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hdo bench: rows appear, formats parse, names select. Times are not judged here.
load helper

quick="--seconds 0.001 --threads 1"

@test "a table with limits and the case asked for" {
    run "$HDO" bench normals/l1 $quick
    [ "$status" -eq 0 ]
    [[ "$output" == *"limit/fma"* ]]
    [[ "$output" == *"limit/triad"* ]]
    [[ "$output" == *"normals/l1"*"G/s"*"normals"* ]]
    [[ "$output" != *"gemm"* ]]
}

@test "--json parses; a group gives its rows" {
    "$HDO" bench conv/cnn3 $quick --json > out.json
    jq -e '[.rows[].name] | index("conv/cnn3/fwd") and index("conv/cnn3/bwd_w")' out.json
    jq -e '.rows[] | select(.name == "conv/cnn3/fwd") | .median_s > 0 and .rate > 0 and .fraction > 0 and .unit == "GFLOP/s"' out.json
    jq -e '.rows[] | .p10_s <= .median_s and .median_s <= .p90_s' out.json
}

@test "--csv appends, one header" {
    "$HDO" bench exp/l1 $quick --csv a.csv > /dev/null
    "$HDO" bench exp/l1 $quick --cpu --csv a.csv > /dev/null
    [ "$(grep -c '^date,' a.csv)" -eq 1 ]
    [ "$(grep -c ',exp/l1,' a.csv)" -eq 2 ]
    [ "$(awk -F, 'NR == 1 { n = NF } NF < n' a.csv | wc -l)" -eq 0 ]
}

@test "data that is not here is skipped with a note" {
    HDO_DATA_DIR="$TMP/none" run "$HDO" bench gather/mnist $quick
    [ "$status" -eq 0 ]
    [[ "$output" == *"gather/mnist skipped"*"hdo data get"* ]]
}

@test "start-up cases run this program" {
    run "$HDO" bench start/version
    [ "$status" -eq 0 ]
    [[ "$output" == *"start/version"* ]]
    [ ! -e hdo-bench-* ]
}

@test "--list, wrong names, wrong numbers" {
    run "$HDO" bench --list
    [ "$status" -eq 0 ]
    [[ "$output" == *"* step/e2/forward-law"* ]]
    [[ "$output" == *"  run/e2/forward-law"* ]]
    run "$HDO" bench nosuch
    [ "$status" -eq 2 ]
    [[ "$output" == *"nosuch"*"--list"* ]]
    run "$HDO" bench --threads 0
    [ "$status" -eq 2 ]
    run "$HDO" bench --seconds nan
    [ "$status" -eq 2 ]
    run "$HDO" bench exp gemm
    [ "$status" -eq 2 ]
    run "$HDO" bench exp/l1 $quick --csv /proc/nosuch/a.csv
    [ "$status" -eq 1 ]
}

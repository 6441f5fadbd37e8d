#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# All seven experiments in short: under twenty minutes on two cores. Needs MNIST and CIFAR-10 (hdo data get).
load ../cli/helper

@test "hdo paper all --quick" {
    start=$(date +%s)
    run "$HDO" paper all --quick --fetch -o p
    echo "$output" | tail -60
    [ "$status" -eq 0 ]
    for k in 1 2 3 4 5 6 7; do [ -s "p/e$k-text-quick/claims.json" ]; done
    [ -s p/report.html ]
    [ $(($(date +%s) - start)) -lt 1200 ]
    run "$HDO" paper all --quick --dry-run -q -o p
    [ -z "$output" ] # everything is done
}

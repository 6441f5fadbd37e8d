#!/usr/bin/env bats
# tools/first-difference: the first step, node and coordinate at which two sides differ in bits.
load helper

compare() { # A's options, B's options
    build=$(dirname "$HDO")
    run "$HDO_SOURCE/tools/first-difference" "$build $1" "$build $2" demo --set steps=12 --set data.train=400 --set data.val=200
    echo "$status: $output"
}

@test "first-difference: vector units and threads give the same bits" {
    said=$(compare "--threads 1" "HDO_SIMD=portable --threads 2")
    [ "$said" = "0: same bits: 32 nodes, steps 1 to 12" ]
}

@test "first-difference: finds the step, also where only some of them are kept at first" {
    said=$(compare "--set mixing.period=7" "--set mixing.period=9")
    [[ "$said" == "1: step 7: node 0, coordinate 0 of 'params': "* ]]
    export FIRST_DIFFERENCE_ROOM=40000
    again=$(compare "--set mixing.period=7" "--set mixing.period=9")
    [ "$said" = "$again" ]
}

@test "first-difference: a run that fails is said" {
    said=$(compare "" "--set steps=-1")
    [[ "$said" == "2: first-difference: "*"steps"* ]]
}

#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Plug-ins: an objective in a shared object works wherever ours do, and every wrong one gets one sentence.
load helper

build() { # build NAME [FLAGS...]: libNAME.so
    name=$1
    shift
    cc -std=c11 -D_POSIX_C_SOURCE=200809L -O1 -w -shared -fPIC -I "$HDO_SOURCE/include" "$@" "$HDO_SOURCE/tests/plugins/bowl.c" -o "lib$name.so" -lm
}

config() { # config NAME [OPTIONS]: NAME.yaml
    cat > "$1.yaml" <<END
model: {plugin: ./lib$1.so, options: ${2:-"{dim: 6, noise: 0.2}"}}
steps: 12
population:
  fo: {count: 2, estimator: fo, lr: 0.1}
  zo: {count: 2, estimator: fd, rv: 8, nu: 1.0e-3, lr: 0.05}
eval: {every: 4}
END
}

refused() { # refused NAME SENTENCE: run says it, in one line, and ends with a status of its own
    config "$1"
    run "$HDO" run "$1.yaml" --quiet -o "run-$1"
    echo "$output"
    [ "$status" -ne 0 ]
    [ "$status" -lt 126 ]
    [ "$(echo "$output" | grep -c 'hdo: error:')" -eq 1 ]
    [ "$(echo "$output" | wc -l)" -eq 1 ]
    [[ "$output" == *"$2"* ]]
}

@test "a plug-in runs, and its options reach it" {
    build bowl
    config bowl
    "$HDO" run bowl.yaml --quiet -o one
    [ "$(jq .d one/summary.json)" -eq 6 ]
    [ "$(jq -r .model one/summary.json)" = bowl ]
    [ "$(jq -r .reason one/summary.json)" = completed ]
    grep -q 'identity: "bowl 1"' one/config.yaml
    [ "$(jq -r '.own[0].identity' one/manifest.json)" = "bowl 1" ]
    [ "$(jq -r '.own[0].plugin_sha256' one/manifest.json)" = "$(sha256sum libbowl.so | cut -d ' ' -f 1)" ]
    config bowl '{dim: 9}'
    "$HDO" run bowl.yaml --quiet -o two
    [ "$(jq .d two/summary.json)" -eq 9 ]
    run "$HDO" run bowl.yaml --quiet -o three --set 'model.options={"colour": "red"}'
    [ "$status" -eq 2 ]
    [[ "$output" == *"a bowl has no colour"* ]]
}

@test "same bits on any number of threads; killed and resumed; verified" {
    build bowl
    config bowl
    "$HDO" run bowl.yaml --quiet -o one --threads 1
    "$HDO" run bowl.yaml --quiet -o two --threads 4
    [ "$(jq -r .params_sha256 one/summary.json)" = "$(jq -r .params_sha256 two/summary.json)" ]
    "$HDO" run bowl.yaml --quiet -o part --set checkpoint.every=5 --set steps=5
    (cd / && "$HDO" run --resume "$OLDPWD/part" --set steps=12 --quiet)
    [ "$(jq -r .params_sha256 one/summary.json)" = "$(jq -r .params_sha256 part/summary.json)" ]
    "$HDO" verify one
    build bowl -DIDENTITY='"bowl 2"'
    run "$HDO" run --resume part --set steps=14 --quiet
    [ "$status" -eq 2 ]
    [[ "$output" == *"'bowl 2'"* ]]
    [[ "$output" == *"'bowl 1'"* ]]
    run "$HDO" verify one
    [ "$status" -ne 0 ]
}

@test "a relative path counts from the configuration file" {
    mkdir -p deep
    (cd deep && build bowl && config bowl)
    "$HDO" run deep/bowl.yaml --quiet -o one
    [ -f one/summary.json ]
}

@test "check, theory, predict, plan, sweep and bench take it" {
    build bowl
    config bowl
    "$HDO" check bowl.yaml > check.txt
    grep -q 'bowl' check.txt
    "$HDO" theory bowl.yaml --measure > theory.txt
    grep -q 'L  *1[ .]' theory.txt # the bowl's curvature is 1
    "$HDO" spectrum bowl.yaml > spectrum.txt
    grep -q bowl spectrum.txt
    "$HDO" predict bowl.yaml > predict.txt
    grep -q 'bowl' predict.txt
    "$HDO" plan bowl.yaml --fo 2 --zo 4 > plan.txt
    grep -q 'bowl' plan.txt
    "$HDO" sweep bowl.yaml --quiet --grid population.fo.lr=0.05,0.1 -o sweep > sweep.txt
    [ "$(find sweep -name summary.json | wc -l)" -ge 2 ]
}

@test "without a gradient: zeroth order runs, the rest says so in a sentence" {
    build bowl -DNO_GRADIENT
    config bowl
    run "$HDO" run bowl.yaml --quiet -o one
    [ "$status" -eq 2 ]
    [[ "$output" == *"class 'fo': estimator 'fo' needs a gradient"* ]]
    "$HDO" run bowl.yaml --quiet -o one --population 2zo
    "$HDO" check bowl.yaml --population 2zo
    for command in "theory --measure" predict "plan --fo 1 --zo 3"; do
        run "$HDO" ${command%% *} bowl.yaml --population 2zo ${command#"${command%% *}"}
        echo "$command: $status $output"
        [ "$status" -lt 126 ]
        [ "$status" -ne 1 ]
    done
}

@test "wrong plug-ins: one sentence each" {
    config missing
    run "$HDO" run missing.yaml --quiet -o run
    [ "$status" -eq 2 ]
    [[ "$output" == *"libmissing.so' does not exist"* ]]
    echo 'not a library' > libtext.so
    refused text "cannot be loaded"
    build symbol -DMISSING_SYMBOL
    refused symbol "does not export hdo_plugin_entry"
    build old -DWRONG=OLD_ABI
    refused old "was built for ABI -1 of hdo, but this is ABI 0"
    build new -DWRONG=NEW_ABI
    refused new "was built for ABI 1 of hdo, but this is ABI 0"
    build null -DWRONG=NULL_PLUGIN
    refused null "returned NULL instead of its table"
    build table -DWRONG=NULL_TABLE
    refused table "offers no objective: that table is NULL"
    build small -DWRONG=SMALL_TABLE
    refused small "struct_size"
    build noloss -DWRONG=NO_LOSS
    refused noloss "has neither loss nor losses"
    build nodim -DWRONG=NO_DIM
    refused nodim "dim is 0"
    build nan -DWRONG=LOSS_NAN
    refused nan "loss gave nan at the starting point"
    build writes -DWRONG=WRITES_X
    refused writes "loss wrote to x, which is const"
    build random -DWRONG=RANDOM
    refused random "must be a pure function"
    build crashes -DWRONG=CRASHES
    refused crashes "crashed in loss"
    build jumps -DWRONG=LONGJMPS
    refused jumps "libjumps.so'"
    build exits -DWRONG=EXITS
    refused exits "loss ended the process"
    build stops -DWRONG=STOPS
    refused stops "the bowl is broken"
    build refuses -DWRONG=REFUSES
    refused refuses "a bowl has no colour"
}

@test "a plug-in that hangs is given up at its deadline" {
    build hangs -DWRONG=HANGS
    config hangs
    begin=$(date +%s)
    run "$HDO" run hangs.yaml --quiet -o run --set model.trial_s=1
    [ "$status" -eq 2 ]
    [[ "$output" == *"loss has not returned within 1 s"* ]]
    [ $(($(date +%s) - begin)) -lt 30 ]
}

@test "steps left out are counted; a stop ends the run with exit 6 and the sentence" {
    build skips -DWRONG=SKIPS
    config skips
    run "$HDO" run skips.yaml --quiet -o one
    [ "$status" -eq 0 ]
    [ "$(jq .oracle.failed one/summary.json)" -eq 3 ]
    grep -q 'left out its step' one/log.txt
    build later -DWRONG=STOPS_LATER
    config later
    run "$HDO" run later.yaml --quiet -o two
    [ "$status" -eq 6 ]
    [[ "$output" == *"bowl: the bowl is broken (node 2, step 3)"* ]]
    run "$HDO" run later.yaml --quiet -o seeds --seeds 2
    [ "$status" -ne 0 ]
    [[ "$output" == *"the bowl is broken (node 2, step 3)"* ]]
}

@test "on ranks: the same bits, and the sentence of whichever rank it is" {
    build bowl
    config bowl
    "$HDO" run bowl.yaml --quiet -o one
    "$HDO" run bowl.yaml --quiet -o two --engine mpi --np 2
    [ "$(jq -r .params_sha256 one/summary.json)" = "$(jq -r .params_sha256 two/summary.json)" ]
    build later -DWRONG=STOPS_LATER
    config later
    run "$HDO" run later.yaml --quiet -o three --engine mpi --np 2
    [ "$status" -eq 6 ]
    [[ "$output" == *"the bowl is broken (node 2, step 3)"* ]]
}

@test "an objective on configured data: failed evaluations are counted, the same on threads and ranks; another file warns" {
    cc -std=c11 -O1 -shared -fPIC -I "$HDO_SOURCE/include" "$HDO_SOURCE/tests/plugins/softmax.c" -o libsoftmax.so -lm
    cat > softmax.yaml <<'END'
model: {plugin: ./libsoftmax.so}
data: {name: synthetic, features: 6, classes: 3, train: 600, val: 200}
steps: 60
population:
  zo: {count: 6, estimator: fd, rv: 16, lr: 0.3, batch: 16, nu: 1.0e-3}
eval: {every: 20}
END
    "$HDO" run softmax.yaml --quiet -o one
    [ "$(jq .oracle.failed one/summary.json)" -eq 9 ]
    [ "$(jq '.final.val_loss_mean < 0.4' one/summary.json)" = true ]
    "$HDO" run softmax.yaml --threads 2 --quiet -o two
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$HDO" run softmax.yaml --engine mpi --np 2 --quiet -o ranks
    for r in two ranks; do
        [ "$(jq .oracle.failed $r/summary.json)" -eq 9 ]
        [ "$(jq .params_sha256 $r/summary.json)" = "$(jq .params_sha256 one/summary.json)" ]
    done
    run "$HDO" run softmax.yaml --set data.features=5 --quiet -o five
    [ "$status" -eq 6 ]
    [[ "$output" == *"no samples of 6 numbers came"* ]]
    cc -std=c11 -O2 -shared -fPIC -I "$HDO_SOURCE/include" "$HDO_SOURCE/tests/plugins/softmax.c" -o libsoftmax.so -lm
    run "$HDO" run --resume one --set steps=70 --quiet
    [ "$status" -eq 0 ]
    [[ "$output" == *"is another file than the run was made with"* ]]
}

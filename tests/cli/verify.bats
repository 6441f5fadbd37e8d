#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Stored runs, made again: equal bits are found equal, and every kind of edit is found.
load helper

# edit FILE JQ-EXPRESSION
edit() { jq "$2" "$1" > edited && mv edited "$1"; }

@test "verify: runs, groups, other threads, stopped, resumed and diverged runs come out the same" {
    "$HDO" run demo $small --seeds 0-1 -o group
    run "$HDO" verify group group/seed-1 -q
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 3 ]
    [[ "${lines[0]}" == "group/seed-0: same (3 rows, params_sha256 "* ]]
    run "$HDO" verify group/seed-0 --threads 2 -q
    [ "$status" -eq 0 ]
    "$HDO" run demo $small --set steps=60 --set checkpoint.every=37 -o parts
    rm parts/checkpoints/step-000000060.* parts/summary.json
    "$HDO" run --resume parts -q
    run "$HDO" verify parts -q
    [ "$status" -eq 0 ]
    "$HDO" run demo $small --set steps=100000000 --set eval.every=1000 -o stopped & pid=$!
    for _ in $(seq 100); do [ -s stopped/metrics.jsonl ] && break; sleep 0.02; done
    kill -TERM $pid
    wait $pid || true
    [ "$(jq -r .outcome stopped/summary.json)" = stopped ]
    run "$HDO" verify stopped -q
    [ "$status" -eq 0 ]
    run "$HDO" run demo -q --set model=quadratic --set population.fo.lr=3 --set model.smoothness=1.5 --set steps=500 -o lost
    [ "$status" -eq 4 ]
    run "$HDO" verify lost -q
    [ "$status" -eq 0 ]
}

@test "verify: an edited fingerprint, figure or row is found" {
    "$HDO" run demo $small -o a
    cp -r a fingerprint; edit fingerprint/summary.json '.params_sha256 |= "0" * 64'
    run "$HDO" verify fingerprint -q
    [ "$status" -eq 1 ]
    [[ "$output" == *"fingerprint: different: params_sha256 is "*", but was stored as 0000000000"* ]]
    cp -r a final; edit final/summary.json '.final.classes.zo.val_acc_mean += 0.01'
    run "$HDO" verify final -q
    [ "$status" -eq 1 ]
    [[ "$output" == *"final.classes.zo.val_acc_mean is "* ]]
    cp -r a row; sed -i '2s|"val/loss_mu": [^,]*|"val/loss_mu": 0.5|' row/metrics.jsonl
    run "$HDO" verify row -q
    [ "$status" -eq 1 ]
    [[ "$output" == *"val/loss_mu at step 10 is "*", but was stored as 0.5"* ]]
    cp -r a short; sed -i 2d short/metrics.jsonl
    run "$HDO" verify short -q
    [ "$status" -eq 1 ]
    [[ "$output" == *"number of rows is 3, but was stored as 2"* ]]
    cp -r a seed; sed -i 's/^seed: .*/seed: 99/' seed/config.yaml
    run "$HDO" verify seed a -q --json
    [ "$status" -eq 1 ]
    echo "$output" | jq -e '.same == 1 and .different == 1 and .runs[0].verdict == "different" and .runs[1].verdict == "same"
        and .runs[1].params_sha256 == .runs[1].stored_params_sha256 and .runs[0].difference != null'
}

@test "verify: says who made the run, what changed since, and what else is not as it was" {
    run "$HDO" run demo -q --set model=quadratic --set population.zo.lr=3 --set model.smoothness=1.5 --set steps=500 -o a
    [ "$status" -eq 4 ]
    edit a/summary.json '.commit = "0123456789ab" | .revisions.estimator["forward-law"] = 1'
    edit a/manifest.json '.host.gemm = "an abacus" | .host.simd = "fingers"'
    run "$HDO" verify a -q
    [ "$status" -eq 0 ] # a difference in these does not make a difference in the run
    [[ "$output" == *"commit 0123456789ab; this is "* ]]
    [[ "$output" == *"changed since: estimator forward-law, revision 2: "* ]]
    [[ "$output" == *"not as it was: vector unit "*", was fingers; matrix products by "*", was an abacus"* ]]
    "$HDO" verify a -q --json | jq -e '.runs[0] | .stored_commit == "0123456789ab" and .changes[0].name == "forward-law"'
}

@test "verify: what cannot be verified is not the same" {
    run "$HDO" verify
    [ "$status" -eq 2 ]
    run "$HDO" verify nosuch
    [ "$status" -eq 3 ]
    [[ "$output" == *"'nosuch' is not a run"* ]]
    "$HDO" run demo $small -o a
    cp -r a going; rm going/summary.json
    run "$HDO" verify going a -q
    [ "$status" -eq 3 ]
    [[ "$output" == *"going: not verified: 'going' has no summary"* ]]
    [[ "$output" == *"a: same"* ]]
    edit a/summary.json '.mpi = {"async": {}}'
    run "$HDO" verify a -q
    [ "$status" -ne 0 ]
    [[ "$output" == *"asynchronous"* ]]
}

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Engine mpi against the simulator, and what happens when a rank fails. One MPI at a time; prints TAP.
#
#   tests/mpi/mpi.sh HDO openmpi|mpich yes|no      (the last: was the plug-in built?)
# shellcheck disable=SC2086  # lists of options are meant to be split
set -u
hdo=$(realpath "$1") flavour=$2 built=$3
export HDO_MPI=$flavour NO_COLOR=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export UCX_LOG_LEVEL=fatal HWLOC_HIDE_ERRORS=2 # a container without /sys is no error of ours
unset HDO_CONFIG HDO_NUM_THREADS HDO_PLUGIN_PATH OMP_NUM_THREADS
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

case $flavour in
    openmpi) rank_var=OMPI_COMM_WORLD_RANK; launch="mpirun.openmpi -q --oversubscribe" ;;
    mpich) rank_var=PMI_RANK; launch="mpiexec.mpich" ;;
esac
command -v "${launch%% *}" >/dev/null 2>&1 || launch="mpirun"

count=0
ok() { # condition as an exit code, name
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then echo "ok $count - $flavour: $2"; else echo "not ok $count - $flavour: $2"; fi
}
if [ "$built" != yes ]; then
    ok 1 "the plug-in is not built: run tools/install-deps, then configure again"
    echo "1..$count"
    exit 1
fi

small="--set data.train=400 --set data.val=100 --set steps=8 --set eval.every=4 --population 3fo+8zo
       --set population.zo.estimator=fd --set population.zo.rv=4 -q --json"
sha() { jq -r .params_sha256; }
figures() { jq -c '[.params_sha256, .final, .oracle, .interactions, .bytes_exchanged]'; }
mpi() { timeout 60 "$hdo" run demo $small --engine mpi "$@"; }
sim() { timeout 60 "$hdo" run demo $small "$@"; }

same() { [ -n "$1" ] && [ "$1" = "$2" ]; }

# ---- the same bits ----
equal() { # name, ranks, options
    name=$1 ranks=$2
    shift 2
    rm -rf s m
    want=$(sim "$@" -o s | figures)
    bad=0
    for np in $ranks; do
        rm -rf m
        got=$(mpi "$@" --np "$np" -o m 2>err | figures)
        same "$got" "$want" || { bad=1; echo "# $np ranks: $got, not $want"; sed 's/^/# /' err; }
    done
    cmp -s <(jq -c 'del(.time)' s/metrics.jsonl) <(jq -c 'del(.time)' m/metrics.jsonl) || { bad=1; echo "# metrics.jsonl differ"; }
    ok $bad "$name on ranks $ranks equals the simulator"
}
equal "matching" "1 2 3 4 7"
equal "pairwise, plain kernels" "1 2 3 4 7" --set mixing.kind=pairwise --set kernels=ref
equal "graph" "1 2 3 4 7" --set mixing.kind=graph --set mixing.graph=ring
equal "momentum, balanced rates, churn, trace" "3" --set population.fo.momentum=0.5 --set population.zo.lr=balanced \
    --set churn.leave=0.1 --set churn.loss=0.1 --set churn.straggle=0.1 --set churn.model=fresh --set eval.trace=true
equal "allreduce with the weighted average" "3" --set mixing.kind=allreduce --set eval.weighted=0.01
# plain kernels: BLAS gives figures (never parameters) other last bits when fewer models are evaluated at once
equal "small chunks" "2" --set mpi.chunk=4096 --set data.features=300 --set kernels=ref
want=$(sim -o s1 | sha)
got=$(timeout 60 $launch -n 3 "$hdo" run demo $small --engine mpi -o p1 | sha)
same "$got" "$want"; ok $? "plain mpirun joins"
mpi --np 11 -o w1 | jq -e '.mpi.wire_bytes == .bytes_exchanged and .mpi.ranks == 11' >/dev/null
ok $? "a node a rank: the bytes on the wire are 2 x pairs x d x 4"
large="demo --set model.name=quadratic --set model.dim=11800000 --set data.name=none --population 2fo --set steps=2
       --set eval.every=0 -q --json"
want=$(timeout 60 "$hdo" run $large -o b1 | sha)
got=$(timeout 60 "$hdo" run $large --engine mpi --np 2 -o b2 | sha)
same "$got" "$want"; ok $? "models of 47 MB"
rm -rf b1 b2

# ---- checkpoints across engines ----
rm -rf s m
want=$(sim --set checkpoint.every=4 -o s | sha)
mpi --set checkpoint.every=4 --np 3 -o m >/dev/null
cmp -s s/checkpoints/step-000000004.safetensors m/checkpoints/step-000000004.safetensors
ok $? "a checkpoint has the simulator's bytes"
rm -f s/checkpoints/step-000000008.* m/checkpoints/step-000000008.*
same "$(timeout 60 "$hdo" run --resume m -q --json | sha)" "$want"; ok $? "3 ranks resumed in the simulator"
same "$(timeout 60 "$hdo" run --resume s --engine mpi --np 4 -q --json | sha)" "$want"; ok $? "the simulator resumed on 4 ranks"

# ---- roles ----
rm -rf s m
want=$(sim -o s | sha)
got=$(mpi --np 4 --roles 3:fo,0-1:zo,2:any -o m | sha)
same "$got" "$want"; ok $? "roles change who computes, not what"
mpi --np 3 --roles 0:fo,1-2:zo --set population.zo.estimator=forward-law -o x 2>err >/dev/null; code=$?
[ $code -eq 2 ] && grep -q "reverse mode" err && [ "$(grep -c error: err)" -eq 1 ]; ok $? "a zo rank refuses reverse mode"
mpi --np 2 --set mpi.memory=1000 -o x 2>err >/dev/null; code=$?
[ $code -eq 1 ] && grep -q "rank 0 (host .*) needs" err && [ "$(grep -c error: err)" -eq 1 ]; ok $? "memory is checked at the start"

# ---- one fails, all end, one message ----
mpi --np 3 --set population.fo.lr=1e6 --set population.zo.lr=1e6 --set stop.diverged=10 -o d1 2>err >out; code=$?
[ $code -eq 4 ] && [ "$(jq -r .outcome out)" = diverged ]; ok $? "divergence ends all ranks with 4"
mkdir -p here there
for i in $(seq 60); do echo "$((i * 7 % 11)),$((i * 5 % 13)),$((i % 2))"; done >here/d.csv
csv="$small --set data.name=csv --set data.path=d.csv --set data.train=40 --set data.val=10 --engine mpi -o x"
timeout 60 $launch -n 1 -wdir "$dir/here" "$hdo" run demo $csv : -n 2 -wdir "$dir/there" "$hdo" run demo $csv >out 2>err; code=$?
[ $code -eq 3 ] && grep -q "rank 1 (host .*): cannot read 'd.csv'" err && [ "$(grep -c 'error:' err)" -eq 1 ]
ok $? "an error on one rank ends all ranks with its code and one message"
timeout 60 $launch -n 1 "$hdo" run demo $small --engine mpi -o x : -n 1 "$hdo" run demo $small --engine mpi --seed 9 -o x >out 2>err
[ $? -eq 2 ] && grep -q "rank 1 was started with another configuration" err; ok $? "ranks that differ are found out"

# ---- signals ----
# A run that will not end by itself; its ranks are found by their environment.
long="--set data.train=400 --set data.val=100 --population 3fo+8zo --set population.zo.estimator=fd --set steps=10000000
      --set eval.every=0 --set checkpoint.every=20 --set mpi.deadline_s=3 -q --engine mpi --np 3"
rank_pid() { # output folder, rank
    for p in /proc/[0-9]*; do
        { tr '\0' '\n' <"$p/environ" | grep -qx "$rank_var=$2" && tr '\0' '\n' <"$p/cmdline" | grep -qx "$1" &&
            tr '\0' '\n' <"$p/cmdline" | head -1 | grep -q 'hdo$'; } 2>/dev/null && basename "$p" && return
    done
}
begin() { # output folder
    rm -rf "$1"
    "$hdo" run demo $long -o "$1" >out 2>err &
    job=$!
    for _ in $(seq 300); do # until it has saved once
        [ -n "$(newest "$1")" ] && break
        kill -0 $job 2>/dev/null || break
        sleep 0.05
    done
}
newest() { find "$1/checkpoints" -name '*.json' 2>/dev/null | sed 's/.*step-0*\([0-9]*\).json/\1/' | sort -n | tail -1; }
begin k1
kill -INT $job; wait $job; code=$?
[ $code -eq 130 ] && [ "$(jq -r .outcome k1/summary.json)" = stopped ] && [ "$(jq .steps k1/summary.json)" = "$(newest k1)" ]
ok $? "Ctrl-C saves and ends with 130"
begin k2
stopped=$(rank_pid k2 2)
kill -STOP "$stopped"; wait $job; code=$?
kill -KILL "$stopped" 2>/dev/null # its mpirun has done so already
[ $code -eq 5 ] && grep -q "rank 2 (host .*) did not answer within 3 s" err && [ "$(grep -c 'hdo: error:' err)" -eq 1 ]
ok $? "a rank that stands still is named"
begin k3
kill -KILL "$(rank_pid k3 1)"; wait $job; code=$?
step=$(newest k3)
[ $code -eq 5 ] && grep -q "a rank was killed" err && [ -n "$step" ]; ok $? "a killed rank ends the job with 5 and leaves a checkpoint"
target=$((step + 5))
sed -i "s/^steps: .*/steps: $target/" k3/config.yaml
want=$("$hdo" run demo --set data.train=400 --set data.val=100 --population 3fo+8zo --set population.zo.estimator=fd \
    --set steps=$target --set eval.every=0 -q --json -o k4 | sha)
same "$(timeout 60 "$hdo" run --resume k3 --engine mpi --np 2 -q --json | sha)" "$want"
ok $? "and the run resumed from it equals one that was never killed"

# ---- asynchronous ----
mpi --np 3 --async --set mpi.slow=1:3 --set eval.trace=true --set steps=60 -o a1 >out
jq -e '.outcome == "completed" and .mpi.async.exchanges > 0 and .mpi.async.mean_residual < 1e-5' out >/dev/null
ok $? "asynchronous: completes, exchanges, keeps the mean"
rm -rf k5
"$hdo" run demo $long --async -o k5 >out 2>err & job=$!
for _ in $(seq 100); do stopped=$(rank_pid k5 1); [ -n "$stopped" ] && break; sleep 0.05; done
sleep 0.5
kill -STOP "$stopped"; wait $job; code=$?
kill -KILL "$stopped" 2>/dev/null
[ $code -eq 5 ] && grep -q "rank 1 (host .*) has not been heard of" err; ok $? "asynchronous: a rank that stands still is named"
echo "1..$count"

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
dir=$(pwd -P)

case $flavour in
    openmpi) rank_var=OMPI_COMM_WORLD_RANK; launch="mpirun.openmpi -q --oversubscribe"; other=mpich ;;
    mpich) rank_var=PMI_RANK; launch="mpiexec.mpich"; other=openmpi ;;
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
figures() { jq -c '[.params_sha256, .final, .oracle, .interactions, .bytes_exchanged, .divergence]'; }
mpi() { timeout 60 "$hdo" run demo $small --engine mpi "$@"; }
sim() { timeout 60 "$hdo" run demo $small "$@"; }

same() { [ -n "$1" ] && [ "$1" = "$2" ]; }

# ---- the same bits ----
only= # options for the ranks alone: a simulator refuses those of the cluster
equal() { # name, ranks, options; in memory in common and by messages
    name=$1 ranks=$2
    shift 2
    rm -rf s m
    want=$(sim "$@" -o s | figures)
    bad=0
    for np in $ranks; do
        for shared in true false; do
            [ "$np" -gt 1 ] || [ $shared = true ] || continue
            rm -rf m
            got=$(mpi "$@" $only --set mpi.shared=$shared --np "$np" -o m 2>err | figures)
            same "$got" "$want" || { bad=1; echo "# $np ranks, shared $shared: $got, not $want"; sed 's/^/# /' err; }
        done
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
# plain kernels: figures (never parameters) may have other last bits when fewer models are evaluated at once
only="--set mpi.chunk=4096"
equal "small chunks" "2" --set data.features=300 --set kernels=ref
only=
equal "divergence, and who went first," "3" --set population.zo.lr=1e5 --set steps=40
jq -e '.divergence.first.class == "zo" and .divergence.first.node >= 3' m/summary.json >/dev/null; ok $? "the class at fault is named"
equal "two threads a rank" "2" --threads 2
want=$(sim -o s1 | sha)
got=$(timeout 60 $launch -n 3 "$hdo" run demo $small --engine mpi -o p1 | sha)
same "$got" "$want"; ok $? "plain mpirun joins"
mpi --np 11 --set mpi.shared=false -o w1 | jq -e '.mpi.wire_bytes == .bytes_exchanged and .mpi.ranks == 11' >/dev/null
ok $? "a node a rank: the bytes on the wire are 2 x pairs x d x 4"
mpi --np 11 -o w2 | jq -e '.mpi.shared_bytes == .bytes_exchanged and .mpi.wire_bytes == 0' >/dev/null
ok $? "on one machine nothing is on the wire"
# Ranks 2 and 3 believe to be on another machine: both ways in one run.
if unshare -u true 2>/dev/null; then
    two="$hdo run demo $small --engine mpi -o h1"
    timeout 60 $launch -n 2 $two : -n 2 unshare -u sh -c 'hostname other && exec "$@"' sh $two >out 2>err
    [ "$(sha <out)" = "$want" ] && jq -e '.mpi.shared_bytes > 0 and .mpi.wire_bytes > 0' out >/dev/null
    ok $? "two machines of two ranks each"
else
    ok 0 "two machines of two ranks each # SKIP no host names of one's own here"
fi
large="demo --set model.name=quadratic --set model.dim=11800000 --set data.name=none --population 2fo --set steps=2
       --set eval.every=0 -q --json"
want=$(timeout 60 "$hdo" run $large -o b1 | sha)
for shared in true false; do
    got=$(timeout 60 "$hdo" run $large --engine mpi --np 2 --set mpi.shared=$shared --force -o b2 | sha)
    same "$got" "$want"; ok $? "models of 47 MB, shared $shared"
done
rm -rf b1 b2

# ---- checkpoints across engines ----
rm -rf s m
want=$(sim --set checkpoint.every=4 -o s | sha)
mpi --set checkpoint.every=4 --np 3 -o m >/dev/null
tensors() { tail -c "+$(($(od -An -tu8 -N8 "$1") + 9))" "$1" | sha256sum; } # without the head, which holds times and names
same "$(tensors s/checkpoints/step-000000004.safetensors)" "$(tensors m/checkpoints/step-000000004.safetensors)"
ok $? "a checkpoint has the simulator's bytes"
rm -f s/checkpoints/step-000000008.* m/checkpoints/step-000000008.*
same "$(timeout 60 "$hdo" run --resume m -q --json | sha)" "$want"; ok $? "3 ranks resumed in the simulator"
same "$(timeout 60 "$hdo" run --resume s --engine mpi --np 4 -q --json | sha)" "$want"; ok $? "the simulator resumed on 4 ranks"
printf x | dd of=s/checkpoints/step-000000008.safetensors bs=1 seek=7000 conv=notrunc 2>/dev/null
same "$(timeout 60 "$hdo" run --resume s --engine mpi --np 3 -q --json 2>err | sha)" "$want" &&
    grep -q "is damaged" err && [ "$(grep -c "going on from that of step 4" err)" -eq 1 ]
ok $? "3 ranks pass over a damaged checkpoint, and one says so"
for f in s/checkpoints/*.safetensors; do printf x | dd of="$f" bs=1 seek=7000 conv=notrunc 2>/dev/null; done
same "$(timeout 60 "$hdo" run --resume s --engine mpi --np 3 -q --json 2>err | sha)" "$want" && grep -q "from the beginning" err
ok $? "3 ranks begin again without a whole checkpoint"

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
mpi --np 3 --set population.fo.lr=1e6 --set mixing.kind=none --set steps=1000 --set eval.every=0 -o d1 2>err >out; code=$?
[ $code -eq 4 ] && [ "$(jq -r .outcome out)" = diverged ] && [ ! -s err ]; ok $? "divergence on one rank ends all with 4"
mkdir -p here there
for i in $(seq 60); do echo "$((i * 7 % 11)),$((i * 5 % 13)),$((i % 2))"; done >here/d.csv
csv="$small --set data.name=csv --set data.path=d.csv --set data.train=40 --set data.val=10 --engine mpi -o x"
timeout 60 $launch -n 1 -wdir "$dir/here" "$hdo" run demo $csv : -n 2 -wdir "$dir/there" "$hdo" run demo $csv >out 2>err; code=$?
[ $code -eq 3 ] && grep -q "rank 1 (host .*): cannot read 'd.csv'" err && [ "$(grep -c 'error:' err)" -eq 1 ]
ok $? "an error on one rank ends all ranks with its code and one message"
timeout 60 $launch -n 1 "$hdo" run demo $small --engine mpi -o x : -n 1 "$hdo" run demo $small --engine mpi --seed 9 -o x >out 2>err
[ $? -eq 2 ] && grep -q "rank 1 was started with another configuration" err; ok $? "ranks that differ are found out"
HDO_MPI=$other timeout 60 $launch -n 3 "$hdo" run demo $small --engine mpi -o x >out 2>err; code=$?
[ $code -eq 5 ] && grep -q "started by the mpirun of $flavour, but HDO_MPI is $other" err && [ "$(grep -c . err)" -eq 1 ]
ok $? "the plug-in of another MPI is refused in one sentence"

timeout 60 $launch -n 2 "$hdo" run demo $small -o sims >out 2>err; code=$?
[ $code -eq 2 ] && grep -q "has started 2 ranks, but engine is 'sim'" err && [ "$(grep -c error: err)" -eq 1 ] && [ ! -e sims ]
ok $? "simulators under mpirun are refused"
NO_COLOR='' TERM=xterm timeout 60 $launch -n 2 "$hdo" run demo ${small% -q --json} --engine mpi -o c1 2>&1 | cat >out
NO_COLOR='' TERM=xterm timeout 60 "$hdo" run demo ${small% -q --json} --engine mpi --np 2 -o c2 2>&1 | cat >>out
[ "$(grep -c "^completed" out)" -eq 2 ] && ! grep -q "$(printf '\033')" out; ok $? "no escape codes into a pipe"

# ---- signals ----
# A run that will not end by itself; its ranks are found by their environment. Only processes of this test, whose folder
# is nobody else's, are ever sent a signal.
long="--set data.train=400 --set data.val=100 --population 3fo+8zo --set population.zo.estimator=fd --set steps=10000000
      --set eval.every=0 --set checkpoint.every=20 --set mpi.deadline_s=3 -q --engine mpi --np 3"
ours() { [ "$(readlink "/proc/$1/cwd" 2>/dev/null)" = "$dir" ]; }
rank_pid() { # output folder, rank
    for p in /proc/[0-9]*; do
        { ours "${p#/proc/}" && tr '\0' '\n' <"$p/environ" | grep -qx "$rank_var=$2" && tr '\0' '\n' <"$p/cmdline" | grep -qx "$1" &&
            tr '\0' '\n' <"$p/cmdline" | head -1 | grep -q 'hdo$'; } 2>/dev/null && basename "$p" && return
    done
}
saved() { # output folder: waits for a checkpoint beyond that of step $2
    for _ in $(seq 300); do
        [ "$(newest "$1")" -gt "$2" ] 2>/dev/null && return
        kill -0 $job 2>/dev/null || return
        sleep 0.05
    done
}
begin() { # output folder, options
    into=$1
    shift
    rm -rf "$into"
    "$hdo" run demo $long -o "$into" "$@" >out 2>err &
    job=$!
    saved "$into" 0
}
stopped() { # output folder, step of an earlier checkpoint: ended in order, and saved where it ended
    [ "$(jq -r .outcome "$1/summary.json")" = stopped ] && [ "$(jq .steps "$1/summary.json")" = "$(newest "$1")" ] &&
        [ "$(newest "$1")" -gt "$2" ]
}
newest() { find "$1/checkpoints" -name '*.safetensors' 2>/dev/null | sed 's/.*step-0*\([0-9]*\).safetensors/\1/' | sort -n | tail -1; }
begin k1
kill -INT $job; wait $job; code=$?
[ $code -eq 130 ] && stopped k1 20; ok $? "Ctrl-C saves and ends with 130"
rare="--set checkpoint.every=1000000000" # no checkpoint but those asked for
rm -rf k1
"$hdo" run demo $long $rare -o k1 >out 2>err & job=$!
for _ in $(seq 200); do [ -s k1/metrics.jsonl ] && break; sleep 0.05; done
kill -USR1 $job; saved k1 0; step=$(newest k1)
[ -n "$step" ] && kill -0 $job; ok $? "SIGUSR1 saves and goes on"
kill -TERM $job; wait $job; code=$?
[ $code -eq 143 ] && stopped k1 "$step"; ok $? "SIGTERM saves and ends with 143"
rm -rf k1
$launch -n 3 "$hdo" run demo ${long% --np 3} $rare -o k1 >out 2>err & job=$!
for _ in $(seq 200); do [ -s k1/metrics.jsonl ] && break; sleep 0.05; done
kill -USR1 $job; saved k1 0; step=$(newest k1)
[ -n "$step" ] && kill -0 $job; ok $? "SIGUSR1 to a plain mpirun saves and goes on"
kill -TERM "$(rank_pid k1 1)"; wait $job; code=$?
{ [ $code -eq 130 ] || [ $code -eq 143 ]; } && stopped k1 "$step"; ok $? "SIGTERM to one rank ends all, saved"
# An mpirun that loses the first request: the launcher must ask again.
mkdir lossy
case $flavour in openmpi) fake=mpirun.openmpi ;; mpich) fake=mpiexec.mpich ;; esac
cat >"lossy/$fake" <<END
#!/bin/bash
n=0
trap 'n=\$((n + 1)); if [ \$n -eq 2 ] && [ -e "\$HDO_MPI_STOP" ]; then touch $dir/heard; exit 0; fi' USR1
for _ in {1..60}; do echo hdo-alive >&2; touch $dir/up; sleep 0.1; done
END
chmod +x lossy/*
PATH=$dir/lossy:$PATH "$hdo" run demo $long -o lost >out 2>err & job=$!
for _ in $(seq 200); do [ -e up ] && break; sleep 0.05; done
sleep 0.3
kill -TERM $job; wait $job; code=$?
[ $code -eq 143 ] && [ -e heard ]; ok $? "a request to stop that mpirun loses is made again"
still() { # output folder, rank, options: the rank is stopped, the others must notice; exit code in $code
    into=$1 which=$2
    shift 2
    begin "$into" "$@"
    still_pid=$(rank_pid "$into" "$which")
    kill -STOP "$still_pid"; wait $job; code=$?
    ours "$still_pid" && kill -KILL "$still_pid" # its mpirun should have done so already
}
still k2 2
[ $code -eq 5 ] && grep -q "rank 2 (host .*) did not answer within 3 s" err && [ "$(grep -c . err)" -eq 1 ]
ok $? "a rank that stands still is named"
still k2 0 --set mpi.deadline_s=2
[ $code -eq 5 ] && grep -q "rank [12] .* has waited .*, and rank 0 (host .*) \(is silent\|has not said\)" err && [ "$(grep -c . err)" -eq 1 ]
ok $? "rank 0 standing still is named too"
begin k2
prlimit --pid "$(rank_pid k2 1)" --nofile=3:3; wait $job; code=$?
[ $code -eq 1 ] && grep -q "rank 1 (host .*): .*checkpoints" err && [ "$(grep -c 'error:' err)" -eq 1 ]
ok $? "a checkpoint that one rank cannot write ends all ranks with 1 and one message"
begin k3
kill -KILL "$(rank_pid k3 1)"; wait $job; code=$?
step=$(newest k3)
[ $code -eq 5 ] && grep -q "a rank or mpirun was killed" err && [ -n "$step" ]; ok $? "a killed rank ends the job with 5 and leaves a checkpoint"
target=$((step + 5))
want=$("$hdo" run demo --set data.train=400 --set data.val=100 --population 3fo+8zo --set population.zo.estimator=fd \
    --set steps=$target --set eval.every=0 -q --json -o k4 | sha)
same "$(timeout 60 "$hdo" run --resume k3 --set steps=$target --engine mpi --np 2 -q --json | sha)" "$want"
ok $? "and the run resumed from it equals one that was never killed"

# ---- asynchronous ----
mpi --np 3 --async --set mpi.slow=1:3 --set eval.trace=true --set steps=60 -o a1 >out
jq -e '.outcome == "completed" and .mpi.async.exchanges > 0 and .mpi.async.mean_residual < 1e-5' out >/dev/null
ok $? "asynchronous: completes, exchanges, keeps the mean"
[ "$(jq -c '[.step, (."val/loss_mean" > 0 and ."oracle/forward" >= 0)]' a1/metrics.jsonl | tr -d '\n')" = \
    "$(for s in $(seq 0 4 60); do printf '[%d,true]' "$s"; done)" ]
ok $? "asynchronous: a row at every eval.every"
# Without averages nothing depends on time: the curve must be the simulator's.
curve() { jq -c '[.step, ([."val/loss_mean", ."val/loss_std_zo", ."val/acc_mean", ."train/loss", ."val/loss_node0"] |
    map(if . == null then null else . * 1e9 | round end)), ."oracle/forward", ."oracle/backward"]' "$1/metrics.jsonl"; }
alone="--set mixing.kind=none --set kernels=ref --set steps=40"
sim $alone -o a2 >/dev/null && mpi --np 3 --async --set mpi.slow=0:3 $alone -o a3 >/dev/null
cmp <(curve a2) <(curve a3); ok $? "asynchronous: every rank's nodes are in the rows"
mpi --np 3 --async --set steps=1000000 --set mpi.slow=2:2 --set population.zo.rv=64 --set stop.loss=1.5 -o a4 >out
[ -s out ] && jq -e '.outcome == "completed" and .steps < 1000000' out >/dev/null; ok $? "asynchronous: a target ends all ranks"
mpi --np 3 --async --set steps=400 --set population.zo.lr=1e6 -o a5 >out 2>err
jq -e '.outcome == "diverged" and .divergence.first.class == "zo" and .divergence.first.lr == 1e6 and .divergence.first.g_norm > 0 and
    .divergence.first.step >= 0' a5/summary.json >/dev/null
ok $? "asynchronous: the class and step that went first are kept"
rm -rf k5
"$hdo" run demo ${long/--set checkpoint.every=20/} --async -o k5 >out 2>err & job=$!
for _ in $(seq 100); do stopped=$(rank_pid k5 1); [ -n "$stopped" ] && break; sleep 0.05; done
sleep 0.5
kill -STOP "$stopped"; wait $job; code=$?
ours "$stopped" && kill -KILL "$stopped"
[ $code -eq 5 ] && grep -q "rank 1 (host .*) has not been heard of" err; ok $? "asynchronous: a rank that stands still is named"
echo "1..$count"

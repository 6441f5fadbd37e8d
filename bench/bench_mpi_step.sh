#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Seconds a step: the simulator with 2 threads against 2 ranks with 1 thread each, in turns, rows in memory in common and
# by messages; and the speed of a fast rank beside one that is 4 times slower, synchronous and asynchronous. Least of
# REPS runs. Prints CSV.
#
#   bench/bench_mpi_step.sh HDO [REPS [FIGURE.svg]]
set -eu
hdo=$(realpath "$1") reps=${2:-5} figure=${3:+$(realpath "$3")}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
step() { jq -r '.time.step_s / .steps'; }
least() { sort -g | head -1; }
# shellcheck disable=SC2034  # used by name
e2="e2 --population 24fo+256zo --eval-every 0 --max-steps 60"
# shellcheck disable=SC2034
cnn2="e7 --population 2fo+6zo --eval-every 0 --set warmup=0 --max-steps 6"
echo "bench,shape,backend,reps,least_s"
for shape in e2 cnn2; do
    options=${!shape}
    for _ in $(seq "$reps"); do
        # shellcheck disable=SC2086
        {
            "$hdo" run $options --threads 2 -q --json --force -o s | step >>"$shape.sim"
            for b in openmpi mpich; do
                run() { HDO_MPI=$b "$hdo" run $options --threads 1 -q --json --force -o m --engine mpi --np 2 "$@"; }
                run | step >>"$shape.$b"
                run --set mpi.shared=false | step >>"$shape.$b-messages"
            done
        }
    done
    for b in sim openmpi mpich openmpi-messages mpich-messages; do echo "step,$shape,$b,$reps,$(least <"$shape.$b")"; done
done
# Two ranks; the second sleeps three times its step. What counts is the first one's speed.
slow="demo --population 8fo+24zo --set population.zo.estimator=fd --set population.zo.rv=512 --eval-every 0 --max-steps 150"
fast() { jq -r '.mpi.async.step_s_fastest'; }
for _ in $(seq "$reps"); do
    # shellcheck disable=SC2086
    for b in openmpi mpich; do
        run() { HDO_MPI=$b "$hdo" run $slow --threads 1 -q --json --force -o m --engine mpi --np 2 "$@"; }
        run | step >>"sync.$b"
        run --set mpi.slow=1:4 | step >>"sync-slow.$b"
        run --async | fast >>"async.$b"
        run --async --set mpi.slow=1:4 | fast >>"async-slow.$b"
    done
done
for k in sync sync-slow async async-slow; do
    for b in openmpi mpich; do echo "fast_rank,$k,$b,$reps,$(least <"$k.$b")"; done
done

[ -n "$figure" ] || exit 0
best() { least <"$1.openmpi"; }
printf '"all equal" %s %s\n"one rank 4 times slower" %s %s\n' "$(best sync)" "$(best async)" "$(best sync-slow)" "$(best async-slow)" >data
gnuplot <<END
set terminal svg size 560,360 font "sans,13"
set output "$figure"
set style data histograms
set style fill solid 0.8 border -1
set boxwidth 0.9
set ylabel "milliseconds a step of the fast rank"
set yrange [0:*]
set grid y
set key top left
plot "data" using (1000*\$2):xtic(1) title "synchronous", "" using (1000*\$3) title "asynchronous"
END

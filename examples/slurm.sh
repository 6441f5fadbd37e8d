#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A run on 3 machines under Slurm: sbatch examples/slurm.sh [CONFIG]. Submit it again to go on where it stopped.
#SBATCH --job-name=hdo
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=1
#SBATCH --time=02:00:00
#SBATCH --signal=B:USR1@120
set -u
config=${1:-e2}
out=${HDO_RUNS_DIR:-$PWD/runs}/slurm-$(basename "$config" .yaml)

# Inside an allocation mpirun knows the machines. --bind-to none: a rank may use its own threads.
if [ -d "$out/checkpoints" ]; then
    mpirun --bind-to none hdo run --resume "$out" --engine mpi &
else
    mpirun --bind-to none hdo run "$config" --engine mpi --threads "${SLURM_CPUS_PER_TASK:-1}" \
        --set checkpoint.every_s=600 -o "$out" --force &
fi
job=$!
# Two minutes before the end Slurm sends SIGUSR1 to this script; mpirun hands it to the ranks, which save.
trap 'kill -USR1 $job' USR1
while kill -0 $job 2>/dev/null; do wait $job; code=$?; done
exit "${code:-0}"

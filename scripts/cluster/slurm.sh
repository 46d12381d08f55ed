#!/usr/bin/env bash
# A table over a Slurm array: `sbatch --gres=gpu:1 scripts/cluster/slurm.sh atari '*' 0-9`, from a folder that all nodes
# see; '*' is every algorithm of the suite. Further words are options of `rlbench run`. MuJoCo and toys train on the CPU: leave --gres out, or take one GPU a job.
# Each job takes one share of the runs. Sent again, the same command resumes what a time limit cut and skips what is done.
#SBATCH --array=1-20
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --requeue
#SBATCH --output=slurm-%A_%a.log
set -euo pipefail
if [ "${SLURM_ARRAY_TASK_MIN:-1}" != 1 ] || [ "${SLURM_ARRAY_TASK_MAX:-1}" != "${SLURM_ARRAY_TASK_COUNT:-1}" ]; then
  echo "$0: --array=${SLURM_ARRAY_TASK_MIN:-1}-${SLURM_ARRAY_TASK_MAX:-1} leaves runs out; write --array=1-N" >&2
  exit 2
fi
[ $# -ge 2 ] || { echo "usage: $0 SUITE ALGO [SEEDS [OPTION]...]" >&2; exit 2; }
cd "${SLURM_SUBMIT_DIR:-.}"
exec scripts/rlbench run "$1" "$2" --seeds "${3:-0-9}" \
  --shard "${SLURM_ARRAY_TASK_ID:-1}/${SLURM_ARRAY_TASK_COUNT:-1}" --jobs auto "${@:4}"

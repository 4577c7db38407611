#!/bin/bash
#SBATCH --job-name=qualcheck
#SBATCH --array=1-8
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=04:00:00
# Checks one of eight shares of a file. Submit with: sbatch slurm.sh FILE ENV
# A share that ran out of time goes on when it is submitted again; one that is done is left alone.
set -euo pipefail
share=$SLURM_ARRAY_TASK_ID of=$SLURM_ARRAY_TASK_COUNT
mkdir -p shards
[ -e "shards/$share/shard.json" ] && exit 0
exec qualcheck score "$1" --env "$2" --shard "$share/$of" --workers "${SLURM_CPUS_PER_TASK:-1}" --resume -o "shards/$share"

#!/bin/bash
# What Slurm's hooks know of a job, from the environment that slurmctld gives them. Sourced by them.

# slurm_id: the job's id as Slurm's commands show it.
slurm_id() {
    if [ -n "${SLURM_ARRAY_JOB_ID:-}" ] && [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
        printf '%s_%s' "$SLURM_ARRAY_JOB_ID" "$SLURM_ARRAY_TASK_ID"
    else
        printf '%s' "${SLURM_JOB_ID:-}"
    fi
}

# slurm_outcome: completed, failed or cancelled, from EXIT:SIGNAL.
slurm_outcome() {
    case ${SLURM_JOB_EXIT_CODE2:-} in
        '') printf 'unknown' ;;
        0:0) printf 'completed' ;;
        *:15) printf 'cancelled' ;; # scancel
        *) printf 'failed' ;;
    esac
}

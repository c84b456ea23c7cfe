#!/bin/bash
# Tells clusterflow that a Slurm job starts. In slurm.conf, on the machine of slurmctld:
#
#   PrologSlurmctld=/etc/slurm/clusterflow/slurm-prolog.sh
#   EpilogSlurmctld=/etc/slurm/clusterflow/slurm-epilog.sh
#
# The four files lie in one folder. Slurm gives hooks no search path, and requeues a job whose prolog fails.
PATH=/usr/local/bin:/usr/bin:/bin
export PATH
folder=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source-path=SCRIPTDIR source=post.sh
source "$folder/post.sh"
# shellcheck source-path=SCRIPTDIR source=slurm-job.sh
source "$folder/slurm-job.sh"

id=$(slurm_id)
start=${SLURM_JOB_START_TIME:-$(date +%s)}
if [ -n "$id" ] && [ -n "${SLURM_JOB_NODELIST:-}" ]; then
    post /jobs/start "$(printf '{"id": "%s", "class": "%s", "nodes": "%s", "start": %s}' \
        "$(word "$id")" "$(word "${SLURM_JOB_NAME:-$id}")" "$SLURM_JOB_NODELIST" "$start")" || true
fi
exit 0

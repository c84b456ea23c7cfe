#!/bin/bash
# Tells clusterflow that a Slurm job is over, and how it ended; see slurm-prolog.sh.
PATH=/usr/local/bin:/usr/bin:/bin
export PATH
folder=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source-path=SCRIPTDIR source=post.sh
source "$folder/post.sh"
# shellcheck source-path=SCRIPTDIR source=slurm-job.sh
source "$folder/slurm-job.sh"

id=$(slurm_id)
if [ -n "$id" ]; then
    post /jobs/stop "$(printf '{"id": "%s", "outcome": "%s"}' "$(word "$id")" "$(slurm_outcome)")" || true
fi
exit 0

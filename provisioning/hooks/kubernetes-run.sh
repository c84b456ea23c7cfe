#!/bin/bash
# Runs a job's command in its pod, and tells clusterflow when it starts and how it ends: for clusters whose API server
# `clusterflow analyze` may not ask (else job_sources, type: kubernetes, needs no hook at all).
#
#   command: ["/hooks/kubernetes-run.sh", "torchrun", "train.py"]
#   env:
#     - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
#     - {name: CLUSTERFLOW_JOB, valueFrom: {fieldRef: {fieldPath: "metadata.labels['job-name']"}}}
#     - {name: CLUSTERFLOW_JOB_CLASS, value: llama-70b}
#     - {name: CLUSTERFLOW_JOBS_URL, value: "http://clusterflow.monitoring:9106"}
#     - {name: CLUSTERFLOW_JOBS_TOKEN_FILE, value: /var/run/clusterflow/token}      # a mounted secret
#
# Every pod tells of its own node; the first one (RANK or JOB_COMPLETION_INDEX 0) tells the end. The exit code is the
# command's.
folder=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source-path=SCRIPTDIR source=post.sh
source "$folder/post.sh"

if [ $# -eq 0 ]; then
    echo "kubernetes-run.sh: expected a command to run" >&2
    exit 64
fi
id=$(word "${CLUSTERFLOW_JOB:-${HOSTNAME:-}}")
rank=${RANK:-${JOB_COMPLETION_INDEX:-0}}

# ended OUTCOME: tell the end, once.
ended() {
    [ "$rank" = 0 ] || return
    rank=told
    post /jobs/stop "$(printf '{"id": "%s", "outcome": "%s"}' "$id" "$1")" || true
}

post /jobs/start "$(printf '{"id": "%s", "class": "%s", "nodes": "%s"}' \
    "$id" "$(word "${CLUSTERFLOW_JOB_CLASS:-$id}")" "${NODE_NAME:-}")" || true

"$@" &
child=$!
# A pod that is deleted gets SIGTERM: the command is told, and its end waited for.
trap 'kill -TERM "$child" 2>/dev/null; wait "$child"; ended cancelled; exit 143' TERM INT
wait "$child"
code=$?
if [ "$code" -eq 0 ]; then ended completed; else ended failed; fi
exit "$code"
